"""Error messages that say what was wrong with a call and never repeat what was sent, neither in
the answer nor in the log.

What was sent may be a prompt, which is never logged, and it may be long. Gradio quotes it in its
messages, returns them and prints them with a traceback; FastAPI and the libraries below it do
the same.
"""

import inspect
import logging
import os
import traceback
import warnings
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio.exceptions import ComponentProcessingError
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from ui.host.process import shorten_tool_errors

LOGGER = logging.getLogger("naive_speculate.server")
ENDPOINT = "generate"  # the endpoint for programs
# longest error message. Ours name the field and quote at most its first 80 characters
MOST_CHARACTERS = 300


class Page(gr.Blocks):
    """A Gradio page that checks all calls, from the page, from programs and over MCP, and
    answers failing ones briefly. `arrive` gives what it shows before its scripts run (see
    `ui.host.limits.Arrive`)."""

    arrive: Any = None

    def validate_inputs(self, block_fn: Any, inputs: list[Any]) -> None:
        """Check the number and kinds of the inputs. A program may omit the last ones, so that an
        endpoint can gain parameters. Raises gr.Error if there are too few or too many, or if the
        function runs in the browser only. No function takes an object: if one names a file,
        Gradio opens it, or downloads it to the disk from any address of the Internet."""
        if block_fn.fn is None:
            raise gr.Error("there is no such function")
        if block_fn.api_name == ENDPOINT:
            omitted = list(inspect.signature(block_fn.fn).parameters.values())[len(inputs) :]
            inputs += [
                parameter.default
                for parameter in omitted
                if parameter.default is not parameter.empty
            ]
        if len(inputs) != len(block_fn.inputs):
            problem = "not enough" if len(inputs) < len(block_fn.inputs) else "too many"
            raise gr.Error(
                f"{problem} inputs: the call takes {len(block_fn.inputs)}, got {len(inputs)}"
            )
        values = [
            value for each in inputs for value in (each if isinstance(each, list) else [each])
        ]
        if not all(value is None or isinstance(value, str | int | float) for value in values):
            raise gr.Error("inputs must be texts, numbers or lists of them")

    async def process_api(
        self, block_fn: Any, inputs: list[Any], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        try:
            if not (
                isinstance(block_fn, int) or block_fn.cancels
            ):  # Gradio fills in the session here
                self.validate_inputs(block_fn, inputs)
            return await super().process_api(block_fn, inputs, *args, **kwargs)
        except Exception as error:
            title = error.title if isinstance(error, gr.Error) else "Error"
            raise gr.Error(message_of(error), title=title, print_exception=False) from None


def message_of(error: Exception) -> str:
    """The message for the caller. An unexpected error is logged, and the caller gets only its
    type."""
    if isinstance(error, gr.Error | ComponentProcessingError):
        return _short(error.message if isinstance(error, gr.Error) else str(error))
    LOGGER.error(trail(error))
    return f"the server could not do this ({type(error).__name__})"


def trail(error: BaseException) -> str:
    """Where an exception came from, without its message: the types and lines of code, the first
    cause first."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = f"{trail(cause)}\nafter which\n" if cause is not None else ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{before}{type(error).__name__}\n{frames}".rstrip()


async def unreadable(_: HttpRequest, error: Exception) -> Response:
    """The answer to a malformed body: which field, and what it should be."""
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    detail = [
        {
            "loc": _short(".".join(map(str, one["loc"]))),
            "msg": _short(one["msg"]),
            "type": one["type"],
        }
        for one in problems
    ]
    return JSONResponse({"detail": detail[:10]}, 422)


def silence_library_logs() -> None:
    """Keep libraries from logging calls. Call it just before the server starts: until then they
    write to the operator."""
    shorten_tool_errors(_short)
    warnings.filterwarnings("ignore", module=r"gradio\.")
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    # MCP logs unreadable requests through the root logger.
    logging.getLogger().addFilter(lambda record: f"{os.sep}mcp{os.sep}" not in record.pathname)


def _short(message: str) -> str:
    return message if len(message) <= MOST_CHARACTERS else message[:MOST_CHARACTERS] + " …"
