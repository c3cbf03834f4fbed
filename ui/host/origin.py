"""The page's own address, which no visitor's header decides; what the page may load, and who may frame it."""

import os
import re
from collections.abc import Iterable
from ipaddress import ip_address
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.gradio_gaps import use_root_url

OURS = frozenset({"localhost", "127.0.0.1", "::1"})
HOST = re.compile(r"(?:([\w.-]+)|\[([0-9a-f:.]+)\])(?::\d{1,5})?", re.ASCII)
HUGGING_FACE = "https://huggingface.co https://*.huggingface.co https://*.hf.space"
POLICY = {
    "default-src": "'self'",
    # Gradio compiles text to functions (`js=`, `js_on_load`).
    "script-src": "'self' 'unsafe-eval' 'nonce-{nonce}'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self' data: blob:",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
    "frame-ancestors": f"'self' {HUGGING_FACE}",
}
"""What the page may load, and who may frame it."""
ON_A_SPACE = ("img-src", "connect-src")  # Gradio's bar on Spaces calls the Hub
INLINE = re.compile(rb"<script(?=[\s>])")
MARK = b"<gradio-app"  # the tag in Gradio's HTML that the page replaces


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # another name
        return False


def trust(listed: Iterable[str], host: str | None) -> None:
    """Let Gradio derive the page's address from known names only: this machine's, the Space's, the operator's `listed` ones and
    the `host` that the server listens on.

    It would trust `Host`, `X-Forwarded-Host` and `X-Gradio-Server`. Under any other name the address is relative, and browsers
    resolve it against the page's own.
    """
    names = {name.lower() for name in (*OURS, *listed, host, os.environ.get("SPACE_HOST")) if name}

    def root_of(request: HttpRequest, route_path: str, root_path: str | None) -> str:
        path = (root_path or "").rstrip("/")
        if path.startswith(("http://", "https://")):
            return path
        asked = request.headers.get("x-forwarded-host") or request.headers.get("host") or ""
        host = asked.split(",")[0].strip().lower()
        found = HOST.fullmatch(host)
        if found is None or (found[1] or found[2]) not in names:
            return path
        secure = request.headers.get("x-forwarded-proto", request.url.scheme).split(",")[0].strip() == "https"
        return f"http{'s' * secure}://{host}{path}"

    use_root_url(root_of)


class Headers:
    """Middleware that adds security headers to each answer, and its nonce to a page's scripts. Markup that is visible `before`
    Gradio's page runs is inserted there."""

    def __init__(self, app: ASGIApp, before: str = "") -> None:
        self._app = app
        self._before = before.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = token_urlsafe(16)
        held: Message | None = None  # the start of a page, until its length is known
        body = bytearray()

        async def marked(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"
                headers["Content-Security-Policy"] = policy(nonce, embedded=bool(parse_qs(scope["query_string"]).get(b"embed")))
                if headers.get("content-type", "").startswith("text/html"):
                    held = message
                    return
            elif held is not None:
                body.extend(message.get("body", b""))
                if message.get("more_body"):
                    return
                page = bytes(body).replace(MARK, self._before + MARK, 1)
                page = INLINE.sub(b'<script nonce="%s"' % nonce.encode(), page)
                if scope["method"] != "HEAD":
                    MutableHeaders(scope=held)["content-length"] = str(len(page))
                await send(held)
                message = {"type": "http.response.body", "body": page}
            await send(message)

        await self._app(scope, receive, marked)


def policy(nonce: str, *, embedded: bool = False) -> str:
    """The content security policy of an answer whose scripts have this nonce. If the page is `embedded` in slides, these may be
    anywhere, even in a file."""
    parts: dict[str, Any] = dict(POLICY)
    if embedded:
        del parts["frame-ancestors"]
    if os.environ.get("SPACE_HOST"):
        parts |= {name: f"{parts[name]} {HUGGING_FACE}" for name in ON_A_SPACE}
    return "; ".join(f"{name} {value}" for name, value in parts.items()).replace("{nonce}", nonce)
