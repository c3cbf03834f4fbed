"""Runs: what the decoder has delivered of each so far, and which visitor it belongs to."""

import asyncio
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
from naive_speculate.serving.protocol import Deliver, Reader, Request
from ui.host.visitors import unfetched, visitor
from ui.host.weight import TOTAL_BYTES, VISITOR_BYTES, give_back, weight
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
WEIGHED_LISTS = 16
"""Of the lists of events that a decoder delivers, each first one of so many is weighed and stands for the others: they are
alike, and to weigh them all would cost the decoder 5% of its time."""
GROWN_BYTES = 2**20
"""A run that has grown by so much may have to make others go."""
TOO_LARGE = f"The run was ended: its events take more than the {VISITOR_BYTES // 2**20} MB that this page keeps for a visitor."
NO_ROOM = "The run was ended: the server keeps as many events as it may. Try again in a moment, or with fewer tokens."

_starting = ThreadPoolExecutor(4, "starting")
"""Requests are checked here: a long prompt takes its time to be tokenized."""
_guiding = ThreadPoolExecutor(2, "guiding")
"""The same for those with a guide, which may take seconds to be compiled: no other run waits for them."""
_live: set[int] = set()
_newest = 0
_counting = threading.Lock()


async def request_of(settings: Settings) -> Request:
    """The request of some settings. A guide is parsed apart from the event loop, which has others to answer.

    Raises:
        ValueError: Names the setting that cannot be.
    """
    if not settings.guided:
        return settings.request()
    return await asyncio.get_running_loop().run_in_executor(_guiding, settings.request)


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
        size: How many bytes its events take.
        grown: Called with the run when they take `GROWN_BYTES` more.

    Args:
        size: Of the events, where it is known.
        keeps: Whether it keeps the events that a decoder delivers; else they go to the reader of `batches` only.
    """

    def __init__(
        self,
        events: Iterable[Event] = (),
        *,
        id: str | None = None,
        title: str = "",
        size: int | None = None,
        keeps: bool = True,
    ) -> None:
        self.id = id or token_urlsafe(16)
        self.serial = _next_serial()
        self.events: list[Event] = list(events)
        self.size = weight(self.events) if size is None else size
        self.grown: Callable[[Run], None] = lambda _: None
        self._keeps = keeps
        self._weighed, self._mean, self._lists = self.size, 0.0, 0
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
        run = Run(self.events, title=self.title, size=self.size)
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
        guided = self.settings is not None and bool(self.settings.guided)
        (_guiding if guided else _starting).submit(context.run, self._begin, begin)

    def _begin(self, begin: Begin) -> None:
        try:
            begin(self.cancel, self._take)
        except Exception as error:  # told to the visitor by whoever reads the batches
            self._take(error)

    def _take(self, said: list[Event] | Exception | None) -> None:
        """What is delivered by whoever decodes."""
        if isinstance(said, list):
            self._weigh(said)
            if self._keeps:
                self.events += said
            self._inbox.deliver(said)
            if self._inbox.lag > ABANDONED_SECONDS:
                self.cancel.set()
        else:
            self.error = self.error or said
            _live.discard(self.serial)
            self.done.set()
            self._inbox.deliver(None)

    def _weigh(self, events: list[Event]) -> None:
        if self._lists % WEIGHED_LISTS == 0:
            self._mean = weight(events) / max(1, len(events))
        self._lists += 1
        self.size += self.weight_of(events)
        if self.size > self._weighed + GROWN_BYTES:
            self._weighed = self.size
            self.grown(self)

    def weight_of(self, events: list[Event]) -> int:
        """How many bytes some of its events take."""
        return int(self._mean * len(events))

    def end(self, why: str) -> None:
        """End the decoding for a reason that the visitor is to read."""
        self.error = ValueError(why)
        self.cancel.set()

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

    def __init__(self, kept: int = KEPT_RUNS, total_bytes: int = TOTAL_BYTES, visitor_bytes: int = VISITOR_BYTES) -> None:
        self._kept = kept
        self._total_bytes, self._visitor_bytes = total_bytes, visitor_bytes
        self._lock = threading.RLock()
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
            self._forget_runs(own[:-2])
            del own[:-2]
            self._make_room(run)
        run.grown = self._grown

    def _grown(self, run: Run) -> None:
        with self._lock:
            if self._runs.get(run.id) is run:
                self._make_room(run)

    def adopt(self, session: str, run_id: object) -> Run | None:
        """Give a run to a visitor that was added under its own id; None where it is not kept, or is somebody's already."""
        with self._lock:
            run = self.get(run_id)
            if run is None or self._of.get(run.id) != [run]:
                return None
            del self._of[run.id]
            self.add(session, run)
            return run

    def _make_room(self, new: Run) -> None:
        """Forget the oldest runs that are over, beginning with the visitor's own. Where that is not enough, end the new one if
        it alone is too large, else the largest live one."""
        own = next(kept for kept in self._of.values() if new in kept)
        everybody = self._runs.values()

        def fits() -> bool:
            return len(everybody) <= self._kept and _size(everybody) <= self._total_bytes

        self._forget_oldest([run for run in own if run is not new], lambda: fits() and _size(own) <= self._visitor_bytes)
        self._forget_oldest([run for run in everybody if run not in own], fits)
        if new.size > self._visitor_bytes:
            new.end(TOO_LARGE)
        going = [run for run in everybody if not run.done.is_set() and not run.cancel.is_set()]
        if going and _size(everybody) > self._total_bytes:
            max(going, key=lambda run: run.size).end(NO_ROOM)

    def _forget_oldest(self, runs: list[Run], enough: Callable[[], bool]) -> None:
        for old in [run for run in runs if run.done.is_set()]:
            if enough():
                return
            session = next(session for session, kept in self._of.items() if old in kept)
            self._of[session].remove(old)
            if not self._of[session]:
                del self._of[session]
            self._forget_runs([old])

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
        own = self._of.pop(session, [])
        for run in own:
            run.cancel.set()
        self._forget_runs(own)

    def _forget_runs(self, runs: list[Run]) -> None:
        for run in runs:
            self._runs.pop(run.id, None)
        give_back(_size(runs))

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


def _size(runs: Iterable[Run]) -> int:
    return sum(run.size for run in runs)
