"""Who asks: the address and the session that a call comes from, and how much of its answer has not been fetched."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network

from gradio.context import LocalContext


def visitor() -> tuple[str, str]:
    """Address and session of the call that is being answered; both empty outside of one.

    The address is the connection's, or what a proxy named in FORWARDED_ALLOW_IPS says (uvicorn reads both). Calls without a
    session are one session together: else a program would be a new visitor with every call.
    """
    request = LocalContext.request.get(None)
    if request is None:
        return "", ""
    client = getattr(request, "client", None)
    session = request.session_hash or ""
    return _address(client.host if client else ""), "" if session == LocalContext.event_id.get(None) else session


def unfetched() -> Callable[[], int]:
    """A function that counts the messages of the call that is being answered, and of others of its session, that Gradio holds
    because nobody has fetched them."""
    request, blocks = LocalContext.request.get(None), LocalContext.blocks.get(None)
    if request is None or blocks is None or not request.session_hash:
        return int  # which gives 0
    held, session = blocks._queue.pending_messages_per_session, request.session_hash

    def count() -> int:
        messages = held.get(session)
        return 0 if messages is None else messages.qsize()

    return count


def _address(host: str) -> str:
    """An address as one counts visitors: a network of IPv6 is one customer's, who has 2^64 addresses in it."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))
