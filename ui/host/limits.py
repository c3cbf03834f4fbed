"""Limits on requests: no uploads, no large body except a trace, and few of those at once.
Malformed calls are answered with status 4xx and the reason, and logged in one line without their
content. Answers are compressed and have security headers."""

import asyncio
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from secrets import token_urlsafe
from typing import Any
from weakref import WeakValueDictionary

import gradio as gr
from anyio.to_thread import run_sync
from fastapi.exceptions import RequestValidationError
from gradio.route_utils import FnIndexInferError
from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.host.errors import LOGGER, trail, unreadable
from ui.host.process import is_server_function, page_address, queue_of
from ui.host.visitors import address_of

MAX_TRACE_BYTES = 32 * 1024 * 1024
TRACES = "/trace"  # the address that accepts traces (see `ui.run.recorded.traces`)
# limit for any other call. JSON takes up to 20 times its length in memory
MAX_BODY_BYTES = 4 * 2**20
MAX_BODIES_BYTES = 3 * MAX_TRACE_BYTES  # limit for all bodies that are being received
BODY_SECONDS = 60.0  # longest time to receive a body
UNUSED = tuple(
    f"/gradio_api/{name}"
    for name in ("upload", "upload_progress", "process_recording", "deep_link", "dev/reload")
)
"""Addresses that nothing here needs: Gradio writes to the disk what anybody sends, and looks
twenty times a second for changes of the program, for each reader."""
# answers that take long to prepare, and nothing else
PREPARED = "", "/config", "/gradio_api/info"
MOST_SESSION_CHARACTERS = 100  # longest session name; Gradio keeps thousands of them
KINDS = (
    "queue/join|queue/data|call/v2|call|run|api|component_server|cancel|reset|heartbeat|stream|mcp"
)
CALL = re.compile(rf"/gradio_api/({KINDS})(?=/|$)")
MALFORMED = (FnIndexInferError, LookupError, TypeError, ValueError, AttributeError, AssertionError)
"""What Gradio raises when it looks up a name in a call. The called function raises elsewhere, in
the queue (see `Page`)."""

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
PREVIEW = re.compile(rb'<meta\s+(?:property="og:|name="twitter:)[^>]*>\s*')  # Gradio's own tags
MARK = b"<gradio-app"  # the tag in Gradio's HTML that the first view precedes
Arrive = Callable[[str, Mapping[str, str]], tuple[str, str]]
"""From a page's address and query to the tags of its head, in place of Gradio's, that say what
posted links show, and to markup that is visible before Gradio's page runs."""


class Guard:
    """Middleware that refuses large bodies and reads of unknown calls, and reports failures
    without the request's content.

    The server prepares the page once at a time for each address: it takes 35 ms, and threads
    that prepare forty pages keep the interpreter from the decoder.
    """

    def __init__(self, app: ASGIApp, page: gr.Blocks | None = None) -> None:
        self._app = app
        self._page = page
        self.receiving = 0  # bytes of all bodies
        self._preparing = WeakValueDictionary[str, asyncio.Lock]()  # by address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        async with AsyncExitStack() as turn:
            if scope["path"].rstrip("/") in PREPARED:
                lock = self._preparing.setdefault(address_of(HttpRequest(scope)), asyncio.Lock())
                await turn.enter_async_context(lock)
            await self._answer(scope, receive, send, turn)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, turn: AsyncExitStack
    ) -> None:
        """Answer a request. Its turn ends when the answer begins: the client may read slowly."""
        call = CALL.search(scope["path"])
        kind = call[1] if call else ""  # without the part of the address that anybody may write
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await turn.aclose()
            if kind in ("run", "api", "mcp") and message.get("status") == 500:
                # Gradio answers 500 to any wrong call; our own failures are logged
                message["status"] = 400
            if kind and 400 <= message.get("status", 200) < 500:
                LOGGER.warning("refused %s %s: %d", scope["method"], kind, message["status"])
            try:
                await send(message)
            except RuntimeError as error:
                if "TCPTransport" in str(error):  # uvloop says so if the client has left
                    while (await receive())[
                        "type"
                    ] != "http.disconnect":  # before it notes this itself, uvicorn would complain
                        pass
                    raise ClientDisconnect from None
                raise

        large = scope["path"].endswith(TRACES) and "/gradio_api/" not in scope["path"]
        body = _Body(self, receive, MAX_TRACE_BYTES if large else MAX_BODY_BYTES)
        announced = dict(scope["headers"]).get(b"content-length", b"")
        try:
            if announced.isdigit():
                body.check(int(announced[:20]))
            if scope["path"].rstrip("/").endswith(UNUSED):
                raise HTTPException(
                    403,
                    "this page does not use this address: it accepts no uploads and keeps no files",
                )
            if kind and self._page is not None and scope["method"] == "GET":
                check_read(self._page, kind, scope)
            await self._app(scope, body.receive, watched)
        except ClientDisconnect:  # there is nobody to answer
            pass
        except Exception as error:
            answer = _answer_to(error, kind)
            if not begun:
                await answer(scope, receive, watched)
        finally:
            self.receiving -= body.taken


