"""Times of runs that are robust against other programs on the machine."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from naive_speculate.events import Event, EventKind


def undisturbed(times: Sequence[float]) -> float:
    """The lower quartile: the time without disturbance by other programs."""
    return sorted(times)[(len(times) - 1) // 4]


def step_seconds(events: Iterable[Event]) -> float | None:
    """Mean undisturbed time of a step; None if no step was timed.

    The quartile is taken among steps with equally many draft tokens, since shorter steps are faster.
    """
    by_length: dict[int, list[float]] = {}
    for event in events:
        if event.kind == EventKind.STEP and event.total_seconds:
            by_length.setdefault(event.num_draft or 0, []).append(event.total_seconds)
    if not by_length:
        return None
    return fmean(undisturbed(times) for times in by_length.values() for _ in times)


def draft_seconds(events: Iterable[Event]) -> float:
    """Undisturbed time to draft one token; 0 if nothing was drafted."""
    times = [e.draft_seconds / e.num_draft for e in events if e.kind == EventKind.STEP and e.draft_seconds and e.num_draft]
    return undisturbed(times) if times else 0.0
