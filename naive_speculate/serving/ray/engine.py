"""An engine whose replicas run on Ray Serve; this process is their client.

Twice as many runs as the replicas have rows are passed on to them, so that no row is idle and the
cluster grows with demand; the others wait here, in turns. A run whose replica dies before anything
was read is retried on another with its seed; one that had begun ends with an error message.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
    RequestCancelledError,
)

from naive_speculate.events import Event, FinishReason
from naive_speculate.serving.delivery import DeliveredEvents, pump
from naive_speculate.serving.local import MAX_WAITING
from naive_speculate.serving.protocol import (
    ANONYMOUS,
    FULL,
    STOPPING,
    Deliver,
    Engine,
    Load,
    Reader,
    Request,
    Unavailable,
)
from naive_speculate.serving.ray.app import Refusal
from naive_speculate.serving.ray.cluster import ClusterError, replicas_of
from naive_speculate.serving.requests import seeded
from naive_speculate.serving.turns import TOO_MANY, Job, Turns, num_rows
from naive_speculate.speculate.sequence import CancelFlag
from naive_speculate.text import one_line

MAX_TRIES = 3  # limits the replicas that a request can crash
DIED = "The machine that decoded this run is gone. Run it again: the same seed gives the same text."
DIED_WAITING = "Several machines failed before this run could start. Try again in a minute."
_PASSED_ON = 2  # rows that are passed on per row of the replicas
GONE = "The cluster's application is gone. The server needs to be started again."
_LOOK_SECONDS = 0.05
_STATUS_SECONDS = 2.0
_ANSWER_SECONDS = 60.0


class RayEngine(Engine):
    """Decodes on the replicas of a Ray Serve application of this process's cluster. Raises
    `ClusterError` if the application does not answer. `retried` counts the runs retried on
    another replica because theirs died before anything was read."""

    def __init__(self, app: str, *, max_waiting: int = MAX_WAITING) -> None:
        self.retried, self._app, self._max_waiting = 0, app, max_waiting
        try:
            handle = serve.get_app_handle(app)
            self.about, self._rows = handle.about.remote().result(timeout_s=_ANSWER_SECONDS)
        except (RayServeException, RayError, TimeoutError) as error:
            raise ClusterError(f"application {app!r} does not answer: {one_line(error)}") from None
        self.handle = handle
        self._decode = handle.options(stream=True).decode
        self._replicas = replicas_of(app) or 1
        self._lock = threading.Lock()
        self._runs = Turns[_Streamed]()  # those that are passed on are running
        self._closed = threading.Event()
        self._gone = False
        self._watcher = threading.Thread(target=self._watch, name="ray-runs", daemon=True)
        self._watcher.start()

    def start(
        self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANONYMOUS
    ) -> None:
        """Checked by the replica."""
        if self._closed.is_set():
            raise Unavailable(STOPPING)
        if self._gone:
            raise Unavailable(GONE)
        rows = request.params.num_sequences
        run = _Streamed(reader, num_rows=rows, request=seeded(request), cancel=cancel)
        with self._lock:
            dropped = self._runs.add(run, self._max_waiting)
            if dropped is run:
                raise Unavailable(FULL.format(num_rows(self._runs.waiting)))
        if dropped is not None:
            dropped.end(FinishReason.ERROR, TOO_MANY)
        self._pass_on()
        pump(self._lists(run), deliver)

    def waiting_before(self, reader: Reader) -> int | None:
        """Counts the runs of this engine."""
        load, new = self.load(), Job(reader)
        if load.running + load.waiting < load.capacity:
            return None
        with self._lock:
            order = self._runs.order([*self._runs.waiting, new])
            passed_on = [run for run in self._runs.running if not run.begun]
        return num_rows([*passed_on, *order[: order.index(new)]])

    def load(self) -> Load:
        """The load of this engine's own runs; those of other processes are not visible."""
        with self._lock:
            runs = [run for run in self._runs if not run.cancel.is_set()]
        running = num_rows(run for run in runs if run.begun)
        ready = not self._closed.is_set() and not self._gone
        waiting = num_rows(runs) - running
        return Load(ready, running, waiting, self._rows * self._replicas, self._replicas)

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._watcher.join()
        self._end(FinishReason.CANCELLED, lambda run: True)
        deadline = time.monotonic() + 1
        while self._runs and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        self.handle.shutdown()

    def _pass_on(self) -> None:
        """Let runs leave this process while the replicas have room for them."""
        most = _PASSED_ON * self._rows * max(1, self._replicas)
        with self._lock:
            while self._runs.waiting:
                run = self._runs.order(self._runs.waiting)[0]
                passed_on = num_rows(self._runs.running)
                if passed_on and passed_on + run.num_rows > most:
                    return
                self._runs.begin(run)
                run.passed_on.set()

    def _open(self, run: "_Streamed") -> None:
        reader = run.reader
        try:
            run.stream = self._decode.remote(run.request, reader.address, reader.session)
        except DeploymentUnavailableError:
            raise Unavailable(GONE) from None
        except BackPressureError:
            raise Unavailable("Too many runs are waiting. Try again in a moment.") from None
        if run.ended:  # another thread ended it just now
            run.stream.cancel()

    def _lists(self, run: "_Streamed") -> Iterator[list[Event]]:
        """Retried on other replicas until one begins, with the events that a replica could not
        send."""
        delivered, tries = DeliveredEvents(run.num_rows), 1
        try:
            run.passed_on.wait()
            if not run.ended:
                self._open(run)
            while delivered.unfinished:
                batch = None if run.ended else self._next(run)
                if isinstance(batch, list):
                    run.begun = True
                elif run.ended == FinishReason.ERROR and not run.begun:
                    raise Unavailable(run.why)
                elif run.ended:
                    batch = delivered.endings(FinishReason.CANCELLED)
                elif isinstance(batch, str) or batch is None or run.begun:
                    why = batch if isinstance(batch, str) else DIED
                    batch = delivered.endings(FinishReason.ERROR, why)
                elif batch[0] == "refused":
                    raise ValueError(batch[1])
                elif tries == MAX_TRIES:
                    raise Unavailable(DIED_WAITING)
                else:
                    time.sleep(_LOOK_SECONDS * 2**tries)  # Serve is about to replace the replica
                    tries, self.retried = tries + 1, self.retried + 1
                    self._open(run)
                    continue
                delivered.add(batch)
                yield batch
        finally:
            run.end(FinishReason.CANCELLED)
            with self._lock:
                self._runs.drop(run)
            self._pass_on()

    @staticmethod
    def _next(run: "_Streamed") -> list[Event] | Refusal | str | None:
        """Events, a refusal, or why the run failed; None if the replica sends nothing more. A dead
        replica counts as one that is unavailable."""
        batch: list[Event] | Refusal | None
        try:
            batch = next(run.stream, None)
        except RequestCancelledError:
            run.end(FinishReason.CANCELLED)
            return None
        except RayTaskError as error:
            if isinstance(error.cause, Unavailable):  # the replica lives, but its decoder has died
                return None
            return f"Decoding failed: {type(error.cause).__name__}: {error.cause}"
        except (RayServeException, RayError):  # it has died or is unreachable
            return "unavailable", ""
        return batch

    def _end(
        self, reason: FinishReason, which: "Callable[[_Streamed], bool]", why: str = ""
    ) -> None:
        with self._lock:
            runs = [run for run in self._runs if which(run)]
        for run in runs:
            run.end(reason, why)

    def _watch(self) -> None:
        """Polls the runs' cancel flags, since their readers are blocked, and the replicas."""
        looked = time.monotonic()
        while not self._closed.wait(_LOOK_SECONDS):
            self._end(FinishReason.CANCELLED, lambda run: run.cancel.is_set())
            if time.monotonic() - looked < _STATUS_SECONDS:
                continue
            try:
                running = replicas_of(self._app)
            except Exception:  # the controller restarts; the next poll succeeds
                running = self._replicas
            self._gone = running is None
            self._replicas = running or 0
            if self._gone:
                self._end(FinishReason.ERROR, lambda run: not run.begun, GONE)
            self._pass_on()
            looked = time.monotonic()


@dataclass(eq=False, kw_only=True)
class _Streamed(Job):
    """A run, and the stream of its current replica; `begun` once anything was read."""

    request: Request
    cancel: CancelFlag
    stream: Any = None  # until it is passed on
    passed_on: threading.Event = field(default_factory=threading.Event)  # or ended before
    begun: bool = False
    ended: FinishReason | None = None  # why it must end
    why: str = ""  # the same in words

    def end(self, reason: FinishReason, why: str = "") -> None:
        if self.ended is None:
            self.ended, self.why = reason, why
            self.passed_on.set()
            with suppress(Exception):  # it may have failed already, which the reader sees
                self.stream.cancel()
