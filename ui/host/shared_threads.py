"""Threads in which visitors take turns: what one of them sends delays the others by one piece of work at most."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from naive_speculate.serving.protocol import Reader
from naive_speculate.serving.turns import GROUPS, TOO_MANY, one_too_many
from ui.host.catalog import Trouble

MOST_WAITING = 64
T = TypeVar("T")


class _Work:
    """A visitor's piece of work; `number` increases with every piece."""

    num_rows = 1

    def __init__(self, work: Callable[[], Any], reader: Reader, number: int) -> None:
        self.work, self.reader, self.number = work, reader, number
        self.result: Future[Any] = Future()


class Turns:
    """So many threads. If more than `most` pieces wait, the newest one of the visitor with the most waiting ones is refused."""

    def __init__(self, threads: int, name: str, most: int = MOST_WAITING) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._most = most
        self._lock = threading.Lock()
        self._waiting: list[_Work] = []
        self._served: dict[Any, int] = {}  # the number of the last piece begun for an address, and for a session
        self._number = self._begun = self._running = 0

    @property
    def size(self) -> int:
        """How many pieces wait or are being worked on."""
        return len(self._waiting) + self._running

    def submit(self, work: Callable[[], T], reader: Reader) -> Future[T]:
        """Work for a visitor in a thread. It fails with `Trouble` if it is refused."""
        with self._lock:
            self._number += 1
            refused, new = None, _Work(work, reader, self._number)
            if len(self._waiting) >= self._most:
                refused = one_too_many(self._waiting, new) or new
            self._waiting = [each for each in (*self._waiting, new) if each is not refused]
        if refused is not None and refused.result.set_running_or_notify_cancel():  # else its visitor has left
            refused.result.set_exception(Trouble(TOO_MANY))
        if refused is not new:
            self._pool.submit(self._next)
        return new.result

    def _next(self) -> None:
        with self._lock:
            if not self._waiting:  # one was refused
                return
            turn = min(self._waiting, key=self._place)
            self._waiting.remove(turn)
            self._running += 1
            self._begun += 1
            known = {group(each.reader) for each in self._waiting for group in GROUPS}
            self._served = {name: number for name, number in self._served.items() if name in known}
            self._served |= {group(turn.reader): self._begun for group in GROUPS}
        try:
            if turn.result.set_running_or_notify_cancel():
                turn.result.set_result(turn.work())
        except Exception as error:
            turn.result.set_exception(error)
        finally:
            with self._lock:
                self._running -= 1

    def _place(self, each: _Work) -> tuple[int, ...]:
        """Who was served longest ago comes first."""
        return *(self._served.get(group(each.reader), 0) for group in GROUPS), each.number


STARTING = Turns(4, "starting")  # checks requests: tokenizing a long prompt takes time
GUIDING = Turns(2, "guiding")  # checks requests with a guide, which may take seconds to compile
