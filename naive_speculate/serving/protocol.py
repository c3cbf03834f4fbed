"""The seam between those who ask for text (a page, an endpoint, a load test) and whatever decodes it.

Data goes one way: a request in, lists of events out. What stands behind the seam may be a thread of this process or a
cluster; whoever asks cannot tell.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from naive_speculate.events import Event
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.sequence import CancelFlag

__all__ = ["ANYBODY", "STOPPING", "About", "Deliver", "Engine", "Load", "Reader", "Request", "Unavailable", "entered"]

STOPPING = "The server is stopping and takes no more runs. Try again in a minute."


Deliver = Callable[[list[Event] | Exception | None], None]
"""Takes a run's next list of events, and once it is over None, or why it cannot go on. Called by whoever decodes, whom it must
not keep waiting."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads a run's events.

    Attributes:
        address, session: A decoder is shared by turns between addresses, and at each between its sessions.
        behind: Whether much of what was delivered is unread: the run pauses until it is read. Called by the decoding thread.
    """

    address: str = ""
    session: str = ""
    behind: Callable[[], bool] = bool  # which gives False


ANYBODY = Reader()


class Unavailable(RuntimeError):
    """The engine takes no requests: it is closed, or what it runs on has gone. The message is for visitors."""


@dataclass(frozen=True, slots=True)
class Load:
    """How busy an engine is.

    Attributes:
        ready: Whether it takes requests.
        running: Sequences that are being decoded.
        waiting: Sequences that wait for a place.
        capacity: How many can be decoded at once, all replicas together.
        replicas: Copies of the pair that decode.
        reason: Why it takes no requests.
        stuck: Whether that is because it makes no progress.
        run_seconds: How long a run keeps its place, by the latest ones; None before any has ended.
    """

    ready: bool
    running: int
    waiting: int
    capacity: int
    replicas: int = 1
    reason: str = ""
    stuck: bool = False
    run_seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class About:
    """What an engine decodes with.

    Attributes:
        models: Names of target and draft.
        device: Where the target computes.
        chat: Whether the tokenizer has a chat template.
        capacity: Most sequences that it will ever decode at once.
        num_parameters: Of target, draft and head, as loaded.
        weights: Which weights the target has, as in `ModelPair`.
    """

    models: dict[str, str]
    device: str
    chat: bool
    capacity: int
    num_parameters: dict[str, int] = field(default_factory=dict)
    weights: str | None = None


def entered(lists: Generator[list[Event], None, None]) -> Iterator[list[Event]]:
    """Run a generator up to its first yield, an empty list that nobody sees, and hand it on.

    Python runs no `finally` of a generator that is closed before its first `next`; one that has begun hears of it.
    """
    next(lists)
    return lists


class Engine(Protocol):
    """Decodes many requests at once. Threads may call it side by side."""

    @property
    def about(self) -> About:
        """What it decodes with."""

    def submit(self, request: Request, cancel: CancelFlag | None = None, reader: Reader = ANYBODY) -> Iterator[list[Event]]:
        """Decode a request.

        Args:
            request: What to decode.
            cancel: Set it to end the run, after the step or the chunk of a prompt that is being computed; closing the
                iterator does so too, or dropping it, whether or not anything was read.
            reader: Whose share of the decoder it takes.

        Returns:
            Iterator: Lists of events as they come. All of them joined are the run's trace: it begins with `started` and, for
            each row, ends with `finished`, which carries `error` and a message for the visitor if decoding failed.

        Raises:
            ValueError: Naming the field that cannot be; here or when the iteration begins.
            Unavailable: If nothing takes requests; likewise.
        """

    def start(self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANYBODY) -> None:
        """Decode a request for a caller that cannot wait in a thread of its own, as an event loop cannot.

        Args:
            request: What to decode.
            cancel: Set it to end the run.
            deliver: Takes the lists that `submit` would give, then the end. Where the run cannot be, `submit`'s exceptions
                come here or are raised.
            reader: Whose share of the decoder it takes, and whether that reader keeps up.

        Raises:
            ValueError: Naming the field that cannot be.
            Unavailable: If nothing takes requests.
        """

    def waiting_before(self, reader: Reader) -> int | None:
        """How many sequences would begin before one that this reader asked for now; None where it would begin at once."""

    def load(self) -> Load:
        """How busy it is."""

    def close(self) -> None:
        """Cancel what runs and take no more requests."""
