"""The interface between clients (a page, an endpoint, a load test) and engines.

Data goes one way: a request in, lists of events out. An engine may be a thread of this process or a cluster.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from naive_speculate.events import Event
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.sequence import CancelFlag

__all__ = ["ANONYMOUS", "STOPPING", "About", "Deliver", "Engine", "Load", "Reader", "Request", "Unavailable", "entered"]

STOPPING = "The server is stopping and takes no more runs. Try again in a minute."


Deliver = Callable[[list[Event] | Exception | None], None]
"""Receives a run's next list of events, and at its end None or the failure. The decoding thread calls it, so it must not
block."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a run's events."""

    # address, session: a decoder is shared fairly between addresses, and between the sessions of an address
    address: str = ""
    session: str = ""
    # whether many delivered events are unread; then the run pauses. Called by the decoding thread
    lags: Callable[[], bool] = bool  # bool() is False


ANONYMOUS = Reader()


class Unavailable(RuntimeError):
    """The engine accepts no requests: it is closed, or its hardware is lost. The message is for visitors."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of an engine."""

    ready: bool  # whether it accepts requests
    running: int  # sequences being decoded
    waiting: int  # sequences waiting for a row
    capacity: int  # most sequences decoded at once, by all replicas together
    replicas: int = 1  # number of replicas of the pair
    reason: str = ""  # why it accepts no requests
    stuck: bool = False  # whether the reason is a lack of progress
    run_seconds: float | None = None  # duration of recent runs; None before the first has ended

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class About:
    """A description of an engine."""

    models: dict[str, str]  # names of target and draft
    device: str  # where the target computes
    chat: bool  # whether the tokenizer has a chat template
    capacity: int  # most sequences that it can ever decode at once
    num_parameters: dict[str, int] = field(default_factory=dict)  # of target, draft and head, as loaded
    weights: str | None = None  # a description of the target's weights, as in `ModelPair`


def entered(lists: Generator[list[Event], None, None]) -> Iterator[list[Event]]:
    """Advance a generator past its first, empty list and return it.

    Python runs a generator's `finally` on close only if the generator has started.
    """
    next(lists)
    return lists


class Engine(Protocol):
    """Decodes many requests at once; thread-safe."""

    @property
    def about(self) -> About:
        """A description of the engine."""

    def submit(self, request: Request, cancel: CancelFlag | None = None, reader: Reader = ANONYMOUS) -> Iterator[list[Event]]:
        """Decode a request. Setting `cancel`, or closing or dropping the iterator, ends the run after the current step or
        prompt chunk.

        Returns lists of events as they arrive; joined, they are the run's trace: it begins with `started` and ends with
        `finished` for each row, with reason `error` and a message for the visitor if decoding failed. Raises `ValueError`,
        naming the invalid field, or `Unavailable` if the engine accepts no requests; here or when the iteration begins.
        """

    def start(self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANONYMOUS) -> None:
        """Decode a request for a caller that cannot block, such as an event loop: `deliver` receives the lists of `submit`,
        then the end. The run pauses while the reader lags. Exceptions of `submit` are delivered or raised."""

    def waiting_before(self, reader: Reader) -> int | None:
        """Number of sequences that would start before a new one of this reader; None if it would start at once."""

    def load(self) -> Load:
        """The engine's load."""

    def close(self) -> None:
        """Cancel all runs and accept no more requests."""
