"""Readers take turns: the order of their jobs, and which one to drop if too many wait."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Protocol, TypeVar

from naive_speculate.serving.protocol import Reader

TOO_MANY = (
    "Too many of your runs are waiting, and others want to decode too. Try again in a moment."
)

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


def one_too_many(waiting: Sequence[T], new: T) -> T | None:
    """The waiting job to drop for a new one: the last of the reader with most waiting, if that
    is more than the new one's."""
    for group in GROUPS:
        rows = Counter[Any]()
        for job in waiting:
            rows[group(job.reader)] += job.num_rows
        most = max(rows, key=rows.__getitem__, default=None)
        if most is not None and rows[most] > rows[group(new.reader)] + new.num_rows:
            large = (
                job
                for job in reversed(waiting)
                if group(job.reader) == most and job.num_rows >= new.num_rows
            )
            return next(large, None)
    return None
