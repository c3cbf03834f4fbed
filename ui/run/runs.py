"""Runs: what the decoder has delivered of each so far, and which visitor it belongs to."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from secrets import token_urlsafe

from naive_speculate.events import Event, MeasuredSpeedup
from naive_speculate.events.trace import Trace
from naive_speculate.serving.delivery import Inbox
from naive_speculate.serving.protocol import Deliver, Reader
from ui.host.visitors import unfetched, visitor
from ui.run.guided import Kept
from ui.run.settings import Settings

Begin = Callable[[threading.Event, Deliver], None]
"""Starts a run: takes the event that cancels it, and what its events are delivered to."""

BATCH_SECONDS = 0.05
FEW_RUNS = 4
"""So many runs at once get their batches that often; with more, each gets fewer and larger ones, for a batch costs the server
more than its events do."""
MOST_UNREAD = 1000
"""A run pauses once its reader has left so many events unread, some 250 tokens' worth."""
ABANDONED_SECONDS = 60.0
"""A run whose events lie unread, or that has paused, for so long is ended: nobody has come back for them."""
LEFT_SECONDS = 600.0
"""So long the runs of a visitor are kept whose connection has ended: it may have broken."""
KEPT_RUNS = 200
KEPT_EVENTS = 150_000
"""Of all runs together, some 400 MB; then the oldest ones that are over are forgotten."""

_starting = ThreadPoolExecutor(4, "starting")
"""Requests are checked here: a long prompt takes its time to be tokenized."""
_live: set[int] = set()
_newest = 0
_counting = threading.Lock()


