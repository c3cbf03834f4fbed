"""One request at a time, decoded where it is asked for: for hosts that decode in processes forked for each request.

Such a process shares no memory with the one that serves visitors, so there is nothing to batch with, and a run goes on for as
long as a file exists. The host may keep a run waiting, refuse it or cut it off: a thread waits for it, so that whoever reads
can still be told.
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
from naive_speculate.serving.delivery import pump
from naive_speculate.serving.intake import MAX_ROWS, about, explain, prepare
from naive_speculate.serving.protocol import ANYBODY, STOPPING, Deliver, Load, Reader, Request, Unavailable
from naive_speculate.serving.told import Told
from naive_speculate.speculate.batch import PartialStepError
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.run import Run
from naive_speculate.speculate.sequence import CancelFlag

Decode = Callable[[Request, str], Iterator[list[Event]]]
"""Decodes a request for as long as a file of that path exists. What it raises is told to the visitor."""
CUT_OFF = "The host ended this run before its time. Run it again, with fewer tokens: the same seed gives the same text."
_LOOK_SECONDS = 0.1


class FileFlag:
    """A cancel flag that crosses a fork: set once the file is gone."""

    def __init__(self, path: str) -> None:
        self._path = path

    def is_set(self) -> bool:
        """Whether somebody removed the file."""
        return not os.path.exists(self._path)


class SoloEngine:
    """Decodes each request by itself; an `Engine`.

    Args:
        decoder: Whose pair decodes.
        wrap: Makes a function that decodes in another process of the one that decodes in this one.
        max_rows: Most sequences of one request.
        max_prompt_tokens: Longest prompt; None for what the model takes.
    """

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

    def submit(self, request: Request, cancel: CancelFlag | None = None, reader: Reader = ANYBODY) -> Iterator[list[Event]]:
        """Decode a request (see `Engine`); checked here, where an error still reaches the caller."""
        if request.params.seed is None:
            request = replace(request, params=replace(request.params, seed=fresh_seed()))
        run = prepare(self.decoder, request, None, self._max_rows, self._max_prompt_tokens)
        if self._closed.is_set():
            raise Unavailable(STOPPING)
        return self._read(request, run, cancel)

    def start(self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANYBODY) -> None:
        pump(self.submit(request, cancel), deliver)

    def waiting_before(self, reader: Reader) -> int | None:
        """Every run has a process of its own, so none waits here."""

    def load(self) -> Load:
        """How busy it is; every run has a process of its own, so none waits here."""
        return Load(not self._closed.is_set(), self._running, 0, self._max_rows)

    def close(self) -> None:
        self._closed.set()

    def _read(self, request: Request, run: Run, cancel: CancelFlag | None) -> Iterator[list[Event]]:
        told = Told(len(run.rows))
        unread: SimpleQueue[list[Event] | Exception | None] = SimpleQueue()
        descriptor, flag = tempfile.mkstemp(prefix="naive-speculate-")
        os.close(descriptor)
        with self._lock:
            self._running += 1
        context = copy_context()  # the host knows by it on whose behalf it is asked
        threading.Thread(target=context.run, args=(self._ask, request, flag, unread), name="solo-run", daemon=True).start()
        try:
            while told.unfinished:
                ended = self._closed.is_set() or (cancel is not None and cancel.is_set())
                if ended:
                    Path(flag).unlink(missing_ok=True)
                try:
                    found = unread.get(timeout=_LOOK_SECONDS)
                except Empty:
                    if not ended or told.begun:
                        continue
                    # Its turn has not come, and when it does the file is gone.
                    found = _rest(run, told, FinishReason.CANCELLED)
                if isinstance(found, Unavailable) and not told.begun:
                    raise found
                if found is None:
                    found = _rest(run, told, FinishReason.ERROR, CUT_OFF)
                elif isinstance(found, Exception):
                    message = str(found) if isinstance(found, Unavailable) else explain(found)
                    found = _rest(run, told, FinishReason.ERROR, message)
                told.add(found)
                yield found
        finally:
            Path(flag).unlink(missing_ok=True)
            with self._lock:
                self._running -= 1

    def _ask(self, request: Request, flag: str, unread: "SimpleQueue[list[Event] | Exception | None]") -> None:
        try:
            for events in self._decode(request, flag):
                unread.put(events)
        except Exception as error:
            unread.put(error)
        finally:
            unread.put(None)


def _rest(run: Run, told: Told, reason: FinishReason, message: str | None = None) -> list[Event]:
    """What is missing of a run that nobody decodes any more."""
    return [*([] if told.begun else run.started()), *told.endings(reason, message)]


def _decode(decoder: SpeculativeDecoder, request: Request, cancel: CancelFlag, max_rows: int) -> Iterator[list[Event]]:
    run, batch = prepare(decoder, request, cancel, max_rows), decoder.new_batch()
    batch.admit(run.rows)
    try:
        yield run.started()
        while not run.over:
            if events := run.tell(batch.step(run.rows)):
                yield events
    except PartialStepError as error:
        yield run.tell(error.records) + run.end(FinishReason.ERROR, explain(error.cause))
    except Exception as error:
        yield run.end(FinishReason.ERROR, explain(error))
    finally:  # also where the host closes this generator
        batch.release(run.rows)
