"""Toy language models: distributions over a few tokens, in float64, that depend on the whole history."""

from dataclasses import dataclass, field

import torch

from naive_speculate.infer.protocols import KVCache, KVState

EOS = 0  # their end-of-sequence token


@dataclass(eq=False)
class ToyModel:
    """A plain `LanguageModel` (only its two members) whose next-token distribution depends on the whole history.

    It stores its tokens in the cache as keys, so that wrong rollbacks give wrong distributions.

    Args:
        vocab_size: Number of tokens.
        seed: Determines the distributions.
        zeros: Whether some tokens are impossible after some histories.
        temper: Scales the logits; larger is more certain.
        dtype: The dtype of the logits.
    """

    vocab_size: int
    seed: int
    zeros: bool = True
    temper: float = 1.0
    dtype: torch.dtype = torch.float64
    _cached: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict, init=False, repr=False)
    eos_token_id = EOS

    def logits(self, history: tuple[int, ...]) -> torch.Tensor:
        """Logits after these tokens, float64, shape `[vocab_size]`."""
        if (cached := self._cached.get(history)) is not None:
            return cached
        code = sum((token + 1) * 31**index for index, token in enumerate(history)) + 7919 * self.seed
        generator = torch.Generator().manual_seed(code % 2**62)
        logits = self._cached[history] = torch.randn(self.vocab_size, generator=generator, dtype=torch.float64) * self.temper
        if self.zeros:
            hit = int(torch.randint(self.vocab_size + 2, (1,), generator=generator).item())
            if hit < self.vocab_size:
                logits[hit] = -torch.inf
        return logits

    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache) -> torch.Tensor:
        """See `LanguageModel.forward`; for one sequence."""
        assert len(query_token_ids) == 1
        states = kv_cache.get_kv_states()
        past = [] if not states else [int(token) for token in states[0].keys.flatten().tolist()]
        assert len(past) == kv_cache.get_num_tokens()
        new = query_token_ids[0].tolist()
        tokens = query_token_ids.double().view(1, 1, -1, 1)
        kv_cache.update([KVState(tokens, tokens)])
        return torch.stack([self.logits((*past, *new[: index + 1])) for index in range(len(new))])[None].to(self.dtype)
