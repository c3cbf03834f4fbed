"""The one scheduler: the order of readers' jobs, which one to refuse if too many wait, and
threads in which readers work in turn."""

import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import count, zip_longest
from operator import attrgetter
from typing import Any, Generic, TypeVar

from naive_speculate.serving.protocol import Reader, Unavailable

TOO_MANY = (
    "Too many of your runs are waiting, and others want to decode too. Try again in a moment."
)
GROUPS = attrgetter("address"), attrgetter("address", "session")
"""Addresses take turns; within an address, its sessions do."""
_numbers = count(1)


@dataclass(eq=False)
class Job:
    """Something that a reader waits for."""

    reader: Reader
    work: Any = None
    num_rows: int = 1  # places that it takes
    number: int = field(default_factory=partial(next, _numbers), init=False)  # grows


J = TypeVar("J", bound=Job)
T = TypeVar("T", bound=Job)
R = TypeVar("R")


def num_rows(jobs: Iterable[Job]) -> int:
    return sum(job.num_rows for job in jobs)


def by_turns(
    jobs: Iterable[T],
    key: Callable[[T], int] = lambda job: job.number,
    served: Mapping[Any, int] = {},
    groups: Sequence[Callable[[Reader], Any]] = GROUPS,
) -> list[T]:
    """One job of each group, then the second of each, and so on, the outermost groups first. `key`
    orders the jobs of a session; others are ordered by when they were `served` last, then by their
    first job."""
    if not groups:
        return sorted(jobs, key=key)
    shares: dict[Any, list[T]] = defaultdict(list)
    for job in jobs:
        shares[groups[0](job.reader)].append(job)
    order = sorted(shares, key=lambda group: (served.get(group, 0), min(map(key, shares[group]))))
    tiers = zip_longest(*(by_turns(shares[group], key, served, groups[1:]) for group in order))
    return [job for tier in tiers for job in tier if job is not None]


def refused(
    waiting: Sequence[T], new: T, most: int, size: Callable[[T], int] = lambda job: job.num_rows
) -> T | None:
    """The job to refuse if those that wait and a new one take more than `most` places: the last job
    of the reader with most waiting, if that is more than the new one's reader has; else the new
    one."""
    if sum(map(size, waiting)) + size(new) <= most:
        return None
    for group in GROUPS:
        rows = Counter[Any]()
        for job in waiting:
            rows[group(job.reader)] += size(job)
        holder = max(rows, key=rows.__getitem__, default=None)
        if holder is not None and rows[holder] > rows[group(new.reader)] + size(new):
            large = (
                job
                for job in reversed(waiting)
                if group(job.reader) == holder and size(job) >= size(new)
            )
            return next(large, new)
    return new


class Turns(Generic[J]):
    """The jobs that wait, and those that have begun and not ended. Not thread-safe."""

    def __init__(self) -> None:
        self.waiting: list[J] = []
        self.running: list[J] = []
        # when an address, or a session, had its last turn, if it has a job
        self._served: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.running) + len(self.waiting)

    def __iter__(self) -> Iterator[J]:
        return iter((*self.running, *self.waiting))

    def add(self, new: J, most: int = sys.maxsize) -> J | None:
        """Returns the refused job (see `refused`), which does not wait."""
        dropped = refused(self.waiting, new, most)
        self.waiting = [job for job in (*self.waiting, new) if job is not dropped]
        return dropped

    def drop(self, job: J) -> None:
        """It ended, or no longer waits."""
        self.waiting = [each for each in self.waiting if each is not job]
        self.running = [each for each in self.running if each is not job]

    def order(self, jobs: Iterable[T]) -> list[T]:
        """The reader who was served longest ago comes first."""
        return by_turns(jobs, served=self._served)

    def begin(self, job: J) -> None:
        self.waiting.remove(job)
        self.running.append(job)
        groups = [group(job.reader) for group in GROUPS]
        served = self._served | dict.fromkeys(groups, next(_numbers))
        here = {group(each.reader) for each in self for group in GROUPS}
        self._served = {name: served[name] for name in served.keys() & here}


class Pool:
    """Threads in which readers take turns, so that one delays the others by one piece of work at
    most. At most `most` pieces wait (see `refused`)."""

    def __init__(self, threads: int, name: str, most: int = 64) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._most = most
        self._lock = threading.Lock()
        self._turns = Turns[Job]()

    @property
    def size(self) -> int:
        return len(self._turns)

    def submit(self, work: Callable[[], R], reader: Reader) -> Future[R]:
        """In the caller's context. The result fails with `Unavailable` if it is refused."""
        result = Future[R]()
        new = Job(reader, (result, partial(copy_context().run, work)))
        with self._lock:
            dropped = self._turns.add(new, self._most)
        if dropped is not None:
            left, _ = dropped.work
            if left.set_running_or_notify_cancel():  # else its reader has left
                left.set_exception(Unavailable(TOO_MANY))
        if dropped is not new:
            self._pool.submit(self._next)
        return result

    def _next(self) -> None:
        with self._lock:
            if not self._turns.waiting:  # one was refused
                return
            turn = self._turns.order(self._turns.waiting)[0]
            self._turns.begin(turn)
            result, work = turn.work
        try:
            if result.set_running_or_notify_cancel():
                result.set_result(work())
        except Exception as error:
            result.set_exception(error)
        finally:
            with self._lock:
                self._turns.running.remove(turn)
