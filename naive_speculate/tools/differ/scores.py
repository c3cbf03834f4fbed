"""A target's logits at the positions of a text, computed in one dtype."""

from collections.abc import Sequence

import torch

from naive_speculate.infer.plain import new_cache
from naive_speculate.infer.protocols import KVCache
from naive_speculate.pair import ModelPair

_HALF_CHI2 = 3.841 / 2  # half of the 95% quantile of χ² with one degree of freedom


class Scores:
    """Computes logits with one copy of a pair's target, loaded in this dtype."""

    def __init__(self, pair: ModelPair, dtype: str = "float32") -> None:
        self.pair, self.dtype = pair, dtype
        self.device = getattr(pair.target, "device", torch.device("cpu"))

    def whole(self, token_ids: Sequence[int]) -> torch.Tensor:
        """The logits after each token, from one forward over all of them; float32, shape
        `[num_tokens, vocab_size]`."""
        return self._forward(token_ids, new_cache(self.pair.target))

    def last(self, token_ids: Sequence[int], num_rows: int) -> torch.Tensor:
        """The logits after the last token, as decoding computes them: after a forward over the
        tokens before, one over the last `num_rows` tokens; float32, shape `[vocab_size]`."""
        cache, split = new_cache(self.pair.target), max(0, len(token_ids) - num_rows)
        if split:
            self._forward(token_ids[:split], cache)
        return self._forward(token_ids[split:], cache)[-1]

    def _forward(self, token_ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        with torch.inference_mode():
            logits = self.pair.target.forward(
                torch.tensor([list(token_ids)], device=self.device), cache
            )
        return logits[0, :, : self.pair.vocab_size].float().cpu()


def gaps(logits: torch.Tensor, token_ids: Sequence[int]) -> torch.Tensor:
    """How far the logits `[num_tokens, vocab_size]` of these tokens are below the largest ones;
    shape `[num_tokens]`."""
    return logits.amax(-1) - logits.gather(-1, torch.tensor(token_ids)[:, None])[:, 0]


def fitted_temperatures(
    logits: torch.Tensor, token_ids: torch.Tensor
) -> tuple[float, float, float]:
    """The temperature from 0.05 to 20 under which these tokens, int64 `[num_tokens]`, are most
    probable by logits `[num_tokens, vocab_size]`, and the 95% interval of a likelihood ratio:
    `(best, low, high)`, all 0 if each token is the most probable one."""
    if not len(token_ids) or torch.equal(logits.argmax(-1), token_ids):
        return 0.0, 0.0, 0.0
    candidates = torch.logspace(-1.3, 1.3, 105)
    fits = torch.stack(
        [torch.log_softmax(logits / t, -1).gather(-1, token_ids[:, None]).sum() for t in candidates]
    )
    inside = candidates[fits >= fits.max() - _HALF_CHI2]
    best, low, high = candidates[fits.argmax()], inside[0], inside[-1]
    return round(float(best), 2), round(float(low), 2), round(float(high), 2)


def rarest(logits: torch.Tensor, token_ids: torch.Tensor, temperature: float) -> float:
    """How rare the least likely token is in samples of this length and temperature: the
    probability of tokens as improbable as it is, times the number of tokens (Bonferroni), at
    most 1. Shapes as for `fitted_temperatures`."""
    probs = torch.softmax(logits.double() / temperature, -1)
    chosen = probs.gather(-1, token_ids[:, None])
    tails = probs.where(probs <= chosen, 0).sum(-1)
    return min(1.0, float(tails.min()) * len(token_ids))
