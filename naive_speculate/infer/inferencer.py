"""The plain inference engine: one forward per token."""

from numbers import Integral

import torch

from naive_speculate.infer.forward import check_query, forward
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

    def prefill(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: KVCache,
        sample_strategy: SampleStrategy | TokenSampler,
    ) -> PrefillOutput:
        """Process the query in parallel and generate one token; see `Inferencer.prefill`. Raises
        `ValueError` if the query has no tokens, the strategy is unknown, or the model violates
        its contract."""
        check_query(query_token_ids)
        logits, _ = forward(self.language_model, query_token_ids, kv_cache)
        return PrefillOutput(choose(logits[:, -1], sample_strategy)[:, None], logits)

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
        outputs: list[PrefillOutput] = []
        query = query_token_ids
        done = [False] * len(query)
        for _ in range(max_new_tokens):
            outputs.append(self.prefill(query, kv_cache, sample_strategy))
            query = outputs[-1].token_ids
            if not isinstance(sample_strategy, str):  # a TokenSampler
                if sample_strategy.is_done(query[:, 0]):
                    break
            elif self.eos_token_ids:
                done = [
                    was or token in self.eos_token_ids
                    for was, token in zip(done, query[:, 0].tolist(), strict=True)
                ]
                if all(done):
                    break
        token_ids, logits = zip(*outputs, strict=True)
        return DecodeOutput(torch.cat(token_ids, dim=1), torch.cat(logits, dim=1))


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
