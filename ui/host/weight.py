"""How many bytes the server may keep for its visitors, and how many it keeps, measured on the objects themselves."""

import gc
import sys
import threading
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

from naive_speculate.infer.memory import free_memory

VISITOR_BYTES = 64 * 2**20  # limit per visitor
TOTAL_BYTES = 256 * 2**20  # limit for all visitors together
OVERHEAD = 1.2
"""Resident memory per byte that `sys.getsizeof` reports: 1.17 over 56,000 events of opened traces (glibc, Python 3.11)."""
MANY_BYTES = 2**20
GIVE_BACK_SECONDS = 1.0
CHUNK = 256  # values measured at once, which bounds the memory of the measurement. Objects shared by two chunks count twice
_giving_back = threading.Lock()
_SHARED = (type, Enum, ModuleType, FunctionType)  # belongs to the program, not to the value that refers to it


class Weighed:
    """A value of known size, which is not measured again."""

    def __init__(self, value: Any, size: int) -> None:
        self.value = value
        self.size = size


def weight(values: Iterable[object]) -> int:
    """The size of these values in bytes, with everything they refer to."""
    rest = iter(values)
    return sum(map(_weight, iter(lambda: list(islice(rest, CHUNK)), [])))


def _weight(objects: list[object]) -> int:
    seen: set[int] = set()
    total = known = 0
    while objects:
        new = {id(one): one for one in objects if id(one) not in seen and not isinstance(one, _SHARED)}
        seen |= new.keys()
        known += sum(one.size for one in new.values() if isinstance(one, Weighed))
        total += sum(map(sys.getsizeof, new.values()))
        objects = gc.get_referents(*(one for one in new.values() if not isinstance(one, Weighed)))
    return int(OVERHEAD * total) + known


def give_back(freed: int) -> None:
    """Return free memory to the system in a moment, when the last reference to it is gone."""

    def soon() -> None:
        _giving_back.release()
        free_memory()

    if freed > MANY_BYTES and _giving_back.acquire(blocking=False):
        timer = threading.Timer(GIVE_BACK_SECONDS, soon)
        timer.daemon = True
        timer.start()
