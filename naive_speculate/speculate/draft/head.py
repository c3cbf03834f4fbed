"""Drafts with a head that reads the target's own hidden states (as EAGLE-3, Li et al. 2025, arXiv 2503.01840)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import Tokens, on_device, tokens_on
from naive_speculate.infer.head.model import DraftHead
from naive_speculate.infer.plain import PlainModel, as_batch_model
from naive_speculate.infer.slots import Slot
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.random_source import Race
from naive_speculate.speculate.draft.model import Windows, drafts_windows
from naive_speculate.speculate.draft.proposal import Proposal, SlotDrafter
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.tree import Tree, TreeSlot, grow

_MAX_QUERY = 65  # the most hidden states that a window may begin with: those of the longest window, fully accepted


@dataclass
class _History:
    """A row's history: the head's cache, and the target's states that are not settled there.

    A window is drafted from the last state, so there is always one once the target has processed a token. While a window is
    drafted, the cache runs ahead.
    """

    slot: Slot  # the row's slot in the head's cache
    start: int  # how many positions of the cache are settled; the position of the first of `states`
    # the target's hidden states from there on, concatenated by layer, shape `[num_states, len(layers) * t]`
    states: torch.Tensor

    @property
    def end(self) -> int:
        """The position after the last known state."""
        return self.start + len(self.states)

    def settle(self, count: int) -> None:
        """Settle the first `count` states in the cache."""
        self.slot.keep(self.start + count)
        self.start, self.states = self.start + count, self.states[count:]


def hidden_states_obstacle(pair: ModelPair) -> str | None:
    """Why a head cannot read this pair's target, in words; None if it can."""
    if isinstance(as_batch_model(pair.target), PlainModel):
        return f"{type(pair.target).__name__} returns no hidden states, which a head reads"
    return None


class HeadDrafter(SlotDrafter):
    """Drafts with the pair's draft head, several tokens in one call where they can be; see `BatchDrafter` for the methods.

    The head's cache has a position for each token except the last: the target's state there, with the next token. Positions
    that the head drafted itself are dropped after each step, and read again with the target's states.
    """

    title = "Draft head"
    about = "A small model that reads the target's own hidden states. Cheap and accurate: trained for this target."
    drafts_windows = True

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        self.head = self.head_of(pair)
        super().__init__(pair, vocab_size, device, self.head)
        self.layers = self.head.layers
        self.histories: dict[SequenceState, _History] = {}

    @staticmethod
    def head_of(pair: ModelPair) -> Any:
        """The head of a pair that has one."""
        return pair.head

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        return hidden_states_obstacle(pair) if isinstance(pair.head, DraftHead) else "this pair has no draft head"

    def admit(self, row: SequenceState) -> None:
        super().admit(row)
        nothing = torch.zeros(0, 0, dtype=self.head.dtype, device=self.head.device)
        self.histories[row] = _History(self.slots[row], 0, nothing)

    def release(self, row: SequenceState) -> None:
        super().release(row)
        self.histories.pop(row)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        own, other, known = self.histories[row], self.histories[source], len(row.token_ids) - 1
        own.slot.copy_from(other.slot)
        own.start, own.states = other.start, other.states[: max(0, known - other.start)]
        if own.start > known:  # the source is further; its state at this position is gone
            own.start = known
        own.slot.keep(own.start)

    def room(self, row: SequenceState) -> int:
        """See `BatchDrafter.room`; nothing can be drafted without a state of the target."""
        return row.room - 1 if len(self.histories[row].states) else 0

    def ready(self, row: SequenceState) -> bool:
        return len(self.histories[row].states) <= _MAX_QUERY

    def observe(self, rows: Sequence[SequenceState], starts: Sequence[int], features: Sequence[torch.Tensor]) -> None:
        for row, start, states in zip(rows, starts, features, strict=True):
            history = self.histories[row]
            if not history.start <= start <= history.end:
                known = f"those of positions {history.start} to {history.end}"
                raise ValueError(f"hidden states from position {start} on do not follow {known}")
            before = history.states[: start - history.start]
            history.states = torch.cat([before, states]) if len(before) else states

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        """See `BatchDrafter.prefill`; the last state is left for the window."""
        long = [row for row in rows if len(self.histories[row].states) > 1]
        if not long:
            return
        histories = [self.histories[row] for row in long]
        counts = [len(history.states) - 1 for history in histories]
        query, reading = self._begin(long, counts)
        reading.read(query)
        for history, count in zip(histories, counts, strict=True):
            history.settle(count)

    def _propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        query, reading = self._begin(rows, [len(self.histories[row].states) for row in rows])
        at_once = reading if drafts_windows(self.head) else None
        return Windows(rows, limits, self.vocab_size).draft(query, reading.view, reading.read, at_once)

    def propose_tree(self, row: SequenceState, shape: Sequence[int]) -> Tree:
        """Draft a tree with so many children of a node by depth. A node is read with the head's own state at its parent."""
        query, reading = self._begin([row], [len(self.histories[row].states)])
        logits = reading.read(query)
        states, found = {-1: reading.states[0, 0]}, TreeSlot(self.slots[row])

        def read(tree: Tree, nodes: list[int]) -> torch.Tensor:
            token_ids = on_device([[tree.token_ids[node] for node in nodes]], self.head.device)
            before = torch.stack([states[tree.parents[node]] for node in nodes])[None]
            logits, own = self.head.forward(token_ids, before, found.rows(tree, nodes), list(range(len(nodes))))
            states.update(zip(nodes, own, strict=True))
            return logits

        return grow(row, shape, self.vocab_size, logits, read)

    def commit(self, rows: Sequence[SequenceState], records: Sequence[StepRecord], features: torch.Tensor | None) -> None:
        assert features is not None
        for row, record, states in zip(rows, records, features, strict=True):
            if row.ended:  # it leaves, and may have kept less than was accepted
                continue
            history, kept = self.histories[row], record.outcome.num_accepted + 1
            if history.slot.num_tokens >= history.end:  # a window was drafted
                history.settle(len(history.states))
            self.observe([row], [len(row.token_ids) - 1 - kept], [states[:kept]])

    def rewind(self, rows: Sequence[SequenceState]) -> None:
        for row in rows:
            self.histories[row].settle(0)

    def _begin(self, rows: Sequence[SequenceState], counts: Sequence[int]) -> tuple[list[list[int]], "_Reading"]:
        """The next token at the first `counts` unsettled positions of each row, padded, and the head before it reads them with
        the states there; the cache is rolled back to its settled part."""
        histories, width = [self.histories[row] for row in rows], max(counts)
        token_ids = []
        for row, history, count in zip(rows, histories, counts, strict=True):
            history.settle(0)
            tokens = row.token_ids[history.start + 1 : history.start + 1 + count]
            token_ids.append(tokens + [0] * (width - count))
        states = pad_sequence(
            [history.states[:count] for history, count in zip(histories, counts, strict=True)], batch_first=True
        )
        return token_ids, _Reading(self.head, self.view(rows), states, [count - 1 for count in counts])


