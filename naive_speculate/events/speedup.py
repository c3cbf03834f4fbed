"""Speedup from traces of the same prompt and settings decoded in turn: plain, with drafts, plain, …

Only rounds after the first are compared, since a run's first round takes in the prompt. A round counts with the median time of
the rounds with as many drafts in the same run, so that what else the machine did in between spoils little; how far the figure
can be trusted is found by drawing rounds, and neighbouring plain runs, again and again (bootstrap).
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from naive_speculate.events.event import Event, EventKind, MeasuredSpeedup

LEAST_ROUNDS = 4
"""A run with fewer rounds after its first is too short to be timed."""
_DRAWS = 300
_RANGE = 0.9


@dataclass(frozen=True)
class _Round:
    drafts: int
    tokens: int
    seconds: float
    draft_seconds: float
    verify_seconds: float


def compare(plain: Sequence[Iterable[Event]], drafted: Sequence[Iterable[Event]], machine: str) -> MeasuredSpeedup | None:
    """What drafting gained on this machine. There is one drafted trace fewer: each was decoded between two plain ones.

    Returns:
        MeasuredSpeedup: The figure; None where a run is too short for one.

    Raises:
        ValueError: If the numbers of traces do not fit.
    """
    if not drafted or len(plain) != len(drafted) + 1:
        raise ValueError(f"plain must have one trace more than drafted, got {len(plain)} and {len(drafted)}")
    slow, fast = [_rounds(trace) for trace in plain], [_rounds(trace) for trace in drafted]
    if min(map(len, slow + fast)) < LEAST_ROUNDS or any(r.seconds <= 0 for run in slow + fast for r in run):
        return None
    plain_seconds = fmean(map(_seconds_a_token, slow))
    seconds = fmean(map(_seconds_a_token, fast))
    value = plain_seconds / seconds
    draws = sorted(_draw(slow, fast, random.Random(number)) for number in range(_DRAWS))
    edge = round((1 - _RANGE) / 2 * _DRAWS)
    rounds = [one for run in fast for one in run]
    drafts = fmean(one.drafts for one in rounds)
    one_pass = fmean(_typical(run, lambda one: one.verify_seconds) for run in slow)
    drafting = fmean(_typical(run, lambda one: one.draft_seconds) for run in fast)
    checking = fmean(_typical(run, lambda one: one.verify_seconds) for run in fast)
    return MeasuredSpeedup(
        value=value,
        low=min(value, draws[edge]),
        high=max(value, draws[-1 - edge]),
        plain_rate=1 / plain_seconds,
        rate=1 / seconds,
        tokens_per_round=fmean(one.tokens for one in rounds),
        num_draft_tokens=drafts,
        verify_cost=checking / one_pass,
        draft_cost=drafting / drafts / one_pass if drafts else None,
        tokens=sum(one.tokens for one in rounds),
        machine=machine,
    )


def plain_rates(plain: Sequence[Iterable[Event]]) -> list[float]:
    """Tokens a second of each plain trace; those of a quiet machine are alike. Empty where one is too short."""
    runs = [_rounds(trace) for trace in plain]
    if min(map(len, runs), default=0) < LEAST_ROUNDS:
        return []
    return [1 / max(_seconds_a_token(run), 1e-9) for run in runs]


def _rounds(trace: Iterable[Event]) -> list[_Round]:
    """The rounds after the first. A round lasts from the end of the one before: what is done between two belongs to it."""
    steps = [event for event in trace if event.kind == EventKind.STEP]
    return [
        _Round(
            drafts=step.num_draft or 0,
            tokens=(step.num_accepted or 0) + 1,
            seconds=step.time - before.time,
            draft_seconds=step.draft_seconds or 0.0 if step.num_draft else 0.0,
            verify_seconds=step.verify_seconds or 0.0,
        )
        for before, step in pairwise(steps)
    ]


def _typical(rounds: Sequence[_Round], what: Callable[[_Round], float]) -> float:
    """What a round takes on average, each taken for the median of those with as many drafts."""
    alike = defaultdict(list)
    for one in rounds:
        alike[one.drafts].append(what(one))
    return sum(len(found) * median(found) for found in alike.values()) / len(rounds)


def _seconds_a_token(rounds: Sequence[_Round]) -> float:
    return _typical(rounds, lambda one: one.seconds) / fmean(one.tokens for one in rounds)


def _draw(slow: Sequence[Sequence[_Round]], fast: Sequence[Sequence[_Round]], dice: random.Random) -> float:
    """The figure as it might as well have been: rounds drawn again, of a run with drafts and of a plain one beside it."""
    at = dice.randrange(len(fast))
    beside = slow[at + dice.randrange(2)]
    some = [dice.choices(run, k=len(run)) for run in (beside, fast[at])]
    return _seconds_a_token(some[0]) / _seconds_a_token(some[1])
