"""An engine whose replicas run on Ray Serve; this process is their client.

A run whose replica dies before anything was read is retried on another; its seed is fixed, so it is the same run. A run that
had begun ends with an error message.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException, RequestCancelledError

from naive_speculate.events import Event, FinishReason
from naive_speculate.sampling.random_source import fresh_seed
from naive_speculate.serving.delivery import DeliveredEvents, pump
from naive_speculate.serving.local import MAX_WAITING
from naive_speculate.serving.protocol import ANONYMOUS, STOPPING, About, Deliver, Load, Reader, Request, Unavailable, entered
from naive_speculate.serving.ray.cluster import Cluster, ClusterError, one_line, replicas_of
from naive_speculate.speculate.sequence import CancelFlag

MAX_TRIES = 3  # limits the replicas that a request can crash
DIED = "The machine that decoded this run is gone. Run it again: the same seed gives the same text."
DIED_WAITING = "Several machines failed before this run could start. Try again in a minute."
GONE = "The cluster's application is gone. The server needs to be started again."
_LOOK_SECONDS = 0.05
_STATUS_SECONDS = 2.0
_ANSWER_SECONDS = 60.0


class RayEngine:
    """Decodes on the replicas of a Ray Serve application; an `Engine`. `close` leaves the cluster. Raises `ClusterError` if the
    application does not answer. `retried` counts the runs retried on another replica because theirs died before anything was
    read."""

    def __init__(self, app: str, cluster: Cluster, *, max_waiting: int = MAX_WAITING) -> None:
        self.retried = 0
        self._app = app
        self._cluster = cluster
        self._max_waiting = max_waiting
        try:
            handle = serve.get_app_handle(app)
            self.about: About
            self.about, self._rows = handle.about.remote().result(timeout_s=_ANSWER_SECONDS)
        except (RayServeException, RayError, TimeoutError) as error:
            raise ClusterError(f"application {app!r} does not answer: {one_line(error)}") from None
        self.handle = handle
        self._decode = handle.options(stream=True).decode
        self._replicas = replicas_of(app) or 1
        self._lock = threading.Lock()
        self._runs: set[_Run] = set()
        self._closed = threading.Event()
        self._gone = False
        cluster.join()
        self._watcher = threading.Thread(target=self._watch, name="ray-runs", daemon=True)
        self._watcher.start()

    def submit(self, request: Request, cancel: CancelFlag | None = None, reader: Reader = ANONYMOUS) -> Iterator[list[Event]]:
        """Decode a request (see `Engine`); the replica checks it, so the iteration raises for invalid fields."""
        if self._closed.is_set():
            raise Unavailable(STOPPING)
        if self._gone:
            raise Unavailable(GONE)
        if request.params.seed is None:
            request = replace(request, params=replace(request.params, seed=fresh_seed()))
        with self._lock:
            waiting = sum(run.rows for run in self._runs if not run.begun)
        if waiting + request.params.num_sequences > self._max_waiting:
            raise Unavailable(f"{waiting} others are waiting, which is the limit. Try again in a moment.")
        run = _Run(request, cancel, self._request_stream, self._forget)
        with self._lock:
            self._runs.add(run)
        return entered(_read(run))

    def start(self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANONYMOUS) -> None:
        pump(self.submit(request, cancel), deliver)

    def waiting_before(self, reader: Reader) -> int | None:
        """Counts the runs of this engine."""
        load = self.load()
        return load.waiting if load.running + load.waiting >= load.capacity else None

    def load(self) -> Load:
        """The load of this engine's own runs; those of other processes are not visible."""
        with self._lock:
            running = sum(run.rows for run in self._runs if run.begun)
            waiting = sum(run.rows for run in self._runs if not run.begun)
        ready = not self._closed.is_set() and not self._gone
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
        self._cluster.leave()

    def _request_stream(self, request: Request, again: bool) -> Any:
        if again:
            self.retried += 1
        try:
            return self._decode.remote(request)
        except DeploymentUnavailableError:
            raise Unavailable(GONE) from None
        except BackPressureError:
            raise Unavailable("Too many runs are waiting. Try again in a moment.") from None

    def _forget(self, run: "_Run") -> None:
        with self._lock:
            self._runs.discard(run)

    def _end(self, reason: FinishReason, which: "Callable[[_Run], bool]") -> None:
        with self._lock:
            runs = [run for run in self._runs if which(run)]
        for run in runs:
            run.end(reason)

    def _watch(self) -> None:
        """Poll the runs' cancel flags, since their readers are blocked, and the replicas."""
        looked = time.monotonic()
        while not self._closed.wait(_LOOK_SECONDS):
            self._end(FinishReason.CANCELLED, _Run.cancel_requested)
            if time.monotonic() - looked < _STATUS_SECONDS:
                continue
            try:
                found = replicas_of(self._app)
            except Exception:  # the controller restarts; the next poll succeeds
                found = self._replicas
            self._gone = found is None
            self._replicas = found or 0
            if self._gone:
                self._end(FinishReason.ERROR, lambda run: not run.begun)
            looked = time.monotonic()


