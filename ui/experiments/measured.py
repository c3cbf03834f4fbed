"""Times of runs that other programs on the machine do not spoil."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from naive_speculate.events import Event, EventKind


def undisturbed(times: Sequence[float]) -> float:
    """The lower quartile: what a thing takes while nothing else on the machine gets in its way."""
    return sorted(times)[(len(times) - 1) // 4]


def round_seconds(events: Iterable[Event]) -> float | None:
    """What a round takes on average, undisturbed; None where none was timed.

    The quartile is taken among rounds that drafted as many tokens: shorter rounds are quicker, disturbed or not.
    """
    by_length: dict[int, list[float]] = {}
    for event in events:
        if event.kind == EventKind.STEP and event.total_seconds:
            by_length.setdefault(event.num_draft or 0, []).append(event.total_seconds)
    if not by_length:
        return None
    return fmean(undisturbed(times) for times in by_length.values() for _ in times)


def draft_seconds(events: Iterable[Event]) -> float:
    """What the drafting of one token takes, undisturbed; 0 where nothing was drafted."""
    times = [e.draft_seconds / e.num_draft for e in events if e.kind == EventKind.STEP and e.draft_seconds and e.num_draft]
    return undisturbed(times) if times else 0.0
