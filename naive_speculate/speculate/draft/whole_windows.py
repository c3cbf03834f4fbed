"""Drafts several tokens per model call, without host round-trips between them."""

from collections.abc import Sequence
from typing import Any

import torch

from naive_speculate.sampling.random_source import Race, SeededRandom, num_noises, winner
from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.rules import pick
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.window import MAX_AUTO_WINDOW

_LONGEST = 16  # most tokens per call; longer windows take several calls


def draft_whole_windows(
    model: Any, query: list[list[int]], view: Any, rows: Sequence[SequenceState], limits: Sequence[int], vocab_size: int
) -> Proposal | None:
    """Draft the rows' windows, several tokens per call of the model.

    Args:
        model: Drafts; it declares `drafts_windows` where it can.
        query: Tokens of each row that it has not processed, `[batch_size][num_query_tokens]`.
        view: The rows' view of its cache.
        rows, limits: As for `BatchDrafter.propose`.
        vocab_size: How many tokens may be drafted.

    Returns:
        Proposal: None, and nothing has changed, where the windows must be drawn token by token.
    """
    if not drafts_windows(model) or not _alike(rows):
        return None
    longest = max(view.lengths) + len(query[0]) + max(2 * MAX_AUTO_WINDOW, *limits)
    if model.max_positions is not None and longest > model.max_positions:
        return None
    before = view.lengths
    needs_probs = any(row.needs_probs for row in rows)
    with_probs = needs_probs or any(row.window.adaptive for row in rows)
    drawing = _Drawing(rows, limits, vocab_size)
    drafts: list[torch.Tensor] = []
    probs: list[torch.Tensor] = []
    while drawing.goes_on:
        if drafts:
            query = drafts[-1][:, -1:].tolist()
        k, race = drawing.next_call(), drawing.race()
        found = drawing.tempered(model.draft_window(query, view, k, vocab_size, race, with_probs))
        lost = found is None or (found[1] is not None and bool(found[1][..., 0].isnan().any()))
        banned = found is not None and not lost and not drawing.filter(found[0], found[1], race)
        if lost or banned:
            if banned or not drafts:  # one token at a time can draw from what is left, or from no distribution
                for index, length in zip(view.indices, before, strict=True):
                    view.cache.keep(index, length)
            if banned:
                drawing.undo()
                return None
            drawing.give_up()
            break
        drafts.append(found[0])
        if found[1] is not None:
            probs.append(found[1])
        drawing.take(*found)
    if not drafts:
        return None
    lengths = drawing.settle()
    k = max(lengths)  # tokens after the end of every window are not verified
    probs_of_all = torch.cat(probs, dim=1)[:, :k] if needs_probs else None
    return Proposal.of_model(rows, torch.cat(drafts, dim=1)[:, :k], probs_of_all, lengths)


def drafts_windows(model: Any) -> bool:
    """Whether a model declares that it drafts several tokens per call.

    A wrapper that only forwards attributes does not: its `forward` may change the logits.
    """
    return hasattr(type(model), "drafts_windows") and bool(model.drafts_windows)


def _alike(rows: Sequence[SequenceState]) -> bool:
    """Whether all rows draw alike, with no more than temperature, word filter and a random source whose noise can be drawn in
    advance."""
    greedy, draws = rows[0].greedy, rows[0].draws_drafts
    if any((row.greedy, row.draws_drafts) != (greedy, draws) or not row.pipeline.tempers_only for row in rows):
        return False
    return not draws or all(type(row.random) is SeededRandom and row.random.on_cpu for row in rows)


