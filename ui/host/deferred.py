"""An engine whose pair is loaded after the page answers, or when somebody first uses it."""

import threading
from collections.abc import Callable
from contextlib import suppress

from naive_speculate.known import KnownPair
from naive_speculate.serving import About, Engine, Load, Request, Unavailable
from naive_speculate.serving.protocol import ANONYMOUS, FULL, STOPPING, Deliver, Reader
from naive_speculate.serving.turns import TOO_MANY, Job, Turns
from naive_speculate.speculate.sequence import CancelFlag

LOADING = "{} is loading. Its runs start as soon as it is ready."
_LOOK_SECONDS = 0.05  # how often a held run checks whether it was cancelled


def expected(known: KnownPair | None, capacity: int) -> About:
    """What the engine of a known pair, or of the bundled one, will report once loaded. All known
    targets are chat models."""
    if known is None:
        return About(
            {kind: f"bundled {kind}" for kind in ("target", "draft", "head")},
            "cpu",
            chat=False,
            capacity=capacity,
        )
    drafters = {
        kind: f"{known.drafters} {kind}" for kind in ("draft", "head") if known.drafter(kind)
    }
    return About({"target": known.target, **drafters}, "cpu", chat=True, capacity=capacity)


class DeferredEngine(Engine):
    """Holds at most `max_waiting` requests until its pair is loaded, and then passes them on.
    `make` loads the pair and returns its engine; `about` is what it is expected to report. If it
    is `on_demand`, the first request loads it, else `load_pair`."""

    def __init__(
        self,
        name: str,
        about: About,
        make: Callable[[], Engine],
        max_waiting: int,
        *,
        on_demand: bool = False,
    ) -> None:
        self._name = name
        self.about = about
        self._make = make
        self._max_waiting = max_waiting
        self.on_demand = on_demand
        self._unasked = on_demand  # no request came that would load the pair
        self._engine: Engine | None = None
        self._reason = STOPPING
        self._settled = threading.Event()
        self._lock = threading.Lock()
        self._held = Turns[Job]()  # what `start` was called with

    @property
    def loading(self) -> bool:
        """Whether the pair will be loaded without another request."""
        return not (self._settled.is_set() or self._unasked)

    @property
    def loaded(self) -> bool:
        return self._engine is not None

    def load_pair(self) -> None:
        """Load the pair and start the held requests. Raises what `make` raises; the held
        requests then end with that error."""
        self._unasked = False
        try:
            self._engine = self._make()
            self.about = self._engine.about
        except Exception as error:
            self._reason = str(error)
            raise
        finally:
            self._settled.set()

    def start(
        self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANONYMOUS
    ) -> None:
        if self._settled.is_set():
            if self._engine is None:
                raise Unavailable(self._reason)
            return self._engine.start(request, cancel, deliver, reader)
        held = Job(reader, (request, cancel, deliver, reader))
        with self._lock:
            alone = not self._held
            dropped = self._held.add(held, self._max_waiting)
            if dropped is held:
                raise Unavailable(FULL.format(len(self._held)))
            first, self._unasked = self._unasked, False
        for work, needed in ((self._load_on_demand, first), (self._start_held, alone)):
            if needed:
                threading.Thread(target=work, daemon=True).start()
        if dropped is not None:
            _end(dropped, Unavailable(TOO_MANY))
        return None

    def waiting_before(self, reader: Reader) -> int | None:
        return len(self._held) if self._engine is None else self._engine.waiting_before(reader)

    def load(self) -> Load:
        if self._engine is not None:
            return self._engine.load()
        if self._settled.is_set():
            return Load(False, 0, len(self._held), 0, reason=self._reason)
        if self._unasked:
            return Load(True, 0, len(self._held), self.about.capacity)
        return Load(False, 0, len(self._held), 0, reason=LOADING.format(self._name))

    def close(self) -> None:
        self._settled.set()
        if self._engine is not None:
            self._engine.close()

    def _start_held(self) -> None:
        """Start the held requests by turns once the pair is loaded, and end those that are
        cancelled before."""
        while self._held:
            settled = self._settled.wait(_LOOK_SECONDS)
            with self._lock:
                over = [held for held in self._held if settled or held.work[1].is_set()]
                self._held.waiting = [held for held in self._held if held not in over]
            for held in self._held.order(over):
                try:
                    if settled:
                        self.start(*held.work)
                    else:
                        _end(held, None)
                except Exception as error:
                    _end(held, error)

    def _load_on_demand(self) -> None:
        with suppress(Exception):  # the held requests end with it
            self.load_pair()


def _end(held: Job, end: Exception | None) -> None:
    """End a held request; a reader that raises ends its own run only."""
    with suppress(Exception):
        held.work[2](end)
