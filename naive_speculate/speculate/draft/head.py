"""Drafts with a head that reads the target's own hidden states (as EAGLE-3, Li et al. 2025,
arXiv 2503.01840)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import on_device
from naive_speculate.infer.plain import PlainModel, as_batch_model
from naive_speculate.infer.ragged_cache import TreeRows
from naive_speculate.infer.slots import Slot
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.model import DrawnWindow
from naive_speculate.speculate.draft.proposal import Proposal, SlotDrafter
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.tree import Tree, grow

# the most hidden states that a window may begin with: those of the longest window, fully accepted
_MAX_QUERY = 65


@dataclass
class _History:
    """A row's history: the head's cache, and the target's states that are not settled there.

    A window is drafted from the last state, so there is always one once the target has processed
    a token. While a window is drafted, the cache runs ahead.
    """

    slot: Slot  # the row's slot in the head's cache
    start: int  # how many positions of the cache are settled; the position of the first of `states`
    # the target's hidden states from there on, concatenated by layer, shape `[num_states,
    # len(layers) * t]`
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
    """Drafts with the pair's draft head; see `BatchDrafter` for the methods.

    The head's cache has a position for each token except the last: the target's state there,
    with the next token. Positions that the head drafted itself are dropped before the next
    window, and read again with the target's states. So nothing has to be rolled back after a
    failed step.
    """

    title = "Draft head"
    phrase = "the draft head"
    role = "head"
    about = (
        "A small model that reads the target's own hidden states. Cheap and accurate: trained for"
        " this target."
    )
    drafts_trees = True
    _num_open = 1  # how many states at the end of the text a window reads again, at least

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        self.histories: dict[SequenceState, _History] = {}

    @staticmethod
    def head_of(pair: ModelPair) -> Any:
        return pair.head

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        return (
            hidden_states_obstacle(pair)
            if pair.head is not None and pair.head.role == "head"
            else "this pair has no draft head"
        )

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

    def max_window(self, row: SequenceState) -> int:
        """See `BatchDrafter.max_window`; nothing can be drafted without a state of the target."""
        return row.num_remaining - 1 if len(self.histories[row].states) else 0

    def ready(self, row: SequenceState) -> bool:
        return len(self.histories[row].states) <= _MAX_QUERY

    def observe(
        self, rows: Sequence[SequenceState], starts: Sequence[int], features: Sequence[torch.Tensor]
    ) -> None:
        for row, start, states in zip(rows, starts, features, strict=True):
            history = self.histories[row]
            if not history.start <= start <= history.end:
                raise ValueError(
                    f"hidden states from position {start} on do not follow those of positions"
                    f" {history.start} to {history.end}"
                )
            before = history.states[: start - history.start]
            history.states = torch.cat([before, states]) if len(before) else states

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        """See `BatchDrafter.prefill`; the last state is left for the window."""
        counts = {row: len(self.histories[row].states) - self._num_open for row in rows}
        counts = {row: count for row, count in counts.items() if count > 0}
        if counts:
            self._fill(list(counts), list(counts.values()))
        for row, count in counts.items():
            self.histories[row].settle(count)

    def _propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        view, head, window = (
            self.view(rows),
            self.head,
            DrawnWindow(rows, limits, self.vocab_size),
        )
        logits, own = self._read(rows, [len(self.histories[row].states) for row in rows])
        while True:
            token_ids = window.add(logits)
            if window.full:
                return window.proposal()
            logits, own = head.forward(token_ids[:, None], own[:, None], view, [0] * len(rows))

    def propose_tree(self, row: SequenceState, shape: Sequence[int]) -> Tree:
        """Draft a tree with so many children of a node by depth. A node is read with the head's
        own state at its parent."""
        logits, own = self._read([row], [len(self.histories[row].states)])
        slot: Any = self.slots[row]
        states, trunk = {-1: own[0]}, slot.num_tokens

        def read(tree: Tree, nodes: list[int], parents: list[int]) -> torch.Tensor:
            token_ids = on_device([[tree.token_ids[node] for node in nodes]], self.head.device)
            before = torch.stack([states[tree.parents[node]] for node in nodes])[None]
            view = TreeRows(slot.cache, slot.row, trunk, parents)
            logits, own = self.head.forward(token_ids, before, view, list(range(len(nodes))))
            states.update(zip(nodes, own, strict=True))
            return logits

        return grow(row, shape, self.vocab_size, logits, read)

    def commit(
        self,
        rows: Sequence[SequenceState],
        records: Sequence[StepRecord],
        features: torch.Tensor | None,
    ) -> None:
        assert features is not None
        for row, record, states in zip(rows, records, features, strict=True):
            if row.ended:  # it leaves, and may have kept less than was accepted
                continue
            history, kept = self.histories[row], record.outcome.num_accepted + 1
            if history.slot.num_tokens >= history.end:  # a window was drafted
                history.settle(max(0, len(history.states) - self._num_open + 1))
            self.observe([row], [len(row.token_ids) - 1 - kept], [states[:kept]])

    def _fill(self, rows: Sequence[SequenceState], counts: Sequence[int]) -> None:
        self._read(rows, counts)

    def _read(
        self, rows: Sequence[SequenceState], counts: Sequence[int], num_masks: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Let the head read the next token and the state at the first `counts` unsettled
        positions of each row, after the settled part of its cache; returns logits and its own
        states after each row's last one, then, row by row again, after each of `num_masks` masks
        of a `ParallelHead`."""
        histories, width = [self.histories[row] for row in rows], max(counts) + num_masks
        masks = [self.head.mask_token_id] * num_masks if num_masks else []
        token_ids = []
        for row, history, count in zip(rows, histories, counts, strict=True):
            history.settle(0)
            tokens = row.token_ids[history.start + 1 : history.start + 1 + count]
            token_ids.append(tokens + masks + [0] * (width - count - num_masks))
        states = [history.states[:count] for history, count in zip(histories, counts, strict=True)]
        if masks:
            mask = self.head.mask_state.expand(num_masks, -1)
            states = [torch.cat([read.to(mask), mask]) for read in states]
        query, padded = (
            on_device(token_ids, self.head.device),
            pad_sequence(states, batch_first=True),
        )
        last = [count - 1 + index for index in range(num_masks + 1) for count in counts]
        view = self.view(rows)
        result: tuple[torch.Tensor, torch.Tensor] = self.head.forward(
            query, padded, view, last, of_target=True
        )
        for history, count in zip(histories, counts, strict=True):
            history.slot.keep(history.start + count)  # without the padding
        return result
