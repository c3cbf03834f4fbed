"""Sends the requests: several at once, within limits of number and time, until they are answered or Ctrl-C stops them."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
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
    """Sends what the record does not hold yet, within limits of requests and seconds."""

    def __init__(self, server: Server, settings: Settings, record: Record, max_requests: int, max_seconds: float) -> None:
        self.server, self.settings, self.record = server, settings, record
        self.max_requests, self.max_seconds = max_requests, max_seconds
        self.cost = Cost()
        self._lock, self._stop, self._began = threading.Lock(), threading.Event(), time.monotonic()

    def __call__(self, progress: Progress) -> Cost:
        """Send them and show the progress. Raises `ServerError` if a request fails three times."""
        planned = list(requests(self.settings))
        left = [request for request in planned if request.number not in self.record.answers]
        bar = progress.add_task("requests", total=len(planned), completed=len(planned) - len(left))
        try:
            for way, group in groupby(left, key=lambda request: request.way):
                pool = ThreadPoolExecutor(way.concurrency)
                try:
                    sent = {pool.submit(self._send, request): request for request in group}
                    for future in as_completed(sent):
                        if (answers := future.result()) is not None:
                            self.record.add(sent[future], answers)
                            progress.advance(bar)
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
        except KeyboardInterrupt:
            self.cost.stopped = "Ctrl-C stopped it"
        finally:
            self._stop.set()
            self.cost.seconds = time.monotonic() - self._began
        return self.cost

    def _begins(self) -> bool:
        """Count a request that begins; False if a limit is reached."""
        with self._lock:
            if self.cost.num_requests >= self.max_requests:
                self.cost.stopped = f"it stopped after {self.max_requests} requests"
            elif time.monotonic() - self._began >= self.max_seconds:
                self.cost.stopped = f"it stopped after {self.max_seconds:g} s"
            self.cost.num_requests += not self.cost.stopped
            return not self.cost.stopped

    def _send(self, request: Request) -> list[Answer] | None:
        """The answers; None if a limit was reached before."""
        for attempt in range(_ATTEMPTS if self._begins() else 0):
            try:
                return self.server.complete(self.settings.prompts[request.prompt], **request.fields(self.settings))
            except ServerError as error:
                if error.refused or attempt == _ATTEMPTS - 1 or self._stop.wait(2.0**attempt):
                    raise
        return None
