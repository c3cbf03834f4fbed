"""Who makes a call: its address and session, and how much of the answer has not been fetched."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

from ui.gradio_gaps import current_call, queue_of


def visitor() -> tuple[str, str]:
    """Address and session of the current call; both empty outside a call.

    The address is the connection's, or the one given by a proxy named in FORWARDED_ALLOW_IPS (uvicorn reads both). Calls
    without a session share one: otherwise every call of a program would be a new visitor.
    """
    request, _, event_id = current_call()
    if request is None:
        return "", ""
    session = request.session_hash or ""
    return address_of(request), "" if session == event_id else session


def unfetched() -> Callable[[], int]:
    """A function that counts the messages of the current call's session that nobody has fetched yet."""
    request, page, _ = current_call()
    if request is None or page is None or not request.session_hash:
        return int  # returns 0
    held, session = queue_of(page).pending_messages_per_session, request.session_hash

    def count() -> int:
        messages = held.get(session)
        return 0 if messages is None else messages.qsize()

    return count


def address_of(request: Any) -> str:
    """A request's address as visitors are counted: one IPv6 customer has a network of 2^64 addresses."""
    client = getattr(request, "client", None)
    host = client.host if client else ""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))
