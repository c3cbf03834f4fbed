"""Drafts by copying: what followed the end of a row's text, where that occurred before, instead of what a model draws."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from naive_speculate.events.record import StepRecord
from naive_speculate.speculate.draft.occurrences import Copy, Occurrences
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal
from naive_speculate.speculate.sequence import SequenceState


class CopyingDrafter(BatchDrafter, ABC):
    """Drafts without a model; a subclass has `copy`.

    A proposal is a point mass, so that verification is lossless whatever is copied. `indexes`: where the tokens of each row's
    text occur, committed ones only.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.indexes: dict[SequenceState, Occurrences] = {}

    @abstractmethod
    def copy(self, row: SequenceState, limit: int) -> Copy:
        """What may follow a row's text, at most `limit` tokens."""

    def admit(self, row: SequenceState) -> None:
        self.indexes[row] = Occurrences()
        self.rewind([row])

    def release(self, row: SequenceState) -> None:
        self.indexes.pop(row)

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        """See `BatchDrafter.propose`; a row's window is empty where nothing is found."""
        return self.proposal(rows, [self.copy(row, limit) for row, limit in zip(rows, limits, strict=True)])

    def proposal(self, rows: Sequence[SequenceState], copies: Sequence[Copy]) -> Proposal:
        """Copies as windows: each ends with a stop token, before a filtered word, or where the row's adaptive window ends."""
        windows = [copy.token_ids[: _length(copy, row)] for row, copy in zip(rows, copies, strict=True)]
        sources = [copy.source if window else None for copy, window in zip(copies, windows, strict=True)]
        return Proposal.certain(rows, windows, self.vocab_size, self.device)._replace(copied_from=sources)

    def commit(self, rows: Sequence[SequenceState], records: Sequence[StepRecord], features: Any) -> None:
        self.rewind(rows)

    def rewind(self, rows: Sequence[SequenceState]) -> None:
        """See `BatchDrafter.rewind`; an index may lack committed tokens."""
        for row in rows:
            self.indexes[row].add(row.token_ids, self.indexes[row].num_tokens)


def _length(copy: Copy, row: SequenceState) -> int:
    """How many tokens of a copy are in its row's window."""
    word_filter = row.pipeline.word_filter
    texts = (row.output_token_ids + copy.token_ids[:index] for index in range(len(copy.token_ids)))
    banned = [] if word_filter is None else [word_filter.banned(text) for text in texts]
    for index, (token, prob) in enumerate(zip(copy.token_ids, copy.probs, strict=True)):
        if banned and token in banned[index]:
            return index
        if token in row.stop_token_ids or not row.window.should_continue(prob):
            return index + 1
    return len(copy.token_ids)
