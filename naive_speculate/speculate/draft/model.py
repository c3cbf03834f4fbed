"""Drafts with a smaller model that has the same tokens, all rows in one batch (Leviathan et al.
2023, section 2)."""

from collections.abc import Sequence
from typing import Any

import torch

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import on_device, to_lists
from naive_speculate.infer.ragged_cache import TreeRows
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.pipeline import batch_probabilities, batch_scores
from naive_speculate.speculate.draft.proposal import Proposal, SlotDrafter
from naive_speculate.speculate.rules import best, pick
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.tree import MAX_NODES, Tree, grow

_MAX_QUERY, _MAX_TREE_QUERY = 2, MAX_NODES + 1
"""The most tokens that a window or a tree may begin with: those that the draft model has not
processed after a fully accepted one. A row that lacks more is prefilled. All rows of a batch
read as many, but a row that drafts trees is alone."""


class ModelDrafter(SlotDrafter):
    """Drafts token by token with the pair's draft model; see `BatchDrafter` for the methods.
    `slots`: each row's index in the draft model's cache."""

    title = "Draft model"
    about = "A smaller model drafts. Suits every kind of text that it was trained on."
    drafts_trees = True

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        return "this pair has no draft model; use 'prompt_lookup'" if pair.draft is None else None

    def room(self, row: SequenceState) -> int:
        """See `BatchDrafter.room`; a window ends where the draft model's positions do."""
        positions = self.pool.model.max_positions
        return (
            row.room - 1
            if positions is None
            else min(row.room - 1, positions - len(self.history(row)))
        )

    def ready(self, row: SequenceState) -> bool:
        return self._missing(row) <= (_MAX_QUERY if row.tree is None else _MAX_TREE_QUERY)

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        missing = [row for row in rows if not self.ready(row)]
        self.pool.feed([self.slots[row] for row in missing], [self.history(row) for row in missing])

    def _propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        query = on_device(self._first_query(rows), self.pool.model.device)
        view = self.view(rows)
        window = DrawnWindow(rows, limits, self.vocab_size)
        while True:
            lengths = [query.shape[1] if drawing else 0 for drawing in window.drawing]
            logits, _ = self.pool.compute(view, query, lengths=lengths, num_logits=1)
            token_ids = window.draw(self._in_target_tokens(logits[:, -1]))
            if window.full:
                return window.proposal()
            query = self._in_draft_tokens(token_ids)[:, None]

    def propose_tree(self, row: SequenceState, shape: Sequence[int]) -> Tree:
        """Draft a tree with so many children of a node by depth."""
        slot: Any = self.slots[row]
        logits = self.pool.compute(self.view([row]), self._first_query([row]), num_logits=1)[0][
            :, -1
        ]
        trunk = slot.num_tokens

        def read(tree: Tree, nodes: list[int], parents: list[int]) -> torch.Tensor:
            query = [[tree.token_ids[node] for node in nodes]]
            return self.pool.compute(TreeRows(slot.cache, slot.row, trunk, parents), query)[0][0]

        tree = grow(row, shape, self.vocab_size, logits, read)
        slot.keep(trunk)  # the accepted nodes are read again with the next step's first query
        return tree

    def commit(
        self,
        rows: Sequence[SequenceState],
        records: Sequence[StepRecord],
        features: torch.Tensor | None,
    ) -> None:
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
        """The tokens that the draft model has not processed; as many for every row, so that all
        end in the same column."""
        histories, slots = [self.history(row) for row in rows], [self.slots[row] for row in rows]
        width = max(map(self._missing, rows))
        if width > min(map(len, histories)) or not all(map(self.ready, rows)):
            while self.pool.feed(slots, histories):
                pass
            width = 1
        for slot, history in zip(slots, histories, strict=True):
            slot.keep(len(history) - width)  # a row that is further ahead processes tokens again
        return [history[-width:] for history in histories]


class DrawnWindow:
    """Draft windows while they are drawn: each row by its own parameters, history and random
    source."""

    def __init__(
        self, rows: Sequence[SequenceState], limits: Sequence[int], vocab_size: int
    ) -> None:
        self.full = False
        self._rows, self._limits, self._vocab_size = rows, limits, vocab_size
        self._pipelines = [row.pipeline for row in rows]
        self._needs_history = any(pipeline.needs_history for pipeline in self._pipelines)
        self._histories = [
            row.output_token_ids if row.pipeline.needs_history else [] for row in rows
        ]
        self._needs_probs = any(row.needs_probs for row in rows)
        self._takes_best = not any(row.draws_drafts for row in rows)
        self._adaptive = any(row.window.adaptive for row in rows)
        self._token_ids: list[torch.Tensor] = []
        self._probs: list[torch.Tensor] = []
        self._ends: list[int | None] = [None] * len(rows)

    @property
    def drawing(self) -> list[bool]:
        """Whether each row's window is open."""
        return [end is None for end in self._ends]

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Draw each row's next draft; logits `[batch_size, vocab_size or more]`, returns int64
        `[batch_size]`."""
        logits = logits[:, : self._vocab_size]
        scores = batch_scores(self._pipelines, logits[:, None], self._histories)[:, 0]
        if self._needs_probs:
            self._probs.append(batch_probabilities(self._pipelines, scores[:, None])[0][:, 0])
        if self._takes_best:
            token_ids = best(scores)
        else:
            token_ids = torch.stack(
                [self._draw_row(index, scores[index]) for index in range(len(self._rows))]
            )
        self._token_ids.append(token_ids)
        self._find_ends(token_ids, scores)
        return token_ids

    def proposal(self) -> Proposal:
        """The windows, once all have ended."""
        width = len(self._token_ids)
        ends = [width if end is None else end for end in self._ends]
        lengths = [min(end, limit) for end, limit in zip(ends, self._limits, strict=True)]
        probs = torch.stack(self._probs, dim=1) if self._needs_probs else None
        return Proposal.of_model(self._rows, torch.stack(self._token_ids, dim=1), probs, lengths)

    def _draw_row(self, index: int, scores: torch.Tensor) -> torch.Tensor:
        """One row's token. A row whose window has ended must not draw, or its batch would change
        its later draws."""
        if (
            not self._rows[index].draws_drafts
            or self._ends[index] is not None
            or len(self._probs) > self._limits[index]
        ):
            return scores.argmax()
        return self._rows[index].random.categorical(self._probs[-1][index])

    def _find_ends(self, token_ids: torch.Tensor, scores: torch.Tensor) -> None:
        drafted = len(self._token_ids)
        if token_ids.is_cuda and not self._adaptive and not self._needs_history:
            # Reading the tokens would wait for the device; a window that passes a stop token is cut
            # later.
            self.full = drafted >= max(self._limits)
            return
        wanted = [token_ids]
        if self._adaptive:  # the draft's probability of its tokens
            wanted.append(
                pick(self._probs[-1] if self._needs_probs else scores.softmax(dim=-1), token_ids)
            )
        tokens, confidences = (*to_lists(*wanted), [1.0] * len(token_ids))[:2]
        for index, (token, confidence) in enumerate(zip(tokens, confidences, strict=True)):
            row = self._rows[index]
            if row.pipeline.needs_history:
                self._histories[index].append(token)
            if self._ends[index] is None:
                ends = token in row.stop_token_ids or drafted >= self._limits[index]
                if ends or not row.window.should_continue(confidence):
                    self._ends[index] = drafted
        self.full = all(end is not None for end in self._ends)