class _Drawing:
    """Where the rows' windows end, and the noise of their draws."""

    def __init__(self, rows: Sequence[SequenceState], limits: Sequence[int], vocab_size: int) -> None:
        self._rows, self._limits, self._vocab_size = rows, limits, vocab_size
        self._k = 0
        self._drafted = 0
        self._ends: list[int | None] = [None] * len(rows)
        self._drafts: list[list[int]] = [[] for _ in rows]
        self._draws = rows[0].draws_drafts
        self._filtered = any(row.pipeline.word_filter is not None for row in rows)
        self._drawn = [0] * len(rows)
        self._states = [row.random.state() for row in rows] if self._draws else []  # type: ignore[attr-defined]

    @property
    def goes_on(self) -> bool:
        """Whether any window is open."""
        return None in self._ends

    def next_call(self) -> int:
        """How many tokens the next call drafts: not fewer at the end of a run, since every length has its own graph."""
        wanted = [row.window.next_call() for row, end in zip(self._rows, self._ends, strict=True) if end is None]
        self._k = min(_LONGEST, max(wanted))
        return self._k

    def race(self) -> Race | None:
        """Temperatures and noise of the next call; None where nothing is drawn."""
        if not self._draws:
            return None
        noise = torch.ones(len(self._rows), self._k, num_noises(self._vocab_size))
        for index, (row, limit) in enumerate(zip(self._rows, self._limits, strict=True)):
            if self._ends[index] is None:
                count = min(self._k, limit - self._drafted)
                self._drawn[index] += count
                noise[index, :count] = row.random.noise(count, self._vocab_size)  # type: ignore[attr-defined]
        return torch.tensor([[float(row.params.temperature)] for row in self._rows]), noise

    def tempered(self, found: Any) -> Any:
        """The result of a call, with the probabilities of rows that sample but draft the argmax at their temperature: a call
        that draws nothing computes them at temperature 1."""
        if found is None or found[1] is None or self._draws or self._rows[0].greedy:
            return found
        temperatures = torch.tensor([[[float(row.params.temperature)]] for row in self._rows], dtype=found[1].dtype)
        return found[0], torch.softmax(found[1].log() / temperatures, dim=-1)

    def filter(self, token_ids: torch.Tensor, probs: torch.Tensor | None, race: Race | None) -> bool:
        """Remove tokens that the rows' word filters ban from the result of a call."""
        if not self._filtered:
            return True
        for index, (row, limit, drafts) in enumerate(zip(self._rows, self._limits, token_ids.tolist(), strict=True)):
            if row.pipeline.word_filter is None or self._ends[index] is not None:
                continue
            drafts = drafts[: limit - self._drafted]
            banned = row.pipeline.word_filter.banned(row.output_token_ids + self._drafts[index], drafts[:-1])
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

    def take(self, token_ids: torch.Tensor, probs: torch.Tensor | None) -> None:
        """Find the windows' ends in the tokens of a call."""
        adaptive = probs is not None and any(row.window.adaptive for row in self._rows)
        confidences = pick(probs, token_ids).tolist() if adaptive and probs is not None else None
        for index, (row, limit, drafts) in enumerate(zip(self._rows, self._limits, token_ids.tolist(), strict=True)):
            for step, token in enumerate(drafts):
                if self._ends[index] is not None:
                    break
                count = self._drafted + step + 1
                confidence = 1.0 if confidences is None else confidences[index][step]
                self._drafts[index].append(token)
                if token in row.stop_token_ids or count >= limit or not row.window.should_continue(confidence):
                    self._ends[index] = count
        self._drafted += self._k

    def give_up(self) -> None:
        """Draft no more: open windows end where the last call did."""
        self._ends = [self._drafted if end is None else end for end in self._ends]
        self.settle()

    def undo(self) -> None:
        """Nothing was drawn."""
        for row in self._rows:
            row.window.restart()
        self._ends = [0] * len(self._rows)
        self.settle()

    def settle(self) -> list[int]:
        """The windows' lengths. Draws after them are undone, so that a row's later draws are those that it has alone."""
        lengths = [end or 0 for end in self._ends]
        for row, state, drawn, length in zip(self._rows, self._states, self._drawn, lengths, strict=self._draws):
            if length < drawn:
                row.random.restore(state)  # type: ignore[attr-defined]
                row.random.noise(length, self._vocab_size)  # type: ignore[attr-defined]
        return lengths
