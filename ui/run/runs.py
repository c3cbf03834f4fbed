"""Runs: the events that the decoder has delivered so far, and the visitor to whom each run
belongs."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from copy import copy
from functools import partial
from secrets import token_urlsafe
from typing import Any, Self

from naive_speculate.events import Event, MeasuredSpeedup
from naive_speculate.events.trace import Trace
from naive_speculate.serving.delivery import Inbox
from naive_speculate.serving.protocol import Deliver, Item, Reader, Request, Unavailable
from naive_speculate.serving.visit import for_visitor
from ui.host.visitors import (
    GUIDING,
    STARTING,
    TOTAL_BYTES,
    VISITOR_BYTES,
    give_back,
    unfetched,
    visitor,
    weight,
)
from ui.run.figures import Figures
from ui.run.settings import Settings

Begin = Callable[[threading.Event, Deliver], None]
"""Starts a run, given its cancel flag and the function that receives its events."""

BATCH_SECONDS = 0.05
FEW_RUNS = 4
"""Up to so many runs get batches that often. With more, each gets fewer and larger ones, because
a batch costs the server more than its events."""
MOST_UNREAD = 1000  # a run pauses if its reader leaves so many events unread, about 250 tokens
ABANDONED_SECONDS = (
    60.0  # a run is ended if its events stay unread, or it stays paused, for so long
)
LEFT_SECONDS = (
    600.0  # how long a visitor's runs are kept after the connection ends: it may come back
)
KEPT_RUNS = 200
WEIGHED_LISTS = 16
"""One of so many delivered lists is measured and represents the others; measuring all would cost
the decoder 5% of its time."""
GROWN_BYTES = 2**20  # after growing by so much, a run may force others out
TOO_LARGE = (
    f"The run was ended: its events exceed the {VISITOR_BYTES // 2**20} MB that this page keeps per"
    " visitor."
)
NO_ROOM = (
    "The run was ended: the server's memory for events is full. Try again in a moment, or with"
    " fewer tokens."
)

_live: set[int] = set()
_newest = 0
_counting = threading.Lock()


async def request_of(settings: Settings) -> Request:
    """The request for some settings. A guide is parsed outside the event loop, which serves
    other visitors; a ValueError names the invalid setting."""
    make = partial(settings.request, shrink_in_batch=True)
    if not settings.guided:
        return make()
    try:
        return await asyncio.wrap_future(GUIDING.submit(make, Reader(*visitor())))
    except Unavailable as error:
        raise for_visitor(error) from None


def _next_serial() -> int:
    """A number larger than all before, also those of other servers, since a page may stay open
    when its server ends."""
    global _newest
    with _counting:
        _newest = max(_newest + 1, time.time_ns() // 1000)
        return _newest


class ShownRun:
    """One run, live or replayed. The page refers to it by its unguessable `id`. If it `keeps` no
    events, only the reader of `batches` gets them."""

    def __init__(
        self,
        events: Iterable[Event] = (),
        *,
        id: str = "",
        title: str = "",
        size: int | None = None,
        keeps: bool = True,
    ) -> None:
        self.id = id or token_urlsafe(16)
        self.serial = _next_serial()  # larger for later runs
        self.visitor = ""  # the session that may see it; its own id until a visitor adopts it
        self.events: list[Event] = list(
            events
        )  # only appended to, except for the last one's `speedup`
        self.figures = Figures()
        self.size = weight(self.events) if size is None else size  # of the events, in bytes
        self.grown: Callable[[ShownRun], None] = lambda _: (
            None
        )  # called when the size has grown by `GROWN_BYTES`
        self._keeps = keeps
        self._weighed, self._mean, self._lists = self.size, 0.0, 0
        self.live = False  # whether it was decoded in this process
        self.title = title  # the line above its tokens
        self.crowded = (
            False  # whether other runs were decoded at the same time, so that its times say little
        )
        self.plain: list[
            Event
        ] = []  # the events of the same prompt without drafts, decoded after the run
        # Measures the speedup and fills `plain`, and finds the acceptance without the guide; None
        # if it was not decoded here.
        self.measure: Callable[[], MeasuredSpeedup] | None = None
        self.unguided: Callable[[], dict[str, Any]] | None = None
        # Begins to draw its first tokens again: each call of the result draws a batch and returns
        # what was drawn so far (`ui.run.samples`). None if it was not decoded here.
        self.again: Callable[[], Callable[[], dict[str, Any]]] | None = None
        self.settings: Settings | None = None  # the visitor's; None for an opened trace
        self.error: Exception | None = None  # why it could not start or continue
        self.cancel = threading.Event()
        self.done = threading.Event()
        self.done.set()
        self.inbox = Inbox()  # what the reader of `batches` has not fetched
        self._handed: deque[int] = deque(maxlen=MOST_UNREAD)  # lengths of the latest batches
        self._unfetched: Callable[[], int] = int
        self._behind_since: float | None = None

    def reader(self) -> Reader:
        """The reader of this run's batches: the current caller."""
        self._unfetched = unfetched()
        return Reader(*visitor(), self.behind)

    def behind(self) -> bool:
        """Whether too many events are unread, here or in batches that the browser or program has
        not fetched."""
        fetched = max(0, len(self._handed) - self._unfetched())
        if (
            self.cancel.is_set()
            or self.inbox.unread + sum(list(self._handed)[fetched:]) <= MOST_UNREAD
        ):
            self._behind_since = None
            return False
        self._behind_since = self._behind_since or time.monotonic()
        if time.monotonic() - self._behind_since > ABANDONED_SECONDS:
            self.cancel.set()
        return True

    def copy(self) -> Self:
        """The same finished run for another visitor, who keeps it if the first one leaves."""
        run = copy(self)
        run.id, run.serial, run.visitor = token_urlsafe(16), _next_serial(), ""
        return run

    @property
    def trace(self) -> Trace:
        return Trace(self.events)

    def start(self, begin: Begin) -> None:
        """Decode. A slow reader does not delay others."""
        self.live = True
        self.done.clear()
        _live.add(self.serial)
        guided = self.settings is not None and bool(self.settings.guided)
        turn = (GUIDING if guided else STARTING).submit(
            partial(self._begin, begin), Reader(*visitor())
        )
        turn.add_done_callback(self._check_turn)

    def _begin(self, begin: Begin) -> None:
        if self.cancel.is_set():  # while it waited
            self._take(None)
        else:
            begin(self.cancel, self._take)

    def _check_turn(self, turn: Future[None]) -> None:
        if isinstance(error := turn.exception(), Exception):  # the reader of the batches shows it
            self._take(for_visitor(error))

    def _take(self, delivered: Item) -> None:
        """Receive events, an error, or None at the end from the decoder."""
        if isinstance(delivered, list):
            self.crowded = self.crowded or len(_live) > 1
            self._weigh(delivered)
            if self._keeps:
                self.events += delivered
            self.inbox.deliver(delivered)
            if self.inbox.lag > ABANDONED_SECONDS:
                self.cancel.set()
        else:
            self.error = self.error or delivered
            _live.discard(self.serial)
            self.done.set()
            self.inbox.deliver(None)

    def _weigh(self, events: list[Event]) -> None:
        if self._lists % WEIGHED_LISTS == 0:
            self._mean = weight(events) / max(1, len(events))
        self._lists += 1
        self.size += self.weight_of(events)
        if self.size > self._weighed + GROWN_BYTES:
            self._weighed = self.size
            self.grown(self)

    def weight_of(self, events: list[Event]) -> int:
        return int(self._mean * len(events))

    def end(self, why: str) -> None:
        """End the decoding for a reason that the visitor will see."""
        self.error = ValueError(why)
        self.cancel.set()

    async def batches(self, every: float = BATCH_SECONDS) -> AsyncIterator[tuple[int, list[Event]]]:
        """The events in batches, one every so many seconds, each with the number of its first
        event.

        The last batch comes after `done` and may be empty. The first ones come at once, so that
        the first token is not delayed.
        """
        sent = 0
        async for events in self.inbox.lists(lambda: every * max(1, len(_live) / FEW_RUNS)):
            self._handed.append(len(events))
            yield sent, events
            sent += len(events)


