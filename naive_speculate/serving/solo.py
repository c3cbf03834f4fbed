"""One request at a time, decoded where it is asked for: for hosts that decode in processes forked for each request.

Such a process shares no memory with the one that serves visitors, so there is nothing to batch with, and a cancelled run is
told so by a file.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from naive_speculate.events import Event, FinishReason
from naive_speculate.serving.intake import MAX_ROWS, about, explain, prepare
from naive_speculate.serving.protocol import Load, Request, Unavailable
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.sequence import CancelFlag, Sequence

Decode = Callable[[Request, str], Iterator[list[Event]]]
"""Decodes a request; ends early once a file of that path exists."""


class FileFlag:
    """A cancel flag that crosses a fork: set once the file exists."""

    def __init__(self, path: str) -> None:
        self._path = path

    def is_set(self) -> bool:
        """Whether somebody made the file."""
        return os.path.exists(self._path)


class SoloEngine:
    """Decodes each request by itself, in the thread that reads it; an `Engine`.

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
        self.about = about(decoder)
        self._max_rows, self._max_prompt_tokens = max_rows, max_prompt_tokens

        def decode(request: Request, flag: str) -> Iterator[list[Event]]:
            yield from _decode(decoder, request, FileFlag(flag))

        self._decode = wrap(decode) if wrap is not None else decode
        self._lock = threading.Lock()
        self._running = 0
        self._closed = threading.Event()

    def submit(self, request: Request, cancel: CancelFlag | None = None) -> Iterator[list[Event]]:
        """Decode a request (see `Engine`); checked here, where an error still reaches the caller."""
        prepare(self.decoder, request, None, self._max_rows, self._max_prompt_tokens)
        if self._closed.is_set():
            raise Unavailable("The server is stopping and takes no more runs. Try again in a minute.")
        return self._run(request, cancel)

    def load(self) -> Load:
        """How busy it is; every run has a process of its own, so none waits here."""
        return Load(not self._closed.is_set(), self._running, 0, self._max_rows)

    def close(self) -> None:
        """Cancel what runs and take no more requests."""
        self._closed.set()

    def _run(self, request: Request, cancel: CancelFlag | None) -> Iterator[list[Event]]:
        with self._lock:
            self._running += 1
        with tempfile.TemporaryDirectory(prefix="naive-speculate-") as folder:
            flag = Path(folder) / "cancelled"
            try:
                for events in self._decode(request, str(flag)):
                    if self._closed.is_set() or (cancel is not None and cancel.is_set()):
                        flag.touch()
                    yield events
            finally:
                flag.touch()
                with self._lock:
                    self._running -= 1


def _decode(decoder: SpeculativeDecoder, request: Request, cancel: CancelFlag) -> Iterator[list[Event]]:
    sequences = prepare(decoder, request, cancel)
    workspace = decoder.new_workspace()
    yield [event for sequence in sequences for event in decoder.place(sequence, workspace)]
    running = sequences
    failure: Exception | None = None
    try:
        decoder.share_prefill(sequences)
    except Exception as error:
        failure = error
    while running:
        told: dict[Sequence, list[Event]] = {sequence: [] for sequence in running}
        try:
            if failure is None:
                decoder.advance(told)
        except Exception as error:
            failure = error
        if failure is not None:
            for sequence in running:
                if sequence.finish_reason is None:
                    told[sequence] += decoder.finish(sequence, FinishReason.ERROR, explain(failure))
        running = [sequence for sequence in running if sequence.finish_reason is None]
        yield [event for events in told.values() for event in events]
