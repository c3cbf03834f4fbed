"""Ways from who decodes to who reads: a thread that pumps, where an engine can only be read, and an inbox for event loops."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import copy_context

from naive_speculate.events import OUTPUT_KINDS, Event
from naive_speculate.serving.protocol import Deliver


def pump(lists: Iterable[list[Event]], deliver: Deliver) -> None:
    """Deliver what can only be read, from a thread of its own."""

    def work() -> None:
        try:
            for events in lists:
                deliver(events)
        except Exception as error:
            deliver(error)
        else:
            deliver(None)

    context = copy_context()  # the visitor's request is in it, which ZeroGPU asks for
    threading.Thread(target=context.run, args=(work,), name="pump", daemon=True).start()


class Inbox:
    """Where a run's events wait for a reader in an event loop; `deliver` may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unread: list[Event] = []
        self._since = 0.0
        self._over = False
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of the reader, while there is one
        self._come = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def lag(self) -> float:
        """Seconds that the oldest unread event has lain here."""
        with self._lock:
            return time.monotonic() - self._since if self._unread else 0.0

    def deliver(self, said: list[Event] | Exception | None) -> None:
        """Take what an engine delivers (see `Deliver`)."""
        with self._lock:
            news = not self._unread
            if isinstance(said, list):
                self._since = time.monotonic() if news else self._since
                self._unread += said
            else:
                self._over, self._failure = True, said
            if self._loop is not None and (news or self._over):
                self._loop.call_soon_threadsafe(self._wake)

    @property
    def unread(self) -> int:
        """How many events lie here."""
        with self._lock:
            return len(self._unread)

    def skip(self) -> None:
        """Count what lies here as read, unless there is a reader."""
        with self._lock:
            if self._loop is None:
                self._unread = []

    async def lists(self, pause: Callable[[], float]) -> AsyncIterator[list[Event]]:
        """The events: as they come up to the first token, then in a list every so many seconds.

        Args:
            pause: Seconds until the next list, asked after each; the run's end is not waited out.

        Yields:
            Lists that are not empty, but for the last one, which comes when the run is over.

        Raises:
            Exception: What was delivered in place of the end.
        """
        begun = False
        try:
            with self._lock:
                self._loop = asyncio.get_running_loop()
                self._wake()
            while True:
                await self._come.wait()
                self._come.clear()
                with self._lock:
                    events, self._unread = self._unread, []
                    over = self._over
                if events or (over and self._failure is None):
                    yield events
                if self._failure is not None and over:
                    raise self._failure
                if over:
                    return
                begun = begun or any(event.kind in OUTPUT_KINDS for event in events)
                if begun:
                    await self._end_or(pause())
        finally:
            with self._lock:
                self._loop = None

    async def _end_or(self, seconds: float) -> None:
        """Wait so long, or until the run is over: then its place is wanted by the next."""
        try:
            async with asyncio.timeout(seconds):  # `wait_for` of Python 3.11 may lose a cancellation
                await self._ended.wait()
        except TimeoutError:
            return

    def _wake(self) -> None:
        self._come.set()
        if self._over:
            self._ended.set()
