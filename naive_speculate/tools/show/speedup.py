"""Speedup from traces of the same prompt and settings, decoded alternately: plain, with drafts,
plain, …

The first step of a run processes the prompt and is left out. Each step counts with its time
without disturbance by other programs (`ratio.typical`). The speedup is the ratio of the runs' mean
rates. Its interval has the width of `ratio.ratio_of`: the pairs are stretches of a drafted run and
the same stretches of the plain runs before and after it (batch means: stretches of several steps
are nearly independent).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from naive_speculate.events.event import Event, EventKind, MeasuredSpeedup
from naive_speculate.tools.ratio import LEAST, Estimate, logs_of, ratio_of, typical

LEAST_STEPS = LEAST  # least steps after the first of a run that is timed
_STRETCHES = 8  # most parts of a run that are compared; more of them hold too few steps each


@dataclass(frozen=True)
class _TimedStep:
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
    speedup = _with_interval(plain_seconds / seconds, slow, fast)
    steps = [one for run in fast for one in run]
    drafts = fmean(one.drafts for one in steps)
    one_pass = fmean(_typical(run, lambda one: one.verify_seconds) for run in slow)
    drafting = fmean(_typical(run, lambda one: one.draft_seconds) for run in fast)
    checking = fmean(_typical(run, lambda one: one.verify_seconds) for run in fast)
    return MeasuredSpeedup(
        value=speedup.mean,
        low=speedup.low or speedup.mean,
        high=speedup.high or speedup.mean,
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


def step_seconds(events: Iterable[Event]) -> float | None:
    """Mean time of a step without disturbance; None if no step was timed."""
    times = [
        (event.num_draft or 0, event.total_seconds)
        for event in events
        if event.kind == EventKind.STEP and event.total_seconds
    ]
    return fmean(typical(times)) if times else None


def draft_seconds(events: Iterable[Event]) -> float:
    """Mean time to draft one token, without disturbance; 0 if nothing was drafted."""
    times = [
        (event.num_draft, event.draft_seconds / event.num_draft)
        for event in events
        if event.kind == EventKind.STEP and event.draft_seconds and event.num_draft
    ]
    return fmean(typical(times)) if times else 0.0


def _steps(trace: Iterable[Event]) -> list[_TimedStep]:
    """Those after the first, each timed from the end of the previous one."""
    events = [event for event in trace if event.kind == EventKind.STEP]
    return [
        _TimedStep(
            drafts=step.num_draft or 0,
            tokens=(step.num_accepted or 0) + 1,
            seconds=step.time - before.time,
            draft_seconds=step.draft_seconds or 0.0 if step.num_draft else 0.0,
            verify_seconds=step.verify_seconds or 0.0,
        )
        for before, step in pairwise(events)
    ]


def _typical(steps: Sequence[_TimedStep], what: Callable[[_TimedStep], float]) -> float:
    return fmean(typical([(one.drafts, what(one)) for one in steps]))


def _seconds_per_token(steps: Sequence[_TimedStep]) -> float:
    return _typical(steps, lambda one: one.seconds) / fmean(one.tokens for one in steps)


def _with_interval(
    value: float, slow: Sequence[Sequence[_TimedStep]], fast: Sequence[Sequence[_TimedStep]]
) -> Estimate:
    """A drafted run's stretches are paired with those of the plain runs before and after it in
    turn, so that a machine that grew slower widens the interval."""
    count, logs = min(_STRETCHES, *map(len, (*slow, *fast))), list[float]()
    for drafted, adjacent in zip(fast, pairwise(slow), strict=True):
        plain = [_stretches(run, count) for run in adjacent]
        in_turn = [plain[number % 2][number] for number in range(count)]
        logs += logs_of(in_turn, _stretches(drafted, count))
    mean, low, high = ratio_of(logs)
    return Estimate(value, value * (low or mean) / mean, value * (high or mean) / mean)


def _stretches(steps: Sequence[_TimedStep], count: int) -> list[float]:
    """Seconds per token of so many parts of a run, of equally many steps."""
    edges = [len(steps) * number // count for number in range(count + 1)]
    return [_seconds_per_token(steps[first:end]) for first, end in pairwise(edges)]
