"""Drafting with a head that reads the target's own hidden states (as EAGLE-3, Li et al. 2025, arXiv 2503.01840)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import on_device
from naive_speculate.infer.head.model import DraftHead
from naive_speculate.infer.plain import PlainModel, as_batch_model
from naive_speculate.infer.slots import Slot, SlotPool
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.arrays import Numbers, as_tensor
from naive_speculate.speculate.draft.few_calls import draft_in_few_calls
from naive_speculate.speculate.draft.model import DrawnWindow
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal
from naive_speculate.speculate.sequence import SequenceState

_MAX_QUERY = 65
"""Hidden states that a window may begin with: as many as the longest window, kept whole, leaves behind."""


@dataclass
class _History:
    """What the head knows of a row: its cache, and the target's states that are not in there for good.

    A window is drafted from the last of them, so there is always one once the target has seen a token; while a window is
    drafted, the cache runs ahead.

    Attributes:
        slot: The row's place in the head's cache.
        start: So many places are in the cache for good; the place of the first of `states`.
        states: The target's hidden states at the places from there on, side by side, shape `[num_states, len(layers) * t]`.
    """

    slot: Slot
    start: int
    states: Numbers

    @property
    def end(self) -> int:
        """The place after the last known state."""
        return self.start + len(self.states)

    def settle(self, count: int) -> None:
        """The first `count` states are in the cache for good."""
        self.slot.keep(self.start + count)
        self.start, self.states = self.start + count, self.states[count:]


class HeadDrafter(BatchDrafter):
    """Drafts with the pair's draft head, several tokens in one call where they can be; see `BatchDrafter` for the methods.

    The head's cache holds a place for each token but the last: the state of the target there beside the next token. What it
    drafted itself is forgotten after each step, and the same places are read again with the target's states.
    """

    title = "Draft head"
    about = "A small model that reads the target's own hidden states. Cheap and good guesses, trained for this very target."
    several_a_call = True

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        assert pair.head is not None
        self.head = pair.head
        self.layers = self.head.layers
        self.pool = SlotPool(cast(Any, self.head))
        self.histories: dict[SequenceState, _History] = {}

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        if pair.head is None:
            return "this pair has no draft head"
        if isinstance(as_batch_model(pair.target), PlainModel):
            return f"{type(pair.target).__name__} returns no hidden states, which a head reads"
        return None

    def admit(self, row: SequenceState) -> None:
        nothing = torch.zeros(0, 0, dtype=self.head.dtype, device=self.head.device)
        self.histories[row] = _History(self.pool.allocate(), 0, nothing)

    def release(self, row: SequenceState) -> None:
        self.pool.free(self.histories.pop(row).slot)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        own, other, known = self.histories[row], self.histories[source], len(row.token_ids) - 1
        own.slot.copy_from(other.slot)
        own.start, own.states = other.start, other.states[: max(0, known - other.start)]
        if own.start > known:  # the other is further; where it went on from here, its state is gone
            own.start = known
        own.slot.keep(own.start)

    def room(self, row: SequenceState) -> int:
        """See `BatchDrafter.room`; without a state of the target there is nothing to draft from."""
        return row.room - 1 if len(self.histories[row].states) else 0

    def ready(self, row: SequenceState) -> bool:
        return len(self.histories[row].states) <= _MAX_QUERY

    def observe(self, rows: Sequence[SequenceState], starts: Sequence[int], features: Sequence[Numbers]) -> None:
        for row, start, states in zip(rows, starts, features, strict=True):
            self._append(row, start, states)

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        """See `BatchDrafter.prefill`; the last state is left for the window."""
        long = [row for row in rows if len(self.histories[row].states) > 1]
        if not long:
            return
        histories = [self.histories[row] for row in long]
        counts = [len(history.states) - 1 for history in histories]
        self._read(long, counts, *self._query(long, counts))
        for history, count in zip(histories, counts, strict=True):
            history.settle(count)

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        self.pool.pack([self.histories[row].slot for row in rows])
        order = sorted(range(len(rows)), key=lambda place: self.histories[rows[place]].slot.row)
        found = self._propose([rows[place] for place in order], [limits[place] for place in order])
        if order == list(range(len(rows))):
            return found
        back = sorted(range(len(rows)), key=order.__getitem__)
        probs = None if found.probs is None else found.probs[back]
        return Proposal(found.token_ids[back], probs, [found.lengths[place] for place in back])

    def _propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        view = self.pool.view([self.histories[row].slot for row in rows])
        counts = [len(self.histories[row].states) for row in rows]
        query, states = self._query(rows, counts)
        if type(self.head) is DraftHead and self.head.drafts_windows:
            begun = _Beginning(self.head, states, [count - 1 for count in counts])
            if found := draft_in_few_calls(begun, query, view, rows, limits, self.vocab_size):
                return found
        window = DrawnWindow(rows, limits, self.vocab_size)
        logits, own = self._read(rows, counts, query, states)
        while True:
            token_ids = window.draw(logits)
            if window.full:
                return window.proposal()
            logits, own = self.head.forward(token_ids[:, None], own[:, None], view, [0] * len(rows))

    def commit(self, rows: Sequence[SequenceState], records: Sequence[StepRecord], features: Numbers | None) -> None:
        assert features is not None
        for row, record, states in zip(rows, records, features, strict=True):
            if row.ended:  # it leaves, and may have kept less than was accepted
                continue
            history, kept = self.histories[row], record.outcome.num_accepted + 1
            if history.slot.num_tokens >= history.end:  # a window was drafted
                history.settle(len(history.states))
            self._append(row, len(row.token_ids) - 1 - kept, states[:kept])

    def rewind(self, rows: Sequence[SequenceState]) -> None:
        for row in rows:
            self.histories[row].settle(0)

    def _append(self, row: SequenceState, start: int, states: Numbers) -> None:
        """Keep the target's states at the places from `start` on, which those kept reach up to."""
        history = self.histories[row]
        if not history.start <= start <= history.end:
            raise ValueError(
                f"hidden states from place {start} on do not follow those of places {history.start} to {history.end}"
            )
        known = history.states[: start - history.start]
        history.states = _joined(known, states) if len(known) else states

    def _read(
        self, rows: Sequence[SequenceState], counts: Sequence[int], token_ids: list[list[int]], states: Numbers
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Let the head read so many of each row's states, as `_query` gives them; returns logits and its own states after the
        last of them."""
        histories = [self.histories[row] for row in rows]
        view = self.pool.view([history.slot for history in histories])
        query = on_device(token_ids, self.head.device)
        found = self.head.forward(query, self.head.fuse(states), view, [count - 1 for count in counts])
        for history, count in zip(histories, counts, strict=True):
            history.slot.keep(history.start + count)  # what was padded is forgotten
        return found

    def _query(self, rows: Sequence[SequenceState], counts: Sequence[int]) -> tuple[list[list[int]], Numbers]:
        """So many of each row's states that are not in the cache for good, padded, and before them the tokens beside them; what
        was in the cache beyond is forgotten."""
        histories, width = [self.histories[row] for row in rows], max(counts)
        token_ids = []
        for row, history, count in zip(rows, histories, counts, strict=True):
            history.settle(0)
            tokens = row.token_ids[history.start + 1 : history.start + 1 + count]
            token_ids.append(tokens + [0] * (width - count))
        states = [history.states[:count] for history, count in zip(histories, counts, strict=True)]
        beside = states[0][None] if len(states) == 1 else pad_sequence(list(map(as_tensor, states)), batch_first=True)
        return token_ids, beside


def _joined(first: Numbers, rest: Numbers) -> Numbers:
    if isinstance(first, torch.Tensor):
        return torch.cat([first, as_tensor(rest)])
    return np.concatenate([first, rest])


class _Beginning:
    """A head as a model that drafts windows: with the hidden states that its next call begins with, the target's and then its
    own, and where each row's last is."""

    max_positions = None

    def __init__(self, head: DraftHead, states: Numbers, last: Sequence[int]) -> None:
        self._head, self._states, self._last, self._fuses = head, states, last, True

    def draft_window(
        self,
        query: list[list[int]],
        places: Any,
        k: int,
        vocab_size: int,
        race: Any,
        with_probs: bool,
    ) -> tuple[Any, Any]:
        """As `LlamaLanguageModel.draft_window`."""
        token_ids, probs, self._states = self._head.draft_window(
            query, as_tensor(self._states), places, self._last, k, vocab_size, race, with_probs, self._fuses
        )
        self._last, self._fuses = [0] * len(query), False
        return token_ids, probs
