"""Malformed calls: answered with status 4xx and the reason, logged in one line without their content."""

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
from starlette.types import Scope

from ui.gradio_gaps import is_server_function, queue_of

MOST_SESSION_CHARACTERS = 100  # longest session name; Gradio keeps thousands of them
KINDS = "queue/join|queue/data|call/v2|call|run|api|component_server|cancel|reset|heartbeat|stream|mcp"
CALL = re.compile(rf"/gradio_api/({KINDS})(?=/|$)")
MALFORMED = (FnIndexInferError, LookupError, TypeError, ValueError, AttributeError, AssertionError)
"""What Gradio raises when it looks up a name in a call. The called function raises elsewhere, in the queue (see `Page`)."""


class ServerCall(BaseModel):
    """The browser's call of a component's server function."""

    data: Any = None
    component_id: int
    fn_name: str
    session_hash: str = Field("", max_length=MOST_SESSION_CHARACTERS)


def kind_of(path: str) -> str:
    """The kind of call that an address stands for, without the part that anybody may write; empty for none."""
    found = CALL.search(path)
    return found[1] if found else ""


def server_functions(page: gr.Blocks) -> Route:
    """The route of components' server functions; it replaces Gradio's (see `is_server_function`)."""

    async def answer(request: HttpRequest) -> Response:
        try:
            call = ServerCall.model_validate_json(await request.body())
        except ValidationError:
            raise HTTPException(422, "a call has data, a component_id, a fn_name and a session_hash") from None
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
        sessions = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("session_hash", [""])
        if sessions[-1] not in queue.pending_messages_per_session:  # Gradio reads the last one
            raise HTTPException(404, "this session has called nothing")
    if kind in ("call", "call/v2") and not (
        name in queue.event_ids_to_events or any(name in calls for calls in queue.pending_event_ids_session.values())
    ):
        raise HTTPException(404, "there is no such call, or its result has been read")