def _read(run: "_Run") -> Generator[list[Event], None, None]:
    """The run's lists; closes the run when its reader leaves, since the engine holds a reference to it."""
    try:
        yield []
        yield from run
    finally:
        run.close()


class _Run(Iterator[list[Event]]):
    """An iterator over one run's lists of events. `rows`: number of sequences; `begun`: whether anything was read."""

    def __init__(
        self,
        request: Request,
        cancel: CancelFlag | None,
        request_stream: Callable[[Request, bool], Any],
        forget: Callable[["_Run"], None],
    ) -> None:
        self.rows = request.params.num_sequences
        self.begun = False
        self._request, self._cancel = request, cancel
        self._request_stream, self._forget = request_stream, forget
        self._delivered = DeliveredEvents(self.rows)
        self._ended: FinishReason | None = None
        self._over = False
        self._tries = 1
        self._stream = request_stream(request, False)

    def cancel_requested(self) -> bool:
        """Whether cancellation is requested and not yet processed."""
        return self._ended is None and self._cancel is not None and self._cancel.is_set()

    def end(self, reason: FinishReason) -> None:
        """End the run, here and in the replica."""
        if self._ended is None:
            self._ended = reason
            with suppress(Exception):  # it may have failed already, which the reader sees
                self._stream.cancel()

    def close(self) -> None:
        """End the run because its reader leaves."""
        if not self._over:
            self.end(FinishReason.CANCELLED)
            self._leave()

    def __next__(self) -> list[Event]:
        while not self._over:
            if self._ended is not None:
                return self._cancelled()
            try:
                found = next(self._stream)
            except StopIteration:
                return self._finish(FinishReason.ERROR, DIED)
            except RequestCancelledError:
                return self._cancelled()
            except RayTaskError as error:
                cause = error.cause
                if isinstance(cause, Unavailable):  # the replica lives, but its decoder has died
                    return self._finish(FinishReason.ERROR, DIED)
                return self._finish(FinishReason.ERROR, f"Decoding failed: {type(cause).__name__}: {cause}")
            except (RayServeException, RayError):  # its replica has died or is unreachable
                if self._ended is not None:
                    continue
                if self.begun:
                    return self._finish(FinishReason.ERROR, DIED)
                self._run_again()
                continue
            except BaseException:
                self.close()
                raise
            if isinstance(found, tuple):
                self._refused(*found)
                continue
            self.begun = True
            self._delivered.add(found)
            if not self._delivered.unfinished:
                self._leave()
            return found
        raise StopIteration

    def _cancelled(self) -> list[Event]:
        if self._ended == FinishReason.ERROR and not self.begun:
            self._leave()
            raise Unavailable(GONE)
        return self._finish(FinishReason.CANCELLED)

    def _refused(self, why: str, message: str) -> None:
        if why == "unavailable":  # Serve is about to replace the replica
            time.sleep(_LOOK_SECONDS * 2**self._tries)
            self._run_again()
            return
        self._leave()
        raise ValueError(message)

    def _run_again(self) -> None:
        """Retry it on another replica; nothing was read yet."""
        if self._tries >= MAX_TRIES:
            self._leave()
            raise Unavailable(DIED_WAITING)
        self._tries += 1
        self._stream = self._request_stream(self._request, True)
        if self._ended is not None:  # another thread ended the previous stream just now
            self._stream.cancel()

    def _finish(self, reason: FinishReason, message: str | None = None) -> list[Event]:
        """The last events, which the replica could not send."""
        self._leave()
        events = self._delivered.endings(reason, message)
        if not events:
            raise StopIteration
        return events

    def _leave(self) -> None:
        self._over = True
        self._forget(self)
