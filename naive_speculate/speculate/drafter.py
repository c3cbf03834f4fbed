"""Drafting with a model: a smaller, faster one proposes what the target then verifies."""

from typing import NamedTuple

import torch

from naive_speculate.infer.forward import check_query
from naive_speculate.infer.protocols import Inferencer, KVCache
from naive_speculate.sampling.strategy import SampleStrategy, TokenSampler


class DraftOut(NamedTuple):
    """Output of `Drafter.draft`.

    Attributes:
        token_ids: The drafted tokens, int64, shape `[batch_size, num_drafted_tokens]`.
        token_logits: The logits that they were sampled from, shape `[batch_size,
            num_drafted_tokens, vocab_size]`.
    """

    token_ids: torch.Tensor
    token_logits: torch.Tensor


class Drafter:
    """Generates draft tokens by delegating to an inference engine.

    Attributes:
        inferencer: The engine that drafts.
    """

    def __init__(self, inferencer: Inferencer) -> None:
        self.inferencer = inferencer

    def draft(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: KVCache,
        num_draft_tokens: int,
        sample_strategy: SampleStrategy | TokenSampler,
    ) -> DraftOut:
        """Draft up to `num_draft_tokens` tokens after the query.

        The cache gains the query and all drafted tokens but the last, which was never processed.

        Args:
            query_token_ids: int64, shape `[batch_size, num_query_tokens]`, at least one token.
            kv_cache: Holds the tokens before the query.
            num_draft_tokens: Limit on drafted tokens, positive; drafting ends early at an
                end-of-sequence token.
            sample_strategy: How tokens are chosen.

        Returns:
            DraftOut: The tokens and the logits that they were sampled from.

        Raises:
            ValueError: If `num_draft_tokens` is not positive or the query has no tokens.
        """
        if num_draft_tokens <= 0:
            raise ValueError(f"num_draft_tokens must be positive, got {num_draft_tokens}")
        if query_token_ids.dim() != 2 or query_token_ids.shape[1] == 0:
            check_query(query_token_ids)
        first = self.inferencer.prefill(query_token_ids, kv_cache, sample_strategy)
        logits = first.token_logits[:, -1:]
        if num_draft_tokens == 1 or self._is_done(first.token_ids[:, 0], sample_strategy):
            return DraftOut(first.token_ids, logits)
        rest = self.inferencer.decode(
            first.token_ids, kv_cache, num_draft_tokens - 1, sample_strategy
        )
        return DraftOut(
            torch.cat([first.token_ids, rest.token_ids], dim=1),
            torch.cat([logits, rest.token_logits], dim=1),
        )

    def _is_done(
        self, token_ids: torch.Tensor, sample_strategy: SampleStrategy | TokenSampler
    ) -> bool:
        if not isinstance(sample_strategy, str):
            return sample_strategy.is_done(token_ids)
        eos: frozenset[int] = getattr(self.inferencer, "eos_token_ids", frozenset())
        return bool(eos) and eos.issuperset(token_ids.tolist())
