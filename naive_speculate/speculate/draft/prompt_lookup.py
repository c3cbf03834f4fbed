"""Prompt lookup: drafts what followed the last tokens where they occurred before.

Saxena 2023 (https://github.com/apoorvumang/prompt-lookup-decoding); in transformers as `prompt_lookup_num_tokens`.
"""

from collections.abc import Sequence

import torch

from naive_speculate.infer.device import on_device
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal
from naive_speculate.speculate.sequence import SequenceState

MAX_NGRAM = 3


class PromptLookupDrafter(BatchDrafter):
    """Drafts without a model. The proposal is a point mass, so that verification stays lossless."""

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        """Draft at most `limits[i]` tokens for each row; without a match, none."""
        drafts = [_cut(look_up(row.token_ids, limit, self.vocab_size), row) for row, limit in zip(rows, limits, strict=True)]
        width = max(map(len, drafts))
        token_ids = on_device([draft + [0] * (width - len(draft)) for draft in drafts], self.device, torch.int64)
        probs = torch.nn.functional.one_hot(token_ids, self.vocab_size).float()
        return Proposal(token_ids, probs, [len(draft) for draft in drafts])


def look_up(token_ids: list[int], limit: int, vocab_size: int) -> list[int]:
    """What followed the longest n-gram at the end of `token_ids` where it last occurred before; at most `limit` tokens."""
    for size in range(min(MAX_NGRAM, len(token_ids) - 1), 0, -1):
        ngram = token_ids[-size:]
        for start in range(len(token_ids) - size - 1, -1, -1):
            if token_ids[start : start + size] == ngram:
                return [token for token in token_ids[start + size :] if token < vocab_size][:limit]
    return []


def _cut(draft: list[int], row: SequenceState) -> list[int]:
    """The draft up to a stop token, or to where an adaptive window ends."""
    for place, token in enumerate(draft):
        if token in row.stop_token_ids or not row.window.should_continue(1.0):
            return draft[: place + 1]
    return draft
