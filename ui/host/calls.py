"""Calls that Gradio cannot make sense of: answered 4xx with what is wrong, in one line of the log and without what was sent."""

import inspect
import re
from typing import Any
from urllib.parse import parse_qs

import gradio as gr
from anyio.to_thread import run_sync
from gradio.route_utils import FnIndexInferError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

MOST_SESSION_CHARACTERS = 100
"""Gradio keeps the names of thousands of sessions."""
KINDS = "queue/join|queue/data|call/v2|call|run|api|component_server|cancel|reset|heartbeat|stream"
CALL = re.compile(rf"/gradio_api/({KINDS})(?=/|$)")
MALFORMED = (FnIndexInferError, LookupError, TypeError, ValueError, AttributeError, AssertionError)
"""What Gradio raises where it looks up what a call names. What it calls then raises elsewhere: in its queue (see `Page`)."""


class ServerCall(BaseModel):
    """A call of a component's function on the server."""

    data: Any = None
    component_id: int
    fn_name: str
    session_hash: str = Field("", max_length=MOST_SESSION_CHARACTERS)


def kind_of(path: str) -> str:
    """Which kind of call is made at an address, without the rest of it, which anybody may have written; empty for none."""
    found = CALL.search(path)
    return found[1] if found else ""


def server_functions(page: gr.Blocks) -> Route:
    """The address of components' functions on the server. Gradio's own keeps a megabyte for each session that calls one."""

    async def answer(request: HttpRequest) -> Response:
        try:
            call = ServerCall.model_validate_json(await request.body())
        except ValidationError:
            raise HTTPException(422, "a call has data, a component_id, a fn_name and a session_hash") from None
        component = page.blocks.get(call.component_id)
        function: Any = getattr(component, call.fn_name, None)
        if not getattr(function, "_is_server_fn", False):
            raise HTTPException(404, "there is no such component, or it has no such function")
        if inspect.iscoroutinefunction(function):
            return JSONResponse(await function(call.data))
        return JSONResponse(await run_sync(function, call.data, limiter=page.limiter))

    return Route("/gradio_api/component_server", answer, methods=["POST"])


class Known:
    """Around the server's routes: refuses to read what no call gives, which Gradio finds out only after it has answered 200.

    Args:
        app: The routes.
        page: Whose calls they are.
    """

    def __init__(self, app: ASGIApp, page: gr.Blocks) -> None:
        self._app = app
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "GET" and (kind := kind_of(scope["path"])):
            self._check(kind, scope)
        await self._app(scope, receive, send)

    def _check(self, kind: str, scope: Scope) -> None:
        queue = self._page._queue
        name = scope["path"].rstrip("/").rsplit("/", 1)[-1]
        if kind == "heartbeat" and len(name) > MOST_SESSION_CHARACTERS:
            raise HTTPException(400, "the session's name is too long")
        if kind == "queue/data":
            session = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[0]
            if session and session not in queue.pending_messages_per_session:
                raise HTTPException(404, "this session has called nothing")
        if kind in ("call", "call/v2") and not (
            name in queue.event_ids_to_events or any(name in calls for calls in queue.pending_event_ids_session.values())
        ):
            raise HTTPException(404, "there is no such call, or its result has been read")
