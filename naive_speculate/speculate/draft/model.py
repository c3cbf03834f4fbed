"""Drafts with a smaller model that has the same tokens, all rows in one batch (Leviathan et al. 2023, section 2)."""

from collections.abc import Sequence

import torch

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import Tokens, num_new
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.proposal import Proposal, SlotDrafter
from naive_speculate.speculate.draft.windows import Windows, drafts_windows
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.tree import Tree, TreeSlot, grow

_MAX_QUERY = 2
"""Tokens that a window may begin with: after a fully accepted window, the draft model has not processed its last token."""


class ModelDrafter(SlotDrafter):
    """Drafts token by token with the pair's draft model; see `BatchDrafter` for the methods. `slots`: each row's index in the
    draft model's cache."""

    title = "Draft model"
    about = "A smaller model drafts. Suits every kind of text that it was trained on."

    drafts_windows = True

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device, pair.drafting)
        self._trees: dict[SequenceState, TreeSlot] = {}

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        return "this pair has no draft model; use 'prompt_lookup'" if pair.draft is None else None

    def release(self, row: SequenceState) -> None:
        self._trees.pop(row, None)
        super().release(row)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        if self.slots[source].num_tokens:
            self.slots[row].copy_from(self.slots[source])
            self.slots[row].keep(len(self.history(row)) - 1)

    def room(self, row: SequenceState) -> int:
        """See `BatchDrafter.room`; a window ends where the draft model's positions do."""
        positions = self.pool.model.max_positions
        return row.room - 1 if positions is None else min(row.room - 1, positions - len(self.history(row)))

    def history(self, row: SequenceState) -> list[int]:
        """The tokens that the draft model reads of a row: its committed ones."""
        return row.token_ids

    def ready(self, row: SequenceState) -> bool:
        return self._missing(row) <= _MAX_QUERY

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        missing = [row for row in rows if not self.ready(row)]
        self.pool.feed([self.slots[row] for row in missing], [self.history(row) for row in missing])

    def _propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        first, view, windows = self._first_query(rows), self.view(rows), Windows(rows, limits, self.vocab_size)

        def read(query: Tokens) -> torch.Tensor:
            if isinstance(query, torch.Tensor):
                query = self._in_draft_tokens(query)
            lengths = [num_new(query) if drawing else 0 for drawing in windows.drawing]
            return self._in_target_tokens(self.pool.forward(view, query, num_logits=1, lengths=lengths)[:, -1])

        at_once = self.drafts_windows and drafts_windows(self.pool.model)
        return windows.draft(first, view, read, self.pool.model if at_once else None)

    def propose_tree(self, row: SequenceState, shape: Sequence[int]) -> Tree:
        """Draft a tree with so many children of a node by depth."""
        query, slot = self._first_query([row]), self.slots[row]
        logits = self.pool.forward(self.view([row]), query, num_logits=1)[:, -1]
        found = self._trees[row] = TreeSlot(slot)

        def read(tree: Tree, nodes: list[int]) -> torch.Tensor:
            return self.pool.forward(found.rows(tree, nodes), [[tree.token_ids[node] for node in nodes]])[0]

        return grow(row, shape, self.vocab_size, logits, read)

    def keep_path(self, row: SequenceState, path: Sequence[int]) -> None:
        self._trees.pop(row).keep(path)

    def commit(self, rows: Sequence[SequenceState], records: Sequence[StepRecord], features: torch.Tensor | None) -> None:
        self.rewind(rows)

    def rewind(self, rows: Sequence[SequenceState]) -> None:
        for row in rows:
            self.slots[row].keep(len(self.history(row)) - 1)

    def _in_target_tokens(self, logits: torch.Tensor) -> torch.Tensor:
        return logits

    def _in_draft_tokens(self, token_ids: torch.Tensor) -> torch.Tensor:
        return token_ids

    def _missing(self, row: SequenceState) -> int:
        return len(self.history(row)) - self.slots[row].num_tokens

    def _first_query(self, rows: Sequence[SequenceState]) -> list[list[int]]:
        """The tokens that the draft model has not processed; as many for every row, so that all end in the same column."""
        missing = [self._missing(row) for row in rows]
        width = max((count for count in missing if count <= _MAX_QUERY), default=1)
        if any(count > _MAX_QUERY or len(self.history(row)) < width for count, row in zip(missing, rows, strict=True)):
            width = 1
        late = [row for row, count in zip(rows, missing, strict=True) if count > width]
        self.pool.catch_up([self.slots[row] for row in late], [self.history(row) for row in late])
        for row in rows:
            self.slots[row].keep(len(self.history(row)) - width)  # a row that is further ahead processes one token again
        return [self.history(row)[-width:] for row in rows]
