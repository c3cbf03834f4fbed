"""Drafts with a smaller model that has the same tokens, all rows in one batch (Leviathan et al. 2023, section 2).

A window is drafted in few calls of the model, without host round-trips between its tokens, or one token at a time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import Tokens, num_new, to_lists
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.distributions import batch_probabilities, batch_scores
from naive_speculate.sampling.random_source import Race, SeededRandom, num_noises, winner
from naive_speculate.speculate.draft.proposal import Proposal, SlotDrafter
from naive_speculate.speculate.rules import pick
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.tree import Tree, TreeSlot, grow
from naive_speculate.speculate.window import MAX_AUTO_WINDOW

_LONGEST = 16  # most tokens per call; longer windows take several calls
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


def drafts_windows(model: Any) -> bool:
    """Whether a model declares that it drafts several tokens per call.

    A wrapper that only forwards attributes does not: its `forward` may change the logits.
    """
    return hasattr(type(model), "drafts_windows") and bool(model.drafts_windows)


class Windows:
    """The windows of a batch while they are drafted: each row by its own parameters, history and random source."""

    def __init__(self, rows: Sequence[SequenceState], limits: Sequence[int], vocab_size: int) -> None:
        self._rows, self._limits, self._vocab_size = rows, limits, vocab_size
        self._pipelines = [row.pipeline for row in rows]
        self._histories = [row.output_token_ids if row.pipeline.needs_history else [] for row in rows]
        self._needs_probs = any(row.needs_probs for row in rows)
        self._draws = any(row.draws_drafts for row in rows)
        self._adaptive = any(row.window.adaptive for row in rows)
        self._token_ids: list[torch.Tensor] = []  # `[batch_size, num_tokens]` each
        self._probs: list[torch.Tensor] = []  # `[batch_size, num_tokens, vocab_size]` each
        self._num_drafted = 0
        self._ends: list[int | None] = [None] * len(rows)
        self._full = False

    @property
    def drawing(self) -> list[bool]:
        """Whether each row's window is open."""
        return [end is None for end in self._ends]

    def draft(self, query: Tokens, view: Any, read: Callable[[Tokens], torch.Tensor], model: Any = None) -> Proposal:
        """Draft until all windows have ended.

        Args:
            query: Tokens of each row that the model has not processed, `[batch_size, num_query_tokens]`.
            view: The rows' view of its cache.
            read: Gives the logits after a query, `[batch_size, vocab_size or more]`; the next query is the tokens drawn.
            model: Drafts several tokens per call with `draft_window`, where the rows allow it; None for never. Its `undo`, if
                any, undoes what a call changed besides the cache.
        """
        together = model is not None and self._can_call(model, query, view)
        while not self._full:
            lengths = view.lengths if together else []
            if together and (token_ids := self._call(model, query, view)) is not None:
                query = token_ids[:, -1:].tolist()
                continue
            if together:
                for index, length in zip(view.indices, lengths, strict=True):
                    view.cache.keep(index, length)
                getattr(model, "undo", lambda: None)()
                together = False
            query = self._draw(read(query))
        lengths = [min(end or self._num_drafted, limit) for end, limit in zip(self._ends, self._limits, strict=True)]
        k = max(lengths)  # tokens after the end of every window are not verified
        probs = torch.cat(self._probs, dim=1)[:, :k] if self._needs_probs else None
        return Proposal.of_model(self._rows, torch.cat(self._token_ids, dim=1)[:, :k], probs, lengths)

    def _can_call(self, model: Any, query: Tokens, view: Any) -> bool:
        """Whether all rows draw alike, with no more than temperature, word filter and a random source whose noise can be drawn
        in advance, and the model has the positions."""
        first, limit = self._rows[0], getattr(model, "max_positions", None)
        alike = all((row.greedy, row.draws_drafts) == (first.greedy, first.draws_drafts) for row in self._rows)
        if not alike or not all(row.pipeline.tempers_only for row in self._rows):
            return False
        if self._draws and not all(type(row.random) is SeededRandom and row.random.on_cpu for row in self._rows):
            return False
        longest = max(view.lengths) + len(query[0]) + max(2 * MAX_AUTO_WINDOW, *self._limits)
        return limit is None or longest <= limit

    def _call(self, model: Any, query: Tokens, view: Any) -> torch.Tensor | None:
        """Draft several tokens with one call. None, and no draw is taken, where they must be drawn one at a time: from what a
        word filter leaves, or where there is no distribution."""
        before, sources = self._num_drafted, [row.random for row in self._rows]
        # Not fewer at the end of a run, since every length has its own graph.
        wanted = [row.window.next_call() for row, drawing in zip(self._rows, self.drawing, strict=True) if drawing]
        k = min(_LONGEST, max(wanted))
        counts = [min(k, limit - before) if open_ else 0 for open_, limit in zip(self.drawing, self._limits, strict=True)]
        states = [source.state() for source in sources] if self._draws else []  # type: ignore[attr-defined]
        race = self._race(k, counts) if self._draws else None
        found = model.draft_window(query, view, k, self._vocab_size, race, self._needs_probs or self._adaptive)
        token_ids, probs = (None, None) if found is None else found
        if probs is not None and not self._draws and not self._rows[0].greedy:  # such a call computes them at temperature 1
            temperatures = torch.tensor([[[float(row.params.temperature)]] for row in self._rows], dtype=probs.dtype)
            probs = torch.softmax(probs.log() / temperatures, dim=-1)
        if probs is not None and bool(probs[..., 0].isnan().any()):
            token_ids = None
        if token_ids is not None and not self._is_allowed(token_ids, probs, race, counts):
            token_ids = None
        if token_ids is not None:
            self._take(token_ids, probs, pick(probs, token_ids) if self._adaptive and probs is not None else None)
        for source, state, count, end in zip(sources, states, counts, self._ends, strict=False):
            used = 0 if token_ids is None else count if end is None else max(0, end - before)
            if used < count:  # a row's later draws are those that it has alone
                source.restore(state)  # type: ignore[attr-defined]
                source.noise(used, self._vocab_size)  # type: ignore[attr-defined]
        return token_ids

    def _race(self, k: int, counts: Sequence[int]) -> Race:
        """Temperatures and noise of the next call, which draws so many tokens for each row."""
        noise = torch.ones(len(self._rows), k, num_noises(self._vocab_size))
        for index, (row, count) in enumerate(zip(self._rows, counts, strict=True)):
            if count:
                noise[index, :count] = row.random.noise(count, self._vocab_size)  # type: ignore[attr-defined]
        return torch.tensor([[float(row.params.temperature)] for row in self._rows]), noise

    def _is_allowed(
        self, token_ids: torch.Tensor, probs: torch.Tensor | None, race: Race | None, counts: Sequence[int]
    ) -> bool:
        """Remove tokens that the rows' word filters ban from the probabilities of a call; False if one of them was drafted."""
        for index, (row, count) in enumerate(zip(self._rows, counts, strict=True)):
            if row.pipeline.word_filter is None or not count:
                continue
            drafts = token_ids[index, :count].tolist()
            banned = row.pipeline.word_filter.banned(self._histories[index], drafts[:-1])
            for step, (token, tokens) in enumerate(zip(drafts, banned, strict=True)):
                if not len(tokens):
                    continue
                if token in tokens:
                    return False
                if probs is not None:
                    left = probs[index, step]
                    left[tokens] = 0
                    left /= left.sum()
                    if race is not None and winner(left, race[1][index, step]) != token:
                        return False
        return True

    def _draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Draw each row's next token from logits `[batch_size, vocab_size or more]`; returns int64 `[batch_size, 1]`."""
        logits = logits[:, None, : self._vocab_size]
        scores = batch_scores(self._pipelines, logits, self._histories)
        probs = batch_probabilities(self._pipelines, scores)[0] if self._needs_probs else None
        token_ids = scores.argmax(dim=-1)
        if self._draws and probs is not None:
            for index, (row, limit) in enumerate(zip(self._rows, self._limits, strict=True)):
                # A row whose window has ended must not draw, or its batch would change its later draws.
                if row.draws_drafts and self._ends[index] is None and self._num_drafted < limit:
                    token_ids[index, 0] = row.random.categorical(probs[index, 0])
        confidences = None
        if self._adaptive:  # without a softmax where the probabilities are not needed
            confidences = (
                (pick(scores, token_ids) - scores.logsumexp(dim=-1)).exp() if probs is None else pick(probs, token_ids)
            )
        self._take(token_ids, probs, confidences)
        return token_ids

    def _take(self, token_ids: torch.Tensor, probs: torch.Tensor | None, confidences: torch.Tensor | None) -> None:
        """Append tokens `[batch_size, num_tokens]` with the draft's probability of each, and find the windows' ends in them."""
        before = self._num_drafted
        self._num_drafted += token_ids.shape[1]
        self._token_ids.append(token_ids)
        if self._needs_probs and probs is not None:
            self._probs.append(probs)
        if token_ids.is_cuda and not self._adaptive and not any(pipeline.needs_history for pipeline in self._pipelines):
            # Reading the tokens would wait for the device; a window that passes a stop token is cut later.
            self._full = self._num_drafted >= max(self._limits)
            return
        tokens, shares = to_lists(token_ids, torch.ones_like(token_ids) if confidences is None else confidences)
        for index, (row, limit) in enumerate(zip(self._rows, self._limits, strict=True)):
            for number, (token, share) in enumerate(zip(tokens[index], shares[index], strict=True), start=before + 1):
                if self._ends[index] is not None:
                    break
                self._histories[index].append(token)
                if token in row.stop_token_ids or number >= limit or not row.window.should_continue(share):
                    self._ends[index] = number
        self._full = None not in self._ends
