"""Drafts by copying: an index of each row's text, instead of a model, finds what may come next."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch

from naive_speculate.events.record import StepRecord
from naive_speculate.infer import slots
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal
from naive_speculate.speculate.sequence import SequenceState


class Copy(NamedTuple):
    """Copied tokens."""

    token_ids: list[int]
    probs: list[float]  # the index's estimate, for each token, that the text continues with it; nothing is drawn from these
    source: int | None  # position of the first one in the row's prompt and output; None if it is from elsewhere


NOTHING = Copy([], [], None)


class TextIndex(Protocol):
    """An index of one row's text, which grows with the committed tokens."""

    num_tokens: int  # how many of the text's tokens are in it

    def extend(self, end: int) -> None:
        """Add the text's next tokens, up to position `end`."""
        ...


Index = TypeVar("Index", bound=TextIndex)


class CopyingDrafter(BatchDrafter, ABC, Generic[Index]):
    """Drafts without a model; a subclass defines the index of a text and what is copied from it.

    A proposal is a point mass, so that verification is lossless whatever is copied. `indexes`: the index of each row's text.
    """

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        self.indexes: dict[SequenceState, Index] = {}

    @abstractmethod
    def new_index(self, token_ids: list[int]) -> Index:
        """An empty index of a text: a row's own list of tokens."""

    @abstractmethod
    def copy(self, index: Index, limit: int) -> Copy:
        """What may follow the text, at most `limit` tokens."""

    def admit(self, row: SequenceState) -> None:
        self.indexes[row] = self.new_index(row.token_ids)

    def release(self, row: SequenceState) -> None:
        self.indexes.pop(row)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        self.rewind([row])

    def ready(self, row: SequenceState) -> bool:
        return self.indexes[row].num_tokens == len(row.token_ids)

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        for row in rows:
            index = self.indexes[row]
            index.extend(min(len(row.token_ids), index.num_tokens + slots.PREFILL_CHUNK))

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        """See `BatchDrafter.propose`; a row's window is empty where nothing is found."""
        return self.proposal(rows, self.copies(rows, limits))

    def copies(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> list[Copy]:
        """What may follow each row's text, at most `limits[i]` tokens."""
        return [self.copy(self.indexes[row], limit) for row, limit in zip(rows, limits, strict=True)]

    def proposal(self, rows: Sequence[SequenceState], copies: Sequence[Copy]) -> Proposal:
        """Copies as windows: each ends with a stop token, before a filtered word, or where the row's adaptive window ends."""
        copies = [_cut(copy, row) for row, copy in zip(rows, copies, strict=True)]
        found = Proposal.certain(rows, [copy.token_ids for copy in copies], self.vocab_size, self.device)
        return found._replace(copied_from=[copy.source for copy in copies])

    def commit(self, rows: Sequence[SequenceState], records: Sequence[StepRecord], features: torch.Tensor | None) -> None:
        self.rewind(rows)

    def rewind(self, rows: Sequence[SequenceState]) -> None:
        """See `BatchDrafter.rewind`; an index holds committed tokens only, but may lack some."""
        for row in rows:
            self.indexes[row].extend(len(row.token_ids))


def _cut(copy: Copy, row: SequenceState) -> Copy:
    """A copy up to a stop token, before a filtered word, or to where an adaptive window ends."""
    if row.pipeline.word_filter is not None:
        banned = row.pipeline.word_filter.banned(row.output_token_ids, copy.token_ids)
        for index, (token, tokens) in enumerate(zip(copy.token_ids, banned, strict=False)):
            if token in tokens:
                copy = Copy(copy.token_ids[:index], copy.probs[:index], copy.source if index else None)
                break
    for index, (token, prob) in enumerate(zip(copy.token_ids, copy.probs, strict=True)):
        if token in row.stop_token_ids or not row.window.should_continue(prob):
            return Copy(copy.token_ids[: index + 1], copy.probs[: index + 1], copy.source)
    return copy
