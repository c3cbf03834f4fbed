"""The interface between clients (a page, an endpoint, a load test) and engines.

Data goes one way: a request in, lists of events out. An engine may be a thread of this process
or a cluster.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue

from naive_speculate.events import Event
from naive_speculate.speculate.request import Request as Request
from naive_speculate.speculate.sequence import CancelFlag

STOPPING = "The server is stopping and takes no more runs. Try again in a minute."
FULL = "{} others are waiting, which is the limit. Try again in a moment."
# between two reads; waking at every step would take the interpreter from the decoder
_READ_SECONDS = 0.01

Item = list[Event] | Exception | None
"""A run's next list of events, and at its end None or the failure."""
Deliver = Callable[[Item], None]
"""Receives a run's items. The decoding thread calls it, so it must not block."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads a run: a decoder is shared fairly between addresses, and between the sessions of
    each. While it `lags`, with many events unread, the run pauses."""

    address: str = ""
    session: str = ""
    lags: Callable[[], bool] = bool  # False; the decoding thread calls it


ANONYMOUS = Reader()


class Unavailable(RuntimeError):
    """The engine accepts no requests. The message is for visitors."""


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine does now."""

    ready: bool  # whether it accepts requests
    running: int  # sequences being decoded
    waiting: int  # sequences waiting for a row
    capacity: int  # most sequences decoded at once, by all replicas together
    replicas: int = 1  # number of replicas of the pair
    reason: str = ""  # why it accepts no requests
    stuck: bool = False  # whether the reason is a lack of progress
    run_seconds: float | None = None  # duration of recent runs; None before the first has ended


@dataclass(frozen=True, slots=True)
class About:
    """What an engine decodes with."""

    models: dict[str, str]  # names of target and draft
    device: str  # of the target
    chat: bool  # whether the tokenizer has a chat template
    capacity: int  # most sequences that it can ever decode at once
    # of target, draft and head, as loaded
    num_parameters: dict[str, int] = field(default_factory=dict)
    weights: str | None = None  # the target's, as in `ModelPair`


class Engine(ABC):
    """Decodes many requests at once; thread-safe."""

    about: About  # a description of the engine

    @abstractmethod
    def start(
        self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANONYMOUS
    ) -> None:
        """Decode a request and let `deliver` receive its lists of events, then the end; returns
        before that.

        The joined lists are the run's trace: it begins with `started` and ends with `finished`
        for each row, with reason `error` and a message for the visitor if decoding failed.
        Setting `cancel` ends the run after the current step or prompt chunk. The run pauses
        while the reader lags. A `ValueError`, naming the invalid field, or `Unavailable` if the
        engine accepts no requests, is raised here or delivered instead of the end.
        """

    @abstractmethod
    def waiting_before(self, reader: Reader) -> int | None:
        """Number of sequences that would start before a new one of this reader; None if it would
        start at once."""

    @abstractmethod
    def load(self) -> Load:
        """The engine's load."""

    @abstractmethod
    def close(self) -> None:
        """Cancel all runs and accept no more requests."""

    def submit(self, request: Request, cancel: CancelFlag | None = None) -> Iterator[list[Event]]:
        """For a reader with a thread of its own: returns the lists of `start` as they arrive.
        Closing or dropping the iterator ends the run too. Exceptions of `start` are raised here or
        when the iteration begins."""
        return submitted(partial(self.start, request), cancel)


def submitted(
    start: Callable[[CancelFlag, Deliver], None], cancel: CancelFlag | None
) -> Iterator[list[Event]]:
    """What a run that `start` starts delivers, as `Engine.submit` returns it."""
    lists = _read(start, ReaderFlag(cancel))
    next(lists)  # Python runs a generator's `finally` on close only if the generator has started
    return lists


@dataclass
class ReaderFlag:
    """The cancel flag of a reader that may leave (`left`) before the end."""

    cancel: CancelFlag | None
    left: bool = False

    def is_set(self) -> bool:
        return self.left or (self.cancel is not None and self.cancel.is_set())


def _read(start: Callable[[CancelFlag, Deliver], None], flag: ReaderFlag) -> Iterator[list[Event]]:
    unread = SimpleQueue[Item]()
    start(flag, unread.put)
    try:
        yield []
        while True:
            items = [unread.get()]
            while not unread.empty():
                items.append(unread.get())
            if new := [event for events in items if isinstance(events, list) for event in events]:
                yield new
            end = items[-1]
            if isinstance(end, Exception):
                raise end
            if end is None:
                return
            time.sleep(_READ_SECONDS)
    finally:
        flag.left = True