class Runs:
    """The runs that the server keeps: each visitor's current one and the previous one.

    A run is found by its unguessable id only, so that no visitor can see another's.
    """

    def __init__(
        self,
        kept: int = KEPT_RUNS,
        total_bytes: int = TOTAL_BYTES,
        visitor_bytes: int = VISITOR_BYTES,
    ) -> None:
        self._most_runs, self._total_bytes, self._visitor_bytes = kept, total_bytes, visitor_bytes
        self._lock = threading.RLock()
        self._kept: dict[str, ShownRun] = {}  # by id, the oldest first
        self._pinned: dict[str, ShownRun] = {}
        self._left: dict[str, float] = {}  # when each departed visitor left

    def pin(self, run: ShownRun) -> None:
        """Keep a run forever; used for the recorded run."""
        self._pinned[run.id] = run

    def add(self, visitor: str, run: ShownRun) -> None:
        """Make a run the visitor's current one; the previous one is cancelled, the one before
        that forgotten."""
        with self._lock:
            self._left.pop(visitor, None)
            self._forget_those_gone()
            self.cancel(visitor)
            self._kept.pop(run.id, None)  # an adopted one becomes the newest
            run.visitor, self._kept[run.id] = visitor, run
            self.drop(*self._own(visitor)[:-2])
            self._make_room(run)
        run.grown = self._make_room

    def adopt(self, visitor: str, run_id: object) -> ShownRun | None:
        """Assign a run that was added under its own id to a visitor; None if there is none, or
        it is assigned already."""
        with self._lock:
            run = self.get(run_id)
            if run is None or run.visitor != run.id:
                return None
            self.add(visitor, run)
            return run

    def _own(self, visitor: str) -> list[ShownRun]:
        return [run for run in self._kept.values() if run.visitor == visitor]

    def _make_room(self, new: ShownRun) -> None:
        """Forget the oldest finished runs, the visitor's own first. If that is not enough, end
        the new one if it alone is too large, else the largest live one."""
        with self._lock:
            if new.id not in self._kept:  # it was forgotten before it grew
                return
            others = [run for run in self._kept.values() if run is not new]
            for old in sorted(others, key=lambda run: run.visitor != new.visitor):
                crowded = (
                    len(self._kept) > self._most_runs
                    or _size(self._kept.values()) > self._total_bytes
                )
                greedy = (
                    old.visitor == new.visitor
                    and _size(self._own(new.visitor)) > self._visitor_bytes
                )
                if old.done.is_set() and (crowded or greedy):
                    self.drop(old)
            if new.size > self._visitor_bytes:
                new.end(TOO_LARGE)
            going = [
                run
                for run in self._kept.values()
                if not run.done.is_set() and not run.cancel.is_set()
            ]
            if going and _size(self._kept.values()) > self._total_bytes:
                max(going, key=lambda run: run.size).end(NO_ROOM)

    def drop(self, *runs: ShownRun) -> None:
        """Forget runs, such as one without events, so that the previous one stays."""
        with self._lock:
            for run in runs:
                self._kept.pop(run.id, None)
        give_back(_size(runs))

    def get(self, run_id: object) -> ShownRun | None:
        """The run of that id; None if it is not kept."""
        if not isinstance(run_id, str):
            return None
        with self._lock:
            return self._pinned.get(run_id) or self._kept.get(run_id)

    def read(self, run_id: object) -> ShownRun | None:
        """The run of that id, requested by its visitor, who is therefore present."""
        with self._lock:
            if run := self.get(run_id):
                self._left.pop(run.visitor, None)
            return run

    def cancel(self, visitor: str) -> None:
        """End the visitor's decoding; the events so far stay."""
        with self._lock:
            for run in self._own(visitor):
                run.cancel.set()

    def leave(self, visitor: str) -> None:
        """The visitor's connection ended. The runs are kept for a while, since it may come back."""
        with self._lock:
            if self._own(visitor):
                self._left[visitor] = time.monotonic()
            self._forget_those_gone()

    def _forget_those_gone(self) -> None:
        long_ago = time.monotonic() - LEFT_SECONDS
        for gone in [session for session, since in self._left.items() if since <= long_ago]:
            del self._left[gone]
            self.cancel(gone)
            self.drop(*self._own(gone))

    def cancel_all(self) -> None:
        with self._lock:
            for run in self._kept.values():
                run.cancel.set()


def _size(runs: Iterable[ShownRun]) -> int:
    return sum(run.size for run in runs)
