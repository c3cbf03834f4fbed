"""A run's steps as the charts need them, whatever a loaded trace may claim."""

from typing import NamedTuple

from naive_speculate.events import Event, EventKind
from naive_speculate.trace import Trace

WAITING = "No round has ended yet."
MAX_DRAFT_TOKENS = 64
MAX_SECONDS = 1e6
"""No real step has more; a loaded trace may claim what it likes."""

NO_DRAFTS = "Nothing was drafted in this run: plain decoding, one token a round."


class Step(NamedTuple):
    """The figures of one step; `number` counts from 1, as readers do."""

    number: int
    drafted: int
    accepted: int
    draft_seconds: float
    verify_seconds: float
    total_seconds: float


def steps_of(trace: Trace) -> list[Step]:
    """The steps of a run, in order."""
    return [_step(number, e) for number, e in enumerate((e for e in trace if e.kind == EventKind.STEP), start=1)]


def _step(number: int, event: Event) -> Step:
    drafted = min(MAX_DRAFT_TOKENS, max(0, event.num_draft or 0))
    draft, verify = _seconds(event.draft_seconds), _seconds(event.verify_seconds)
    accepted = min(drafted, max(0, event.num_accepted or 0))
    return Step(number, drafted, accepted, draft, verify, max(draft + verify, _seconds(event.total_seconds)))


def _seconds(claimed: float | None) -> float:
    return min(MAX_SECONDS, max(0.0, claimed or 0.0))
