"""Drafts with a smaller model that has the same tokens, all rows in one batch (Leviathan et al.
2023, section 2)."""

from collections.abc import Sequence
from typing import Any

import torch

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import on_device, to_lists
from naive_speculate.infer.ragged_cache import TreeRows
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.pipeline import (
    LogitsPipeline,
    batch_probabilities,
    batch_scores,
)
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
    phrase = "the draft model"
    role = "draft"
    about = "A smaller model drafts. Suits every kind of text that it was trained on."
    drafts_trees = True

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        self._device = self.pool.model.device
        self.texts: dict[SequenceState, list[int]] = {}

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        return "this pair has no draft model; use 'prompt_lookup'" if pair.draft is None else None

    def admit(self, row: SequenceState) -> None:
        super().admit(row)
        self.texts[row] = row.token_ids

    def release(self, row: SequenceState) -> None:
        super().release(row)
        self.texts.pop(row, None)

    def history(self, row: SequenceState) -> list[int]:
        return self.texts[row]

    def max_window(self, row: SequenceState) -> int:
        """See `BatchDrafter.max_window`; a window ends where the draft model's positions do."""
        longest = row.max_length - len(row.token_ids) - 1
        positions = self.pool.model.max_positions
        return longest if positions is None else min(longest, positions - len(self.texts[row]))

    def ready(self, row: SequenceState) -> bool:
        slot = self.slots[row]
        missing = len(self.texts[row]) - slot.cache.lengths[slot.row]
        return missing <= (_MAX_QUERY if row.tree is None else _MAX_TREE_QUERY)

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        missing = [row for row in rows if not self.ready(row)]
        self.pool.feed([self.slots[row] for row in missing], [self.texts[row] for row in missing])

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        """See `BatchDrafter.propose`."""
        return self._propose(rows, limits) if len(rows) == 1 else super().propose(rows, limits)

    def _propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        first = self._first_query(rows)
        view = self.slots[rows[0]].cache.rows([self.slots[row].row for row in rows])
        query = on_device(first, self._device)
        window = DrawnWindow(rows, limits, self.vocab_size)
        while True:
            count, drawing = query.shape[1], window.drawing
            lengths = None if all(drawing) else [count if is_open else 0 for is_open in drawing]
            logits = self.pool.forward(query, view, num_logits=1, lengths=lengths)
            logits = logits[:, -1]
            token_ids = window.add(self._in_target_tokens(logits) if self.translates else logits)
            if window.full:
                return window.proposal()
            query = self._in_draft_tokens(token_ids) if self.translates else token_ids
            query = query[:, None]

    def propose_tree(self, row: SequenceState, shape: Sequence[int]) -> Tree:
        """Draft a tree with so many children of a node by depth; without nodes where they could
        exceed the draft model's positions."""
        positions = self.pool.model.max_positions
        if positions is not None and len(self.texts[row]) + MAX_NODES > positions:
            return Tree()
        slot: Any = self.slots[row]
        query = on_device(self._first_query([row]), self._device)
        logits = self.pool.forward(query, self.view([row]), num_logits=1)[:, -1]
        trunk = slot.num_tokens

        def read(tree: Tree, nodes: list[int], parents: list[int]) -> torch.Tensor:
            tokens = on_device([[tree.token_ids[node] for node in nodes]], query.device)
            view = TreeRows(slot.cache, slot.row, trunk, parents)
            next_logits: torch.Tensor = self.pool.forward(tokens, view)[0]
            return next_logits

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
            slot = self.slots[row]
            slot.cache.keep(slot.row, len(self.texts[row]) - 1)

    def _in_target_tokens(self, logits: torch.Tensor) -> torch.Tensor:
        return logits

    def _in_draft_tokens(self, token_ids: torch.Tensor) -> torch.Tensor:
        return token_ids

    def _first_query(self, rows: Sequence[SequenceState]) -> list[list[int]]:
        """The tokens that the draft model has not processed; as many for every row, so that all
        end in the same column."""
        slots, texts = [self.slots[row] for row in rows], [self.texts[row] for row in rows]
        width, most = 0, _MAX_QUERY if rows[0].tree is None else _MAX_TREE_QUERY
        for slot, text in zip(slots, texts, strict=True):
            width, most = max(width, len(text) - slot.cache.lengths[slot.row]), min(most, len(text))
        if width > most:
            while self.pool.feed(slots, texts):
                pass
            width = 1
        if len(rows) > 1:  # a row that is further ahead processes tokens again
            for slot, text in zip(slots, texts, strict=True):
                slot.keep(len(text) - width)
        return [text[-width:] for text in texts]


