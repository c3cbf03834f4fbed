"""Hands events from decoder to readers."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from contextvars import copy_context
from functools import partial

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind, FinishReason
from naive_speculate.events.metrics import Summary
from naive_speculate.serving.protocol import Deliver, Item


def pump(lists: Iterable[list[Event]], deliver: Deliver) -> None:
    """Deliver the lists from a thread of its own."""

    def work() -> None:
        try:
            for events in lists:
                deliver(events)
        except Exception as error:
            deliver(error)
        else:
            deliver(None)

    context = copy_context()  # contains the visitor's request, which ZeroGPU needs
    threading.Thread(target=context.run, args=(work,), name="pump", daemon=True).start()


class Inbox:
    """Stores a run's events for a reader in an event loop; any thread may call `deliver`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unread: list[Event] = []
        self._since = 0.0
        self._over = False
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of the current reader
        self._arrived = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def lag(self) -> float:
        """Age of the oldest unread event, in seconds."""
        with self._lock:
            return time.monotonic() - self._since if self._unread else 0.0

    def deliver(self, item: Item) -> None:
        with self._lock:
            was_empty = not self._unread
            if isinstance(item, list):
                self._since = time.monotonic() if was_empty else self._since
                self._unread += item
            else:
                self._over, self._failure = True, item
            if self._loop is not None and (was_empty or self._over):
                self._loop.call_soon_threadsafe(self._wake)

    @property
    def unread(self) -> int:
        with self._lock:
            return len(self._unread)

    def skip(self) -> None:
        """Drop the unread events, unless there is a reader."""
        with self._lock:
            if self._loop is None:
                self._unread = []

    async def lists(self, pause: Callable[[], float]) -> AsyncIterator[list[Event]]:
        """The events: immediately up to the first token, then as one list per `pause()` seconds;
        the end of the run cuts it short, and only the list there may be empty. Raises the delivered
        failure."""
        begun = False
        try:
            with self._lock:
                self._loop = asyncio.get_running_loop()
                self._wake()
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                with self._lock:
                    events, self._unread, over = self._unread, [], self._over
                if events or (over and self._failure is None):
                    yield events
                if over and self._failure is not None:
                    raise self._failure
                if over:
                    return
                begun = begun or any(event.kind in OUTPUT_KINDS for event in events)
                if begun:
                    with suppress(TimeoutError):
                        # `wait_for` of Python 3.11 may lose a cancellation.
                        async with asyncio.timeout(pause()):
                            await self._ended.wait()
        finally:
            with self._lock:
                self._loop = None

    def _wake(self) -> None:
        self._arrived.set()
        if self._over:
            self._ended.set()


class DeliveredEvents:
    """Whether there were any (`begun`), and the rows without a `finished` event."""

    def __init__(self, rows: int) -> None:
        self.begun = False
        self.unfinished = list(range(rows))
        self._last_time = 0.0
        self._summaries = [Summary() for _ in range(rows)]

    def add(self, events: list[Event]) -> None:
        self.begun = self.begun or bool(events)
        for event in events:
            self._last_time = max(self._last_time, event.time)
            self._summaries[event.row].add(event)
        ended = {event.row for event in events if event.kind == EventKind.FINISHED}
        self.unfinished = [row for row in self.unfinished if row not in ended]

    def endings(self, reason: FinishReason, message: str | None = None) -> list[Event]:
        """The missing `finished` events."""
        end = partial(Event, EventKind.FINISHED, time=self._last_time, finish_reason=reason)
        return [
            end(row=row, metrics=self._summaries[row].metrics.to_dict(), message=message)
            for row in self.unfinished
        ]
