"""What a reader has been told of a run, for engines that must end it when whoever decodes it no longer can."""

from naive_speculate.events import Event, EventKind, FinishReason
from naive_speculate.events.metrics import Summary


class Told:
    """What is known of a run's events so far.

    Attributes:
        begun: Whether the reader has got anything.
        unfinished: The sequences whose end has not been told, by their rows.
    """

    def __init__(self, rows: int) -> None:
        self.begun = False
        self.unfinished = list(range(rows))
        self._last_time = 0.0
        self._summaries = [Summary() for _ in range(rows)]

    def add(self, events: list[Event]) -> None:
        """Take note of what the reader gets."""
        self.begun = self.begun or bool(events)
        for event in events:
            self._last_time = max(self._last_time, event.time)
            self._summaries[event.row].add(event)
        ended = {event.row for event in events if event.kind == EventKind.FINISHED}
        self.unfinished = [row for row in self.unfinished if row not in ended]

    def endings(self, reason: FinishReason, message: str | None = None) -> list[Event]:
        """The `finished` events that are missing."""
        return [
            Event(
                EventKind.FINISHED,
                row,
                self._last_time,
                finish_reason=reason,
                metrics=self._summaries[row].metrics.to_dict(),
                message=message,
            )
            for row in self.unfinished
        ]
