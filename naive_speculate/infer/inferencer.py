"""The plain inference engine: one forward per token."""

from functools import partial
from numbers import Integral

import torch

from naive_speculate.infer.forward import check_query, forward_of
from naive_speculate.infer.protocols import DecodeOutput, KVCache, LanguageModel, PrefillOutput
from naive_speculate.sampling.strategy import SampleStrategy, TokenSampler, choose


class BasicInferencer:
    """Implements `Inferencer` on top of a `LanguageModel`.

    Attributes:
        language_model: The model that processes the tokens.
    """

    def __init__(self, language_model: LanguageModel) -> None:
        self.language_model = language_model
        self.eos_token_ids = frozenset(eos_token_ids(language_model))
        self._forward = forward_of(language_model)

    def prefill(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: KVCache,
        sample_strategy: SampleStrategy | TokenSampler,
    ) -> PrefillOutput:
        """Process the query in parallel and generate one token; see `Inferencer.prefill`. Raises
        `ValueError` if the query has no tokens, the strategy is unknown, or the model violates
        its contract."""
        if query_token_ids.dim() != 2 or query_token_ids.shape[1] == 0:
            check_query(query_token_ids)
        sample = getattr(sample_strategy, "sample", partial(choose, strategy=sample_strategy))
        logits = self._forward(query_token_ids, kv_cache)
        return PrefillOutput(sample(logits[:, -1])[:, None], logits)

    def decode(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: KVCache,
        max_new_tokens: int,
        sample_strategy: SampleStrategy | TokenSampler,
    ) -> DecodeOutput:
        """Generate up to `max_new_tokens` tokens; see `Inferencer.decode`. Raises `ValueError`
        if `max_new_tokens` is not positive, or the query is not one token per row."""
        if max_new_tokens <= 0:
            raise ValueError(f"max_new_tokens must be positive, got {max_new_tokens}")
        if query_token_ids.dim() != 2 or query_token_ids.shape[1] != 1:
            raise ValueError(
                "query_token_ids must have shape [batch_size, 1], got"
                f" {list(query_token_ids.shape)}"
            )
        sample = getattr(sample_strategy, "sample", partial(choose, strategy=sample_strategy))
        token_ids, logits = [query_token_ids], list[torch.Tensor]()
        going_on = set(range(len(query_token_ids)))
        while going_on and len(logits) < max_new_tokens:
            logits.append(self._forward(token_ids[-1], kv_cache))
            chosen = sample(logits[-1][:, -1])
            token_ids.append(chosen[:, None])
            if not isinstance(sample_strategy, str):  # a TokenSampler
                going_on = set() if sample_strategy.is_done(chosen) else going_on
            elif self.eos_token_ids:
                tokens = chosen.tolist()
                going_on = {row for row in going_on if tokens[row] not in self.eos_token_ids}
        return DecodeOutput(torch.cat(token_ids[1:], dim=1), torch.cat(logits, dim=1))


def eos_token_ids(language_model: LanguageModel) -> tuple[int, ...]:
    """All end-of-sequence tokens of a model: its `eos_token_ids`, else its `eos_token_id`, else
    none. Raises `ValueError` if they are not token ids."""
    several = getattr(language_model, "eos_token_ids", None)
    if several is not None:
        return tuple(several)
    try:
        one: object = language_model.eos_token_id
    except ValueError:
        return ()
    except AttributeError:
        one = "no such attribute"
    if isinstance(one, bool) or not isinstance(one, Integral):
        raise ValueError(
            f"{type(language_model).__name__}.eos_token_id must be an int, got {one!r:.80}; it"
            " raises ValueError where there is none, and several are in eos_token_ids"
        )
    return (int(one),)
