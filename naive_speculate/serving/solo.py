"""Decodes each request by itself, for hosts that fork a process per request, such as ZeroGPU.

It shares no memory with the server, so requests cannot be batched, and a file is the cancel flag.
The host may delay, refuse or cut off a run; a thread waits, so that the reader gets an answer.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

from naive_speculate.events.event import Event, FinishReason
from naive_speculate.serving.delivery import DeliveredEvents, pump
from naive_speculate.serving.protocol import (
    ANONYMOUS,
    STOPPING,
    Deliver,
    Engine,
    Item,
    Load,
    Reader,
    Request,
    Unavailable,
)
from naive_speculate.serving.requests import MAX_ROWS, about, explain, prepare, seeded
from naive_speculate.speculate.batch import PartialStepError
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.run import Run
from naive_speculate.speculate.sequence import CancelFlag

Decode = Callable[[Request, str], Iterator[list[Event]]]
"""Decodes a request while the file of that path exists."""
CUT_OFF = (
    "The host ended this run early. Run it again, with fewer tokens: the same seed gives the same"
    " text."
)
_LOOK_SECONDS = 0.1


class FileFlag:
    """A cancel flag that crosses a fork: set once the file is gone."""

    def __init__(self, path: str) -> None:
        self._path = path

    def is_set(self) -> bool:
        return not os.path.exists(self._path)


class SoloEngine(Engine):
    """Decodes each request by itself. `wrap` turns a function that decodes in this process into
    one that decodes in another. `max_rows` is for one request."""

    def __init__(
        self,
        decoder: SpeculativeDecoder,
        *,
        wrap: Callable[[Decode], Decode] | None = None,
        max_rows: int = MAX_ROWS,
        max_prompt_tokens: int | None = None,
    ) -> None:
        self.decoder = decoder
        self.about = about(decoder, max_rows)
        self._max_rows, self._max_prompt_tokens = max_rows, max_prompt_tokens

        def decode(request: Request, flag: str) -> Iterator[list[Event]]:
            yield from _decode(decoder, request, FileFlag(flag), max_rows)

        self._decode = wrap(decode) if wrap is not None else decode
        self._lock = threading.Lock()
        self._running = 0
        self._closed = threading.Event()

    def start(
        self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANONYMOUS
    ) -> None:
        """Checked here, in the caller's process."""
        request = seeded(request)
        run = prepare(self.decoder, request, None, self._max_rows, self._max_prompt_tokens)
        if self._closed.is_set():
            raise Unavailable(STOPPING)
        pump(self._lists(request, run, cancel), deliver)

    def waiting_before(self, reader: Reader) -> int | None:
        """None: every run has a process of its own."""

    def load(self) -> Load:
        """Every run has a process of its own, so none waits here."""
        return Load(not self._closed.is_set(), self._running, 0, self._max_rows)

    def close(self) -> None:
        self._closed.set()

    def _lists(self, request: Request, run: Run, cancel: CancelFlag) -> Iterator[list[Event]]:
        delivered = DeliveredEvents(len(run.rows))
        unread: SimpleQueue[Item] = SimpleQueue()
        descriptor, flag = tempfile.mkstemp(prefix="naive-speculate-")
        os.close(descriptor)

        def decode() -> Iterator[list[Event]]:  # in a thread: the host may delay even the call
            yield from self._decode(request, flag)

        with self._lock:
            self._running += 1
        pump(decode(), unread.put)
        try:
            while delivered.unfinished:
                ended = self._closed.is_set() or cancel.is_set()
                if ended:
                    Path(flag).unlink(missing_ok=True)
                try:
                    item = unread.get(timeout=_LOOK_SECONDS)
                except Empty:
                    if not ended or delivered.begun:
                        continue
                    # It has not started yet; when it does, the file is gone.
                    item = _rest(run, delivered, FinishReason.CANCELLED)
                if isinstance(item, Unavailable) and not delivered.begun:
                    raise item
                if not isinstance(item, list):
                    message = CUT_OFF if item is None else explain(item)
                    item = _rest(run, delivered, FinishReason.ERROR, message)
                delivered.add(item)
                yield item
        finally:
            Path(flag).unlink(missing_ok=True)
            with self._lock:
                self._running -= 1


def _rest(
    run: Run, delivered: DeliveredEvents, reason: FinishReason, message: str | None = None
) -> list[Event]:
    """The missing events of a run that is no longer decoded."""
    return [*([] if delivered.begun else run.started()), *delivered.endings(reason, message)]


def _decode(
    decoder: SpeculativeDecoder, request: Request, cancel: CancelFlag, max_rows: int
) -> Iterator[list[Event]]:
    run, batch = prepare(decoder, request, cancel, max_rows), decoder.new_batch()
    batch.admit(run.rows)
    try:
        yield run.started()
        while not run.over:
            if events := run.events(batch.step(run.rows)):
                yield events
    except PartialStepError as error:
        yield run.events(error.records) + run.end(FinishReason.ERROR, explain(error.cause))
    except Exception as error:
        yield run.end(FinishReason.ERROR, explain(error))
    finally:  # also if the host closes this generator
        batch.release(run.rows)
