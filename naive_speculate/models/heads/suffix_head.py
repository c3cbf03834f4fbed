"""Suffix decoding where the text repeats itself, a draft head elsewhere: each row and step uses
one of the two."""

from collections.abc import Sequence

import torch

from naive_speculate.events.record import StepRecord
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.head import HeadDrafter
from naive_speculate.speculate.draft.proposal import Proposal, merge
from naive_speculate.speculate.draft.suffix import SuffixDrafter
from naive_speculate.speculate.sequence import SequenceState

MIN_MATCH = 2
"""Tokens that must match for a copy, where a head drafts otherwise. In 120 answers of
SmolLM2-135M-Instruct, 0.4 tokens of a copy (k = 5) were accepted after a match of one token, 1.1
after two, 1.6 after three and 3.6 after eight or more."""


class SuffixHeadDrafter(HeadDrafter):
    """Copies as `SuffixDrafter` where at least `MIN_MATCH` tokens match, and drafts as
    `HeadDrafter` elsewhere, in each row and step; see `BatchDrafter` for the methods. Hu et al.
    2024, "SAM Decoding" (arXiv 2411.10666), choose by length of match too.

    Both follow every row. The head reads the target's states of copied tokens together, when it
    is next used.
    """

    title = "Suffix and head"
    phrase = "suffix decoding with the head"
    about = "Copies where the text repeats itself, and asks the head elsewhere. For any text."
    drafts_trees = False
    copies_or_asks = True

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        self.suffix = SuffixDrafter(pair, vocab_size, device)
        self.suffix.min_match = MIN_MATCH

    def admit(self, row: SequenceState) -> None:
        super().admit(row)
        self.suffix.earlier = self.earlier
        self.suffix.admit(row)

    def release(self, row: SequenceState) -> None:
        super().release(row)
        self.suffix.release(row)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        super().fork(row, source)
        self.suffix.fork(row, source)

    def max_window(self, row: SequenceState) -> int:
        return row.num_remaining - 1

    def ready(self, row: SequenceState) -> bool:
        return self.suffix.ready(row) and super().ready(row)

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        self.suffix.prefill(rows)
        super().prefill(rows)

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        to_copy = [
            min(limit, row.window.copy_limit) for row, limit in zip(rows, limits, strict=True)
        ]
        to_ask = [min(limit, row.window.ask_limit) for row, limit in zip(rows, limits, strict=True)]
        copies = self.suffix.copies(rows, to_copy)
        asking = [
            index
            for index, row in enumerate(rows)
            if not copies[index].token_ids
            and to_ask[index] > 0
            and super(SuffixHeadDrafter, self).max_window(row) > 0
        ]
        copying = [index for index in range(len(rows)) if index not in asking]
        for index, row in enumerate(rows):
            row.window.use(index in copying)
        parts, groups = [], [group for group in (asking, copying) if group]
        if asking:
            parts.append(
                super().propose(
                    [rows[index] for index in asking], [to_ask[index] for index in asking]
                )
            )
        if copying:
            parts.append(
                self.suffix.proposal(
                    [rows[index] for index in copying], [copies[index] for index in copying]
                )
            )
        return merge(parts, groups, self.vocab_size)

    def commit(
        self,
        rows: Sequence[SequenceState],
        records: Sequence[StepRecord],
        features: torch.Tensor | None,
    ) -> None:
        self.suffix.commit(rows, records, None)
        super().commit(rows, records, features)
