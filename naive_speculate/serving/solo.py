"""Decodes each request by itself, for hosts that fork a process per request, such as ZeroGPU.

Such a process shares no memory with the server, so requests cannot be batched, and a file serves as cancel flag. The host may
delay, refuse or cut off a run; a thread waits for it, so that the reader still gets an answer.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from naive_speculate.events.event import Event, FinishReason
from naive_speculate.sampling.random_source import fresh_seed
from naive_speculate.serving.delivery import DeliveredEvents, pump
from naive_speculate.serving.protocol import ANONYMOUS, STOPPING, Deliver, Load, Reader, Request, Unavailable
from naive_speculate.serving.requests import MAX_ROWS, about, explain, prepare
from naive_speculate.speculate.batch import PartialStepError
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.run import Run
from naive_speculate.speculate.sequence import CancelFlag

Decode = Callable[[Request, str], Iterator[list[Event]]]
"""Decodes a request while the file of that path exists. Its exceptions are reported to the visitor."""
CUT_OFF = "The host ended this run early. Run it again, with fewer tokens: the same seed gives the same text."
_LOOK_SECONDS = 0.1


class FileFlag:
    """A cancel flag that crosses a fork: set once the file is gone."""

    def __init__(self, path: str) -> None:
        self._path = path

    def is_set(self) -> bool:
        """Whether the file was removed."""
        return not os.path.exists(self._path)


class SoloEngine:
    """Decodes each request by itself; an `Engine`. `decoder`: whose pair decodes. `wrap`: turns a function that decodes in this
    process into one that decodes in another. `max_rows`: most sequences of one request. `max_prompt_tokens`: longest prompt;
    None for the model's limit."""

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

    def submit(self, request: Request, cancel: CancelFlag | None = None, reader: Reader = ANONYMOUS) -> Iterator[list[Event]]:
        """Decode a request (see `Engine`); checked here, in the caller's process."""
        if request.params.seed is None:
            request = replace(request, params=replace(request.params, seed=fresh_seed()))
        run = prepare(self.decoder, request, None, self._max_rows, self._max_prompt_tokens)
        if self._closed.is_set():
            raise Unavailable(STOPPING)
        return self._read(request, run, cancel)

    def start(self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANONYMOUS) -> None:
        pump(self.submit(request, cancel), deliver)

    def waiting_before(self, reader: Reader) -> int | None:
        """None: every run has a process of its own."""

    def load(self) -> Load:
        """The engine's load; every run has a process of its own, so none waits here."""
        return Load(not self._closed.is_set(), self._running, 0, self._max_rows)

    def close(self) -> None:
        self._closed.set()

    def _read(self, request: Request, run: Run, cancel: CancelFlag | None) -> Iterator[list[Event]]:
        delivered = DeliveredEvents(len(run.rows))
        unread: SimpleQueue[list[Event] | Exception | None] = SimpleQueue()
        descriptor, flag = tempfile.mkstemp(prefix="naive-speculate-")
        os.close(descriptor)
        with self._lock:
            self._running += 1
        context = copy_context()  # the host identifies the visitor by it
        threading.Thread(target=context.run, args=(self._produce, request, flag, unread), name="solo-run", daemon=True).start()
        try:
            while delivered.unfinished:
                ended = self._closed.is_set() or (cancel is not None and cancel.is_set())
                if ended:
                    Path(flag).unlink(missing_ok=True)
                try:
                    found = unread.get(timeout=_LOOK_SECONDS)
                except Empty:
                    if not ended or delivered.begun:
                        continue
                    # It has not started yet; when it does, the file is gone.
                    found = _rest(run, delivered, FinishReason.CANCELLED)
                if isinstance(found, Unavailable) and not delivered.begun:
                    raise found
                if found is None:
                    found = _rest(run, delivered, FinishReason.ERROR, CUT_OFF)
                elif isinstance(found, Exception):
                    message = str(found) if isinstance(found, Unavailable) else explain(found)
                    found = _rest(run, delivered, FinishReason.ERROR, message)
                delivered.add(found)
                yield found
        finally:
            Path(flag).unlink(missing_ok=True)
            with self._lock:
                self._running -= 1

    def _produce(self, request: Request, flag: str, unread: "SimpleQueue[list[Event] | Exception | None]") -> None:
        try:
            for events in self._decode(request, flag):
                unread.put(events)
        except Exception as error:
            unread.put(error)
        finally:
            unread.put(None)


def _rest(run: Run, delivered: DeliveredEvents, reason: FinishReason, message: str | None = None) -> list[Event]:
    """The missing events of a run that is no longer decoded."""
    return [*([] if delivered.begun else run.started()), *delivered.endings(reason, message)]


def _decode(decoder: SpeculativeDecoder, request: Request, cancel: CancelFlag, max_rows: int) -> Iterator[list[Event]]:
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