def _next_serial() -> int:
    """Larger than all before, and than those of servers that were started later: an open page may come to another one."""
    global _newest
    with _counting:
        _newest = max(_newest + 1, time.time_ns() // 1000)
        return _newest


class Run:
    """One run, live or replayed, that the page can ask about by its unguessable `id`.

    Attributes:
        id: Names the run towards the browser.
        serial: Later runs have larger ones.
        events: What was emitted so far; only ever appended to, but for the last one's `speedup`.
        live: Whether a decoder made it here and now.
        title: Shown above its tokens.
        measure: Measures what drafting gained; None for a run that was not decoded here.
        unguided: Finds how many guesses the same run keeps without its guide; None for a run without one, or not decoded here.
        settings: What was asked for; None for a run that was opened.
        error: Why the run could not be or go on, when it did not end by itself.
    """

    def __init__(self, events: Iterable[Event] = (), *, id: str | None = None, title: str = "") -> None:
        self.id = id or token_urlsafe(16)
        self.serial = _next_serial()
        self.events: list[Event] = list(events)
        self.live = False
        self.title = title
        self.measure: Callable[[], MeasuredSpeedup] | None = None
        self.unguided: Callable[[], Kept] | None = None
        self.settings: Settings | None = None
        self.error: Exception | None = None
        self.cancel = threading.Event()
        self.done = threading.Event()
        self.done.set()
        self._inbox = Inbox()
        self._handed: deque[int] = deque(maxlen=MOST_UNREAD)  # lengths of the latest batches
        self._unfetched: Callable[[], int] = int
        self._behind_since: float | None = None

    def reader(self) -> Reader:
        """Who reads this run's batches: whoever has made the call that is being answered."""
        self._unfetched = unfetched()
        return Reader(*visitor(), self.behind)

    def behind(self) -> bool:
        """Whether too many events are unread: here, or in batches that the browser or program has not fetched."""
        fetched = max(0, len(self._handed) - self._unfetched())
        if self.cancel.is_set() or self._inbox.unread + sum(list(self._handed)[fetched:]) <= MOST_UNREAD:
            self._behind_since = None
            return False
        self._behind_since = self._behind_since or time.monotonic()
        if time.monotonic() - self._behind_since > ABANDONED_SECONDS:
            self.cancel.set()
        return True

    def copy(self) -> "Run":
        """The same run for another visitor, who keeps it when the first one goes."""
        run = Run(self.events, title=self.title)
        run.live, run.settings, run.measure, run.unguided = self.live, self.settings, self.measure, self.unguided
        return run

    @property
    def trace(self) -> Trace:
        """The run so far."""
        return Trace(self.events)

    def start(self, begin: Begin) -> None:
        """Decode; a reader who falls behind keeps nobody else waiting."""
        self.live = True
        self.done.clear()
        _live.add(self.serial)
        context = copy_context()  # the visitor's request is in it, which ZeroGPU asks for
        _starting.submit(context.run, self._begin, begin)

    def _begin(self, begin: Begin) -> None:
        try:
            begin(self.cancel, self._take)
        except Exception as error:  # told to the visitor by whoever reads the batches
            self._take(error)

    def _take(self, said: list[Event] | Exception | None) -> None:
        """What is delivered by whoever decodes."""
        if isinstance(said, list):
            self.events += said
            self._inbox.deliver(said)
            if self._inbox.lag > ABANDONED_SECONDS:
                self.cancel.set()
        else:
            self.error = said
            _live.discard(self.serial)
            self.done.set()
            self._inbox.deliver(None)

    def attend(self) -> None:
        """Somebody has asked for the events in another way than by `batches`: they do not lie unread."""
        self._inbox.skip()

    async def batches(self, every: float = BATCH_SECONDS) -> AsyncIterator[tuple[int, list[Event]]]:
        """The events as they come, in a batch every so many seconds; each with the number of its first event.

        The last batch comes after `done`; it may be empty. The first ones do not wait for their share of time, so that
        the first token is on the screen at once.
        """
        sent = 0
        async for events in self._inbox.lists(lambda: every * max(1, len(_live) / FEW_RUNS)):
            self._handed.append(len(events))
            yield sent, events
            sent += len(events)


class Runs:
    """Every run that the page may still ask about: each visitor's current one and the one before it.

    Runs are found by their unguessable id only, so that no visitor can see another's.
    """

    def __init__(self, kept: int = KEPT_RUNS) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._of: dict[str, list[Run]] = {}
        self._pinned: dict[str, Run] = {}
        self._left: dict[str, float] = {}  # when each visitor left who did

    def pin(self, run: Run) -> None:
        """Keep a run for good; the recorded run that every visitor meets first."""
        self._pinned[run.id] = run

    def add(self, session: str, run: Run) -> None:
        """Make a run the visitor's current one; the one before is cancelled, the one before that forgotten."""
        with self._lock:
            self._left.pop(session, None)
            self._forget_those_gone()
            own = self._of.setdefault(session, [])
            for before in own:
                before.cancel.set()
            own.append(run)
            self._runs[run.id] = run
            for old in own[:-2]:
                self._runs.pop(old.id, None)
            del own[:-2]
            self._make_room(run)

    def _make_room(self, new: Run) -> None:
        """Forget the oldest runs that are over, beginning with the visitor's own; live ones go on, whatever others bring."""
        own = next(kept for kept in self._of.values() if new in kept)
        over = [run for run in self._runs.values() if run is not new and run.done.is_set()]
        over.sort(key=lambda run: run not in own)
        events = sum(len(run.events) for run in self._runs.values())
        for old in over:
            if len(self._runs) <= self._kept and events <= KEPT_EVENTS:
                return
            events -= len(old.events)
            del self._runs[old.id]
            for session, kept in list(self._of.items()):
                if old in kept:
                    kept.remove(old)
                    if not kept:
                        del self._of[session]

    def drop(self, session: str, run: Run) -> None:
        """Forget a run that never came to anything, so that the one before stays."""
        with self._lock:
            own = self._of.get(session, [])
            if run in own:
                own.remove(run)
            if not own:
                self._of.pop(session, None)
            self._runs.pop(run.id, None)

    def get(self, run_id: object) -> Run | None:
        """The run of that id, where it is still kept."""
        if not isinstance(run_id, str):
            return None
        return self._pinned.get(run_id) or self._runs.get(run_id)

    def read(self, run_id: object) -> Run | None:
        """The same for its visitor, who is there to read it, or back."""
        run = self.get(run_id)
        with self._lock:
            self._left = {session: since for session, since in self._left.items() if run not in self._of.get(session, [])}
        return run

    def cancel(self, session: str) -> None:
        """End the visitor's decoding; what it emitted stays."""
        with self._lock:
            for run in self._of.get(session, []):
                run.cancel.set()

    def _forget(self, session: str) -> None:
        self._left.pop(session, None)
        for run in self._of.pop(session, []):
            run.cancel.set()
            self._runs.pop(run.id, None)

    def leave(self, session: str) -> None:
        """The visitor's connection has ended. Whether for good, nobody knows: the runs are kept for a while."""
        with self._lock:
            if session in self._of:
                self._left[session] = time.monotonic()
            self._forget_those_gone()

    def _forget_those_gone(self) -> None:
        long_ago = time.monotonic() - LEFT_SECONDS
        for session in [session for session, since in self._left.items() if since <= long_ago]:
            self._forget(session)

    def cancel_all(self) -> None:
        """End every decoding; the server stops."""
        with self._lock:
            for run in self._runs.values():
                run.cancel.set()
