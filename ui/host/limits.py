"""What the server takes: no uploads, no body larger than the largest trace that the page opens. What it gives is compressed."""

from collections.abc import Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.host.errors import LOGGER, trail, unreadable

MAX_TRACE_BYTES = 32 * 1024 * 1024

MAX_BODY_BYTES = 2 * MAX_TRACE_BYTES + 2**16
"""A trace crosses as a JSON string, in which every quotation mark takes two bytes."""

MIN_ZIPPED_BYTES = 2000

UNUSED = ("/gradio_api/upload", "/gradio_api/process_recording", "/gradio_api/deep_link")
"""Addresses of Gradio's that write to the disk what anybody sends, or a visitor's settings; nothing here needs them."""


class Guard:
    """Around the server's routes: refuses bodies that are too large, and tells of failures without telling what was sent."""

    def __init__(self, app: ASGIApp, most: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._most = most
        self._said = f"the body may have {most} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        announced = dict(scope["headers"]).get(b"content-length", b"")
        if announced.isdigit() and int(announced[:20]) > self._most:
            return await JSONResponse({"detail": self._said}, 413)(scope, receive, send)
        begun, taken = False, 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._most:
                raise HTTPException(413, self._said)
            return message

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, bounded, watched)
        except Exception as error:
            LOGGER.error(trail(error))
            if not begun:
                await JSONResponse({"detail": "the server could not do this"}, 500)(scope, receive, send)


async def _unused(_: HttpRequest) -> Response:
    return JSONResponse({"detail": "this page takes no uploads and keeps no files"}, 403)


class Zipped(GZipMiddleware):
    """Compresses what Gradio leaves as it is, which is everything whose path has no ending: the page, and what it asks for.

    Streams of events are not compressed.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if "." in scope.get("path", ""):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def server_options(routes: Sequence[BaseRoute] = (), middleware: Sequence[Middleware] = ()) -> dict[str, Any]:
    """What Gradio's `launch` takes as `app_kwargs`: these routes and this middleware besides ours."""
    return {
        "routes": [*routes, *(Route(path, _unused, methods=["GET", "POST"]) for path in UNUSED)],  # they win over Gradio's
        "middleware": [Middleware(Guard), Middleware(Zipped, minimum_size=MIN_ZIPPED_BYTES, compresslevel=6), *middleware],
        "exception_handlers": {RequestValidationError: unreadable},
    }
