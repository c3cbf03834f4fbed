"""Readers take turns: the order of their jobs, which one to refuse if too many wait, and threads
in which they work in turn."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol, TypeVar

from naive_speculate.serving.protocol import Reader, Unavailable

TOO_MANY = (
    "Too many of your runs are waiting, and others want to decode too. Try again in a moment."
)

MOST_WAITING = 64

_Group = Callable[[Reader], Any]
GROUPS: tuple[_Group, ...] = (
    lambda reader: reader.address,
    lambda reader: (reader.address, reader.session),
)
"""The decoder is shared between addresses, and between the sessions of each."""


class Job(Protocol):
    """Something that a reader waits for."""

    reader: Reader

    @property
    def num_rows(self) -> int:
        """How many places it takes."""


T = TypeVar("T", bound=Job)
R = TypeVar("R")


def by_turns(
    jobs: Sequence[T], key: Callable[[T], float], groups: Sequence[_Group] = GROUPS
) -> list[T]:
    """One job of each group, then the second of each, and so on, the outermost groups first.
    `key` orders the jobs of a session; sessions and addresses are ordered by their first job."""
    if not groups:
        return sorted(jobs, key=key)
    shares: dict[Any, list[T]] = defaultdict(list)
    for job in jobs:
        shares[groups[0](job.reader)].append(job)
    ordered = (by_turns(share, key, groups[1:]) for share in shares.values())
    tiers = zip_longest(*sorted(ordered, key=lambda share: min(map(key, share))))
    return [job for tier in tiers for job in tier if job is not None]


def refused(waiting: Sequence[T], new: T, most: int) -> T | None:
    """The job to refuse when a new one comes to those that wait; None if they have room for it,
    `most` places in all. It is the last job of the reader with most waiting, if that is more than
    the new one's reader has; else the new one."""
    if sum(job.num_rows for job in waiting) + new.num_rows <= most:
        return None
    for group in GROUPS:
        rows = Counter[Any]()
        for job in waiting:
            rows[group(job.reader)] += job.num_rows
        holder = max(rows, key=rows.__getitem__, default=None)
        if holder is not None and rows[holder] > rows[group(new.reader)] + new.num_rows:
            large = (
                job
                for job in reversed(waiting)
                if group(job.reader) == holder and job.num_rows >= new.num_rows
            )
            return next(large, new)
    return new


@dataclass(eq=False)
class _Work:
    """A reader's piece of work."""

    work: Callable[[], Any]
    reader: Reader
    number: int  # increases with every piece
    result: Future[Any] = field(default_factory=Future)
    num_rows: int = 1


class Pool:
    """So many threads in which readers take turns, so that one delays the others by one piece of
    work at most. If more than `most` pieces wait, the newest one of the reader with the most
    waiting ones is refused."""

    def __init__(self, threads: int, name: str, most: int = MOST_WAITING) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._most = most
        self._lock = threading.Lock()
        self._waiting: list[_Work] = []
        self._served: dict[
            Any, int
        ] = {}  # the number of the last piece begun for an address, and for a session
        self._number = self._begun = self._running = 0

    @property
    def size(self) -> int:
        return len(self._waiting) + self._running

    def submit(self, work: Callable[[], R], reader: Reader) -> Future[R]:
        """Work for a reader in a thread, in the caller's context. It fails with `Unavailable` if
        it is refused."""
        with self._lock:
            self._number += 1
            new = _Work(partial(copy_context().run, work), reader, self._number)
            dropped = refused(self._waiting, new, self._most)
            self._waiting = [each for each in (*self._waiting, new) if each is not dropped]
        if (
            dropped is not None and dropped.result.set_running_or_notify_cancel()
        ):  # else its reader has left
            dropped.result.set_exception(Unavailable(TOO_MANY))
        if dropped is not new:
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