class _Body:
    """A request's body while it arrives; `taken` bytes so far."""

    def __init__(self, guard: Guard, receive: Receive, most: int) -> None:
        self._guard, self._receive, self._most = guard, receive, most
        self._over = False
        self._until = 0.0
        self.taken = 0

    def check(self, size: int) -> None:
        if size > self._most:
            raise HTTPException(413, f"the body may have at most {self._most} bytes")

    async def receive(self) -> Message:
        """The next part of the body; after the last one, the end of the connection."""
        if self._over:
            return await self._receive()
        self._until = self._until or asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                408, f"the body did not arrive within {BODY_SECONDS:.0f} seconds"
            ) from None
        size = len(message.get("body", b""))
        self._over = not message.get("more_body", False)
        self.check(self.taken + size)
        if self._guard.receiving + size > MAX_BODIES_BYTES:
            raise HTTPException(
                503, "the server is receiving as much as it can handle; try again in a moment"
            )
        self._guard.receiving += size
        self.taken += size
        return message


def _answer_to(error: Exception, kind: str) -> Response:
    """The answer to a malformed call, or if the server itself failed, which the operator sees."""
    if isinstance(error, HTTPException):
        return JSONResponse({"detail": error.detail}, error.status_code)
    if kind and isinstance(error, MALFORMED):
        return JSONResponse({"detail": "there is no such function, or it does not take this"}, 404)
    LOGGER.error(trail(error))
    return JSONResponse({"detail": "the server could not do this"}, 500)


class Headers:
    """Middleware that adds security headers to each answer, its nonce to a page's scripts, and
    to the page what it shows on arrival."""

    def __init__(self, app: ASGIApp, arrive: Arrive | None = None) -> None:
        self._app = app
        self._arrive = arrive

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
                embedded = bool(HttpRequest(scope).query_params.get("embed"))
                headers["Content-Security-Policy"] = policy(nonce, embedded=embedded)
                if headers.get("content-type", "").startswith("text/html"):
                    held = message
                    return
            elif held is not None:
                body.extend(message.get("body", b""))
                if message.get("more_body"):
                    return
                page = bytes(body)
                if self._arrive is not None:
                    asked = HttpRequest(scope)
                    tags, first = self._arrive(page_address(asked), asked.query_params)
                    page = page.replace(MARK, first.encode() + MARK, 1)
                    page = PREVIEW.sub(b"", page).replace(b"</head>", tags.encode() + b"</head>", 1)
                page = INLINE.sub(b'<script nonce="%s"' % nonce.encode(), page)
                if scope["method"] != "HEAD":
                    MutableHeaders(scope=held)["content-length"] = str(len(page))
                await send(held)
                message = {"type": "http.response.body", "body": page}
            await send(message)

        await self._app(scope, receive, marked)


def policy(nonce: str, *, embedded: bool = False) -> str:
    """The content security policy of an answer whose scripts have this nonce. If the page is
    `embedded` in slides, these may be anywhere, even in a file."""
    parts: dict[str, Any] = dict(POLICY)
    if embedded:
        del parts["frame-ancestors"]
    if os.environ.get("SPACE_HOST"):
        parts |= {name: f"{parts[name]} {HUGGING_FACE}" for name in ON_A_SPACE}
    return "; ".join(f"{name} {value}" for name, value in parts.items()).replace("{nonce}", nonce)


def server_options(
    routes: Sequence[BaseRoute] = (),
    page: gr.Blocks | None = None,
    arrive: Arrive | None = None,
) -> dict[str, Any]:
    """The `app_kwargs` of Gradio's `launch`: our middleware for a page, and these routes;
    `arrive` as for `Headers`."""
    # all but event streams; Gradio zips only its files
    zipped = Middleware(GZipMiddleware, minimum_size=2000, compresslevel=6)
    return {
        "routes": [*routes],  # they take precedence over Gradio's
        "middleware": [
            zipped,
            Middleware(Headers, arrive=arrive),
            Middleware(Guard, page=page),
        ],
        "exception_handlers": {RequestValidationError: unreadable},
    }


class ServerCall(BaseModel):
    """The browser's call of a component's server function."""

    data: Any = None
    component_id: int
    fn_name: str
    session_hash: str = Field("", max_length=MOST_SESSION_CHARACTERS)


def server_functions(page: gr.Blocks) -> Route:
    """The route of components' server functions; it replaces Gradio's (see
    `is_server_function`)."""

    async def answer(request: HttpRequest) -> Response:
        try:
            call = ServerCall.model_validate_json(await request.body())
        except ValidationError:
            raise HTTPException(
                422, "a call has data, a component_id, a fn_name and a session_hash"
            ) from None
        component = page.blocks.get(call.component_id)
        function: Any = getattr(component, call.fn_name, None)
        if not is_server_function(function):
            raise HTTPException(404, "there is no such component, or it has no such function")
        if inspect.iscoroutinefunction(function):
            return JSONResponse(await function(call.data))
        return JSONResponse(await run_sync(function, call.data, limiter=page.limiter))

    return Route("/gradio_api/component_server", answer, methods=["POST"])


def check_read(page: gr.Blocks, kind: str, scope: Scope) -> None:
    """Refuse to read from an unknown call; Gradio notices it only after it has answered 200."""
    queue = queue_of(page)
    name = scope["path"].rstrip("/").rsplit("/", 1)[-1]
    if kind == "heartbeat" and len(name) > MOST_SESSION_CHARACTERS:
        raise HTTPException(400, "the session's name is too long")
    if kind == "queue/data":
        session = HttpRequest(scope).query_params.get("session_hash", "")
        if session not in queue.pending_messages_per_session:
            raise HTTPException(404, "this session has called nothing")
    if kind in ("call", "call/v2") and not (
        name in queue.event_ids_to_events
        or any(name in calls for calls in queue.pending_event_ids_session.values())
    ):
        raise HTTPException(404, "there is no such call, or its result has been read")
