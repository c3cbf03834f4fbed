"""Shares a decoder fairly: in turn between addresses, and between the sessions of each address."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Protocol, TypeVar

from naive_speculate.serving.protocol import Reader


class Shared(Protocol):
    """A run that shares a decoder. `num_rows`: number of rows it needs."""

    reader: Reader

    @property
    def num_rows(self) -> int: ...


S = TypeVar("S", bound=Shared)
Group = Callable[[Reader], Any]
GROUPS: tuple[Group, ...] = (lambda reader: reader.address, lambda reader: (reader.address, reader.session))


def by_turns(runs: Sequence[S], key: Callable[[S], float], groups: Sequence[Group] = GROUPS) -> list[S]:
    """One run of each group, then the second of each, and so on. `runs`: runs that need rows. `key`: orders the runs of a
    session. Sessions and addresses are ordered by their first run. `groups`: the groupings, the outermost first."""
    if not groups:
        return sorted(runs, key=key)
    shares: dict[Any, list[S]] = defaultdict(list)
    for run in runs:
        shares[groups[0](run.reader)].append(run)
    ordered = (by_turns(share, key, groups[1:]) for share in shares.values())
    tiers = zip_longest(*sorted(ordered, key=lambda share: min(map(key, share))))
    return [run for tier in tiers for run in tier if run is not None]


def one_too_many(waiting: Sequence[S], new: S) -> S | None:
    """The waiting run to drop for a new one: the last of the reader with most waiting, if that is more than the new one's."""
    for group in GROUPS:
        rows: Counter[Any] = Counter()
        for run in waiting:
            rows[group(run.reader)] += run.num_rows
        most = max(rows, key=rows.__getitem__, default=None)
        if most is not None and rows[most] > rows[group(new.reader)] + new.num_rows:
            return next(run for run in reversed(waiting) if group(run.reader) == most and run.num_rows >= new.num_rows)
    return None
