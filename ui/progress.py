"""How far a run has come at any of its events: the headline's numbers, counted once a run, wherever the reader moves in it."""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind


class Figures(NamedTuple):
    """What a run has given so far; the same as `naive_speculate.metrics` has under these names.

    Attributes:
        num_generated_tokens, num_spec_steps, num_draft_tokens, num_accepted_draft_tokens: Counts.
        seconds: From the run's start to the end of its last step.
    """

    num_generated_tokens: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    seconds: float = 0.0

    def after(self, event: Event) -> "Figures":
        """The figures with one event more."""
        if event.kind in OUTPUT_KINDS:
            return self._replace(num_generated_tokens=self.num_generated_tokens + 1)
        if event.kind == EventKind.STEP:
            return self._replace(
                num_spec_steps=self.num_spec_steps + 1,
                num_draft_tokens=self.num_draft_tokens + (event.num_draft or 0),
                num_accepted_draft_tokens=self.num_accepted_draft_tokens + (event.num_accepted or 0),
                seconds=event.time,
            )
        return self

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted ÷ drafted; None where nothing was drafted."""
        return self.num_accepted_draft_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens that a step gave on average, the extra one included."""
        steps = self.num_spec_steps
        return (self.num_accepted_draft_tokens + steps) / steps if steps else None

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens ÷ seconds."""
        return self.num_generated_tokens / self.seconds if self.seconds > 0 else None


class Progress:
    """The figures of a run at each of its events, every event counted once.

    Args:
        events: The run's events, which may be appended to.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._at = [Figures()]  # after so many events
        self._lock = threading.Lock()

    def at(self, upto: int) -> Figures:
        """The figures of the first so many events."""
        with self._lock:
            for event in self._events[len(self._at) - 1 : max(0, upto)]:
                self._at.append(self._at[-1].after(event))
            return self._at[min(max(0, upto), len(self._at) - 1)]
