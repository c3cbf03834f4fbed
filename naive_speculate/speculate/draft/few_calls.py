"""Draft windows that a draft model or head makes in few calls, several tokens each, where the host need not look in between."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from naive_speculate.sampling.arrays import Array, as_tensor
from naive_speculate.sampling.random_source import SeededRandom, num_noises, winner
from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.window import MAX_AUTO_WINDOW

_LONGEST = 16
"""Tokens a call at most; longer windows take several."""


def draft_in_few_calls(
    model: Any, query: list[list[int]], places: Any, rows: Sequence[SequenceState], limits: Sequence[int], vocab_size: int
) -> Proposal | None:
    """The rows' windows; None, and nothing has changed, where they must be drawn token by token.

    Args:
        model: What drafts; one that can has `draft_window`.
        query: What it has not seen of the rows, `[batch_size][num_query_tokens]`.
        places: The rows' places in its cache.
        rows, limits: As for `BatchDrafter.propose`.
        vocab_size: How many tokens may be drafted.
    """
    draft_window = getattr(type(model), "draft_window", None)  # not by way of a wrapper, which may change the logits
    if draft_window is None or not _alike(rows):
        return None
    longest = max(places.lengths) + len(query[0]) + max(2 * MAX_AUTO_WINDOW, *limits)
    if model.max_positions is not None and longest > model.max_positions:
        return None
    adaptive = any(row.window.adaptive for row in rows)
    before = places.lengths
    drawing = _Drawing(rows, limits, vocab_size)
    parts: list[tuple[Array, Array | None]] = []
    while drawing.goes_on:
        if parts:
            query = parts[-1][0][:, -1:].tolist()
        k = drawing.next_call()
        with_probs = adaptive or any(row.needs_probs for row in rows)
        race = drawing.race()
        found = draft_window(model, query, places, k, vocab_size, race, with_probs)
        lost = found is None or (found[1] is not None and bool(np.isnan(found[1][..., 0]).any()))
        banned = found is not None and not lost and not drawing.filter(found[0], found[1], race)
        if lost or banned:
            if banned or not parts:  # let the host draw from what has no distribution, or what is left of it
                for place, length in zip(places.indices, before, strict=True):
                    places.cache.keep(place, length)
            if banned:
                drawing.undo()
                return None
            drawing.give_up()
            break
        parts.append(found)
        drawing.take(*found)
    if not parts:
        return None
    probs = [part for _, part in parts if part is not None] if any(row.needs_probs for row in rows) else []
    lengths = drawing.settle()
    k = max(lengths)  # nothing behind all windows' ends is verified
    drafts = _joined([drafts for drafts, _ in parts])[:, :k]
    known = as_tensor(_joined(probs)[:, :k]) if probs else None
    return Proposal(as_tensor(drafts), known, lengths)


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _alike(rows: Sequence[SequenceState]) -> bool:
    """Whether all draw the same way, and none by more than its temperature, word filter and dice that can be cast ahead."""
    greedy = rows[0].greedy
    if any(row.greedy != greedy or not row.pipeline.tempers_only for row in rows):
        return False
    return greedy or all(type(row.random) is SeededRandom and row.random.on_cpu for row in rows)


class _Drawing:
    """Where the rows' windows end, and the noise that their draws take."""

    def __init__(self, rows: Sequence[SequenceState], limits: Sequence[int], vocab_size: int) -> None:
        self._rows, self._limits, self._vocab_size = rows, limits, vocab_size
        self._k = 0
        self._drafted = 0
        self._ends: list[int | None] = [None] * len(rows)
        self._drafts: list[list[int]] = [[] for _ in rows]
        self._greedy = rows[0].greedy
        self._filtered = any(row.pipeline.word_filter is not None for row in rows)
        self._drawn = [0] * len(rows)
        self._states = [] if self._greedy else [row.random.state() for row in rows]  # type: ignore[attr-defined]

    @property
    def goes_on(self) -> bool:
        """Whether any window does."""
        return None in self._ends

    def next_call(self) -> int:
        """How many tokens the next call makes: not fewer at the end of a run, for every length has a graph of its own."""
        wanted = [row.window.next_call() for row, end in zip(self._rows, self._ends, strict=True) if end is None]
        self._k = min(_LONGEST, max(wanted))
        return self._k

    def race(self) -> tuple[Array, Array] | None:
        """Temperatures and noise of the next call; None where nothing is drawn."""
        if self._greedy:
            return None
        noise = np.ones((len(self._rows), self._k, num_noises(self._vocab_size)), np.float32)
        for place, (row, limit) in enumerate(zip(self._rows, self._limits, strict=True)):
            if self._ends[place] is None:
                count = min(self._k, limit - self._drafted)
                self._drawn[place] += count
                noise[place, :count] = row.random.noise(count, self._vocab_size)  # type: ignore[attr-defined]
        return np.array([[row.params.temperature] for row in self._rows], np.float32), noise

    def filter(self, token_ids: Array, probs: Array | None, race: tuple[Array, Array] | None) -> bool:
        """Take what the rows' word filters ban out of what a call returned.

        Args:
            token_ids, probs: What it returned; the probabilities are changed.
            race: What it drew with.

        Returns:
            bool: Whether the tokens are those that are drawn from what is left, too.
        """
        if not self._filtered:
            return True
        for place, (row, limit, drafts) in enumerate(zip(self._rows, self._limits, token_ids.tolist(), strict=True)):
            if row.pipeline.word_filter is None or self._ends[place] is not None:
                continue
            drafts = drafts[: limit - self._drafted]
            banned = row.pipeline.word_filter.banned(row.output_token_ids + self._drafts[place], drafts[:-1])
            for step, (token, tokens) in enumerate(zip(drafts, banned, strict=True)):
                if not len(tokens):
                    continue
                if token in tokens:
                    return False
                if probs is not None:
                    left = probs[place, step]
                    left[tokens] = 0
                    left /= left.sum()
                    if race is not None and winner(left, race[1][place, step]) != token:
                        return False
        return True

    def take(self, token_ids: Array, probs: Array | None) -> None:
        """Look for windows' ends in what a call has drafted."""
        numbers = probs if any(row.window.adaptive for row in self._rows) else None
        for place, (row, limit, drafts) in enumerate(zip(self._rows, self._limits, token_ids.tolist(), strict=True)):
            for step, token in enumerate(drafts):
                if self._ends[place] is not None:
                    break
                count = self._drafted + step + 1
                confidence = 1.0 if numbers is None else float(numbers[place, step, token])
                self._drafts[place].append(token)
                if token in row.stop_token_ids or count >= limit or not row.window.should_continue(confidence):
                    self._ends[place] = count
        self._drafted += self._k

    def give_up(self) -> None:
        """No more is drafted: windows that went on end where the last call did."""
        self._ends = [self._drafted if end is None else end for end in self._ends]
        self.settle()

    def undo(self) -> None:
        """Nothing was drawn."""
        for row in self._rows:
            row.window.restart()
        self._ends = [0] * len(self._rows)
        self.settle()

    def settle(self) -> list[int]:
        """The windows' lengths. What is not in them was not drawn: a row's later draws are those that it has alone."""
        lengths = [end or 0 for end in self._ends]
        for row, state, drawn, length in zip(self._rows, self._states, self._drawn, lengths, strict=not self._greedy):
            if length < drawn:
                row.random.restore(state)  # type: ignore[attr-defined]
                row.random.noise(length, self._vocab_size)  # type: ignore[attr-defined]
        return lengths
