"""The events that a reader has received, for engines that must finish a run whose decoder is lost."""

from naive_speculate.events import Event, EventKind, FinishReason
from naive_speculate.events.metrics import Summary


class DeliveredEvents:
    """A summary of a run's delivered events. `begun`: whether anything was delivered; `unfinished`: the rows without a
    `finished` event."""

    def __init__(self, rows: int) -> None:
        self.begun = False
        self.unfinished = list(range(rows))
        self._last_time = 0.0
        self._summaries = [Summary() for _ in range(rows)]

    def add(self, events: list[Event]) -> None:
        """Record delivered events."""
        self.begun = self.begun or bool(events)
        for event in events:
            self._last_time = max(self._last_time, event.time)
            self._summaries[event.row].add(event)
        ended = {event.row for event in events if event.kind == EventKind.FINISHED}
        self.unfinished = [row for row in self.unfinished if row not in ended]

    def endings(self, reason: FinishReason, message: str | None = None) -> list[Event]:
        """The missing `finished` events."""
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
