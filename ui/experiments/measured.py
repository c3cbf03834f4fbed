"""Times of runs, and speeds from them, that other programs on the machine do not spoil."""

from collections.abc import Sequence
from typing import NamedTuple

from naive_speculate.events import EventKind
from naive_speculate.events.metrics import Metrics
from naive_speculate.events.trace import Trace


class Measured(NamedTuple):
    """A run's figures, and the seconds of all its rounds in all its repeats."""

    metrics: Metrics
    times: list[float]

    @property
    def speed(self) -> float | None:
        """Tokens a second, had all rounds been as quick as the quicker ones; None where there are no times."""
        length = self.metrics.mean_acceptance_length
        return length / undisturbed(self.times) if self.times and length else None


def step_times(trace: Trace) -> list[float]:
    """Seconds of every round."""
    return [event.total_seconds for event in trace if event.kind == EventKind.STEP and event.total_seconds]


def undisturbed(times: Sequence[float]) -> float:
    """The lower quartile: what a thing takes while nothing else on the machine gets in its way."""
    return sorted(times)[(len(times) - 1) // 4]
