"""Visitors: who makes a call, the threads in which they take turns, and how many bytes the server
may keep for them, and keeps, measured on the objects themselves."""

import gc
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address, ip_network
from types import FunctionType, ModuleType
from typing import Any

from naive_speculate.models.memory import free_memory
from naive_speculate.serving.turns import Pool
from ui.host.process import current_call, queue_of

VISITOR_BYTES = 64 * 2**20  # limit per visitor
TOTAL_BYTES = 256 * 2**20  # limit for all visitors together
OVERHEAD = 1.2
"""Resident memory per byte that `sys.getsizeof` reports: 1.17 over 56,000 events of opened
traces (glibc, Python 3.11)."""
MANY_BYTES = 2**20
GIVE_BACK_SECONDS = 1.0
_giving_back = threading.Lock()
_SHARED = (
    type,
    Enum,
    ModuleType,
    FunctionType,
)  # belongs to the program, not to the value that refers to it


def visitor() -> tuple[str, str]:
    """Address and session of the current call; both empty outside a call.

    The address is the connection's, or the one given by a proxy named in FORWARDED_ALLOW_IPS
    (uvicorn reads both). Calls without a session share one: otherwise every call of a program
    would be a new visitor.
    """
    request, _, event_id = current_call()
    if request is None:
        return "", ""
    session = request.session_hash or ""
    return address_of(request), "" if session == event_id else session


def unfetched() -> Callable[[], int]:
    """A function that counts the messages of the current call's session that nobody has fetched
    yet."""
    request, page, _ = current_call()
    if request is None or page is None or not request.session_hash:
        return int  # returns 0
    held, session = queue_of(page).pending_messages_per_session, request.session_hash
    return lambda: messages.qsize() if (messages := held.get(session)) else 0


def address_of(request: Any) -> str:
    """A request's address as visitors are counted: one IPv6 customer has a network of 2^64
    addresses."""
    client = getattr(request, "client", None)
    host = client.host if client else ""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # another name
        return False


STARTING = Pool(4, "starting")  # checks requests: tokenizing a long prompt takes time
GUIDING = Pool(2, "guiding")  # checks requests with a guide, which may take seconds to compile
MEASURING = Pool(1, "measuring")  # one measurement at a time, since each takes all cores


@dataclass
class Weighed:
    """A value of known size, which is not measured again."""

    value: Any
    size: int


def weight(values: Iterable[object]) -> int:
    """The size of these values in bytes, with everything they refer to."""
    objects, counted = list(values), set[int]()
    total = known = 0
    while objects:
        new = {
            id(one): one
            for one in objects
            if id(one) not in counted and not isinstance(one, _SHARED)
        }
        counted |= new.keys()
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