class DrawnWindow:
    """Draft windows while they are drawn: each row by its own parameters, history and random
    source."""

    def __init__(
        self, rows: Sequence[SequenceState], limits: Sequence[int], vocab_size: int
    ) -> None:
        self.full = False
        self.drawing = [True] * len(rows)  # whether each row's window is open
        self._rows, self._limits, self._vocab_size = rows, limits, vocab_size
        self._pipelines, self._histories = list[LogitsPipeline](), list[list[int]]()
        self._needs_history = self._needs_probs = self._adaptive = False
        self._draws = self._takes_argmax = False
        for row in rows:
            history = row.pipeline.needs_history
            self._pipelines.append(row.pipeline)
            self._histories.append(row.output_token_ids if history else [])
            self._needs_history |= history
            self._needs_probs |= row.needs_probs
            self._adaptive |= row.window.adaptive
            self._draws |= row.draws_drafts
            self._takes_argmax |= row.draft_sampling == "argmax"
        self._token_ids: list[torch.Tensor] = []
        self._probs: list[torch.Tensor] = []
        self._lengths = [0] * len(rows)

    def add(self, logits: torch.Tensor) -> torch.Tensor:
        """Draw each row's next draft; logits `[batch_size, vocab_size or more]`, returns int64
        `[batch_size]`."""
        logits = logits[:, None, : self._vocab_size]
        scores = batch_scores(self._pipelines, logits, self._histories)
        if self._needs_probs:
            self._probs.append(batch_probabilities(self._pipelines, scores)[0][:, 0])
        scores = scores[:, 0]
        if self._draws:
            token_ids = torch.stack(
                [self._draw_row(index, scores[index]) for index in range(len(self._rows))]
            )
        else:
            token_ids = best(scores)
        self._token_ids.append(token_ids)
        if token_ids.is_cuda and not self._adaptive and not self._needs_history:
            # Reading the tokens would wait for the device; a window that passes a stop token is cut
            # later.
            self._lengths = [len(self._token_ids)] * len(self._rows)
            self.full = len(self._token_ids) >= max(self._limits)
            return token_ids
        confidences = [1.0] * len(self._rows)
        if self._adaptive:  # the draft's probability of its tokens
            table = self._probs[-1] if self._needs_probs else scores.softmax(dim=-1)
            tokens, confidences = to_lists(token_ids, pick(table, token_ids))
        else:
            tokens = token_ids.tolist()
        for index, (row, token) in enumerate(zip(self._rows, tokens, strict=True)):
            if row.pipeline.needs_history:
                self._histories[index].append(token)
            if self.drawing[index]:
                self._lengths[index] = drafted = len(self._token_ids)
                ends = token in row.stop_token_ids or drafted >= self._limits[index]
                self.drawing[index] = not ends and (
                    row.window.fixed or row.window.should_continue(confidences[index])
                )
        self.full = not any(self.drawing)
        return token_ids

    def proposal(self) -> Proposal:
        """The windows, once all have ended."""
        lengths = list(map(min, self._lengths, self._limits))
        token_ids = torch.stack(self._token_ids, dim=1)
        probs = torch.stack(self._probs, dim=1) if self._needs_probs else None
        if probs is None or not self._takes_argmax:
            return Proposal(token_ids, probs, lengths)
        return Proposal.of_model(self._rows, token_ids, probs, lengths)

    def _draw_row(self, index: int, scores: torch.Tensor) -> torch.Tensor:
        """One row's token. A row whose window has ended must not draw, or its batch would change
        its later draws."""
        row = self._rows[index]
        may_draw = self.drawing[index] and len(self._probs) <= self._limits[index]
        if not row.draws_drafts or not may_draw:
            return scores.argmax()
        return row.draft_random.categorical(self._probs[-1][index])
