"""Drafts by copying: an index of each row's text, instead of a model, finds what may come next."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from naive_speculate.events.record import StepRecord
from naive_speculate.infer import slots
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal
from naive_speculate.speculate.draft.suffix_trie import Copy
from naive_speculate.speculate.sequence import SequenceState

NOTHING = Copy([], [], None)


class CopyingDrafter(BatchDrafter, ABC):
    """Drafts without a model; a subclass has the index of a text (`new_index`) and `copy`.

    A proposal is a point mass, so that verification is lossless whatever is copied. `indexes`:
    the index of each row's text. An index holds the text's first `num_tokens` tokens;
    `extend(end)` adds those before position `end`.
    """

    new_index: type[Any]  # made from the list of a row's tokens, which grows

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.indexes: dict[SequenceState, Any] = {}

    @abstractmethod
    def copy(self, index: Any, limit: int) -> Copy:
        """What may follow an index's text, at most `limit` tokens."""

    def admit(self, row: SequenceState) -> None:
        self.indexes[row] = self.new_index(row.token_ids)

    def release(self, row: SequenceState) -> None:
        self.indexes.pop(row)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        self.rewind([row])

    def ready(self, row: SequenceState) -> bool:
        return bool(self.indexes[row].num_tokens == len(row.token_ids))

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        for row in rows:
            index = self.indexes[row]
            index.extend(min(len(row.token_ids), index.num_tokens + slots.PREFILL_CHUNK))

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        """See `BatchDrafter.propose`; a row's window is empty where nothing is found."""
        return self.proposal(rows, self.copies(rows, limits))

    def copies(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> list[Copy]:
        """What may follow each row's text, at most `limits[i]` tokens."""
        return [
            self.copy(self.indexes[row], limit) for row, limit in zip(rows, limits, strict=True)
        ]

    def proposal(self, rows: Sequence[SequenceState], copies: Sequence[Copy]) -> Proposal:
        """Copies as windows: each ends with a stop token, before a filtered word, or where the
        row's adaptive window ends."""
        windows = [
            copy.token_ids[: _length(copy, row)] for row, copy in zip(rows, copies, strict=True)
        ]
        sources = [
            copy.source if window else None for copy, window in zip(copies, windows, strict=True)
        ]
        return Proposal.certain(rows, windows, self.vocab_size, self.device)._replace(
            copied_from=sources
        )

    def commit(
        self, rows: Sequence[SequenceState], records: Sequence[StepRecord], features: Any
    ) -> None:
        self.rewind(rows)

    def rewind(self, rows: Sequence[SequenceState]) -> None:
        """See `BatchDrafter.rewind`; an index holds committed tokens only, but may lack some."""
        for row in rows:
            self.indexes[row].extend(len(row.token_ids))


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
