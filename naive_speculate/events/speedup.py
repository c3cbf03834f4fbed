"""Speedup from traces of the same prompt and settings, decoded alternately: plain, with drafts,
plain, …

The first step of a run processes the prompt and is left out. Each step counts with the median
time of the run's steps with the same number of draft tokens, which reduces disturbance by other
programs. The interval is found by bootstrap over steps and adjacent plain runs.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from naive_speculate.events.event import Event, EventKind, MeasuredSpeedup

LEAST_STEPS = 4  # least steps after the first of a run that is timed
_DRAWS = 300
_RANGE = 0.9


@dataclass(frozen=True)
class _Step:
    drafts: int
    tokens: int
    seconds: float
    draft_seconds: float
    verify_seconds: float


def compare(
    plain: Sequence[Iterable[Event]], drafted: Sequence[Iterable[Event]], machine: str
) -> MeasuredSpeedup | None:
    """The speedup of drafting on this machine; each drafted trace was decoded between two plain
    ones. Returns None where a run is too short. Raises `ValueError` if there is not exactly one
    plain trace more."""
    if not drafted or len(plain) != len(drafted) + 1:
        raise ValueError(
            f"plain must have one trace more than drafted, got {len(plain)} and {len(drafted)}"
        )
    slow, fast = [_steps(trace) for trace in plain], [_steps(trace) for trace in drafted]
    if min(map(len, slow + fast)) < LEAST_STEPS or any(
        r.seconds <= 0 for run in slow + fast for r in run
    ):
        return None
    plain_seconds = fmean(map(_seconds_per_token, slow))
    seconds = fmean(map(_seconds_per_token, fast))
    value = plain_seconds / seconds
    draws = sorted(_draw(slow, fast, random.Random(number)) for number in range(_DRAWS))
    edge = round((1 - _RANGE) / 2 * _DRAWS)
    steps = [one for run in fast for one in run]
    drafts = fmean(one.drafts for one in steps)
    one_pass = fmean(_typical(run, lambda one: one.verify_seconds) for run in slow)
    drafting = fmean(_typical(run, lambda one: one.draft_seconds) for run in fast)
    checking = fmean(_typical(run, lambda one: one.verify_seconds) for run in fast)
    return MeasuredSpeedup(
        value=value,
        low=min(value, draws[edge]),
        high=max(value, draws[-1 - edge]),
        plain_rate=1 / plain_seconds,
        rate=1 / seconds,
        tokens_per_round=fmean(one.tokens for one in steps),
        num_draft_tokens=drafts,
        verify_cost=checking / one_pass,
        draft_cost=drafting / drafts / one_pass if drafts else None,
        tokens=sum(one.tokens for one in steps),
        machine=machine,
    )


def plain_rates(plain: Sequence[Iterable[Event]]) -> list[float]:
    """Tokens per second of each plain trace; they agree on a quiet machine. Empty if one is too
    short."""
    runs = [_steps(trace) for trace in plain]
    if min(map(len, runs), default=0) < LEAST_STEPS:
        return []
    return [1 / max(_seconds_per_token(run), 1e-9) for run in runs]


def _steps(trace: Iterable[Event]) -> list[_Step]:
    """The steps after the first, each timed from the end of the previous one."""
    events = [event for event in trace if event.kind == EventKind.STEP]
    return [
        _Step(
            drafts=step.num_draft or 0,
            tokens=(step.num_accepted or 0) + 1,
            seconds=step.time - before.time,
            draft_seconds=step.draft_seconds or 0.0 if step.num_draft else 0.0,
            verify_seconds=step.verify_seconds or 0.0,
        )
        for before, step in pairwise(events)
    ]


def _typical(steps: Sequence[_Step], what: Callable[[_Step], float]) -> float:
    """The mean of a step's quantity, each replaced by the median of steps with the same number
    of draft tokens."""
    alike = defaultdict(list)
    for one in steps:
        alike[one.drafts].append(what(one))
    return sum(len(found) * median(found) for found in alike.values()) / len(steps)


def _seconds_per_token(steps: Sequence[_Step]) -> float:
    return _typical(steps, lambda one: one.seconds) / fmean(one.tokens for one in steps)


def _draw(
    slow: Sequence[Sequence[_Step]], fast: Sequence[Sequence[_Step]], source: random.Random
) -> float:
    """A bootstrap draw: steps drawn with replacement from a drafted run and an adjacent plain
    run."""
    at = source.randrange(len(fast))
    adjacent = slow[at + source.randrange(2)]
    some = [source.choices(run, k=len(run)) for run in (adjacent, fast[at])]
    return _seconds_per_token(some[0]) / _seconds_per_token(some[1])
