"""Sends the requests: several at once, within limits of number and time, until they are answered or Ctrl-C stops them."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import groupby

from rich.progress import Progress

from naive_speculate.proving.plan import Record, Request, Settings, requests
from naive_speculate.proving.server import Answer, Server, ServerError

_ATTEMPTS = 3


@dataclass
class Cost:
    """What a run took: requests sent now, their seconds, and why it stopped early ("" if it did not)."""

    num_requests: int = 0
    seconds: float = 0.0
    stopped: str = ""


class Run:
    """Sends what the record does not hold yet. `server`: where the requests go; `settings`: what they are; `record`: where the
    answers go; `max_requests`, `max_seconds`: limits of this run."""

    def __init__(self, server: Server, settings: Settings, record: Record, max_requests: int, max_seconds: float) -> None:
        self.server, self.settings, self.record = server, settings, record
        self.max_requests, self.max_seconds = max_requests, max_seconds
        self.cost = Cost()
        self._stop = threading.Event()
        self._ends = 0.0

    def __call__(self, progress: Progress) -> Cost:
        """Send them and show the progress. Raises `ServerError` if a request fails three times."""
        planned = list(requests(self.settings))
        left = [request for request in planned if request.number not in self.record.answers]
        bar = progress.add_task("requests", total=len(planned), completed=len(planned) - len(left))
        begun = time.monotonic()
        self._ends = begun + self.max_seconds
        try:
            for _, group in groupby(left, key=lambda request: request.way):
                for request, answers in self._answered(list(group)):
                    self.record.add(request, answers)
                    progress.advance(bar)
        except KeyboardInterrupt:
            self.cost.stopped = "Ctrl-C stopped it"
        finally:
            self._stop.set()
            self.cost.seconds = time.monotonic() - begun
        return self.cost

    def _answered(self, group: list[Request]) -> Iterator[tuple[Request, list[Answer]]]:
        """The requests of one way with their answers, in any order."""
        pending: dict[Future[list[Answer]], Request] = {}
        left = iter(group)
        pool = ThreadPoolExecutor(group[0].way.concurrency)
        try:
            while True:
                while len(pending) < group[0].way.concurrency and not self._limited():
                    request = next(left, None)
                    if request is None:
                        break
                    self.cost.num_requests += 1
                    pending[pool.submit(self._send, request)] = request
                if not pending:
                    return
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    yield pending.pop(future), future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _limited(self) -> bool:
        if self.cost.num_requests >= self.max_requests:
            self.cost.stopped = f"it stopped after {self.max_requests} requests"
        elif time.monotonic() >= self._ends:
            self.cost.stopped = f"it stopped after {self.max_seconds:g} s"
        return bool(self.cost.stopped)

    def _send(self, request: Request) -> list[Answer]:
        for attempt in range(_ATTEMPTS):
            try:
                return self.server.complete(self.settings.prompts[request.prompt], **request.fields(self.settings))
            except ServerError as error:
                if error.refused or attempt == _ATTEMPTS - 1 or self._stop.wait(2.0**attempt):
                    raise
        raise AssertionError("unreachable")