class MtpDrafter(HeadDrafter):
    """Drafts with the MTP layer of the target's own checkpoint."""

    title = "MTP layer"
    about = "The layer for the token after next that the model was trained with. No other drafter is needed where there is one."
    drafts_windows = False

    @staticmethod
    def head_of(pair: ModelPair) -> Any:
        return pair.mtp

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        if not pair.has_mtp:
            return "the target's checkpoint has no MTP layer"
        try:
            pair.mtp  # noqa: B018 - it is loaded
        except ValueError as error:
            return str(error)
        return None


class _Reading:
    """A head that reads tokens, each with the state before it: first the target's `states`, then the head's own. `last`: index
    of each row's last token in the query, before padding."""

    def __init__(self, head: DraftHead, view: Any, states: torch.Tensor, last: list[int]) -> None:
        self.head, self.view, self.states = head, view, states
        self._last, self._fuses = last, True
        self._before = states, last, True

    def read(self, query: Tokens) -> torch.Tensor:
        """The logits after each row's last token, shape `[batch_size, vocab_size]`."""
        ends = [length + at + 1 for length, at in zip(self.view.lengths, self._last, strict=True)]
        states = self.head.fuse(self.states) if self._fuses else self.states
        logits, own = self.head.forward(tokens_on(self.head.device, query), states, self.view, self._last)
        for row, end in zip(self.view.indices, ends, strict=True):
            self.view.cache.keep(row, end)  # without the padding
        self._follow(own[:, None])
        return logits

    def draft_window(
        self, query: Tokens, view: Any, k: int, vocab_size: int, race: Race | None, with_probs: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As `LlamaLanguageModel.draft_window`."""
        token_ids, probs, own = self.head.draft_window(
            query, self.states, view, self._last, k, vocab_size, race, with_probs, self._fuses
        )
        self._follow(own)
        return token_ids, probs

    def undo(self) -> None:
        """Undo the last call."""
        self.states, self._last, self._fuses = self._before

    def _follow(self, own: torch.Tensor) -> None:
        self._before = self.states, self._last, self._fuses
        self.states, self._last, self._fuses = own, [0] * len(own), False
