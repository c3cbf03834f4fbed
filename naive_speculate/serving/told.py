"""What a reader has been told of a run, for engines that must end it when whoever decodes it no longer can."""

from naive_speculate.events import Event, EventKind, FinishReason
from naive_speculate.events.metrics import summarize


class Told:
    """A run's events so far.

    Args:
        rows: How many sequences it has.

    Attributes:
        unfinished: The sequences whose end has not been told, by their rows.
    """

    def __init__(self, rows: int) -> None:
        self.unfinished = list(range(rows))
        self._events: list[Event] = []

    def add(self, events: list[Event]) -> None:
        """Take note of what the reader gets."""
        self._events += events
        ended = {event.row for event in events if event.kind == EventKind.FINISHED}
        self.unfinished = [row for row in self.unfinished if row not in ended]

    @property
    def begun(self) -> bool:
        """Whether the reader has got anything."""
        return bool(self._events)

    def endings(self, reason: FinishReason, message: str | None = None) -> list[Event]:
        """The `finished` events that are missing."""
        last = max((event.time for event in self._events), default=0.0)
        return [
            Event(
                EventKind.FINISHED,
                row,
                last,
                finish_reason=reason,
                metrics=summarize(self._events, row).to_dict(),
                message=message,
            )
            for row in self.unfinished
        ]
