"""Errors that say what was wrong with a call, and never repeat what was sent: not in the answer, not in the log.

What was sent may be a prompt, which the log never tells, and it may be long. Gradio puts it into its messages, answers with
them and prints them with their traceback; so do FastAPI and the libraries below.
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
from gradio.mcp import GradioMCPServer
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

LOGGER = logging.getLogger("naive_speculate.server")
ENDPOINT = "generate"
"""The one for programs."""
MOST_CHARACTERS = 300
"""Of an error's message. Ours name the field and quote at most its first 80 characters."""


class Page(gr.Blocks):
    """Gradio's page with short answers to calls that fail."""

    def validate_inputs(self, block_fn: Any, inputs: list[Any]) -> None:
        """Check the number of inputs; Gradio's own complaint quotes them all.

        A program may leave out the last ones, as it may in Python: those that an endpoint gained since it was written.

        Raises:
            gr.Error: If there are too few, or too many.
        """
        if block_fn.api_name == ENDPOINT:
            left_out = list(inspect.signature(block_fn.fn).parameters.values())[len(inputs) :]
            inputs += [parameter.default for parameter in left_out if parameter.default is not parameter.empty]
        if len(inputs) < len(block_fn.inputs):
            raise gr.Error(f"not enough inputs: the call takes {len(block_fn.inputs)}, got {len(inputs)}")
        if len(inputs) > len(block_fn.inputs):
            raise gr.Error(f"too many inputs: the call takes {len(block_fn.inputs)}, got {len(inputs)}")

    async def process_api(self, block_fn: Any, inputs: list[Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Do what was called; every call comes through here, from the page, from programs and from language models.

        Raises:
            gr.Error: With what the caller is told.
        """
        try:
            if not (isinstance(block_fn, int) or block_fn.cancels):  # Gradio gives these the session
                self.validate_inputs(block_fn, inputs)
            return await super().process_api(block_fn, inputs, *args, **kwargs)
        except Exception as error:
            title = error.title if isinstance(error, gr.Error) else "Error"
            said = in_words(error)
        raise gr.Error(said, title=title, print_exception=False)


def in_words(error: Exception) -> str:
    """What the caller is told of an error; one that nobody foresaw goes into the log, and only its kind is told."""
    if isinstance(error, gr.Error):
        return _short(error.message)
    if isinstance(error, ComponentProcessingError):
        return _short(str(error))
    LOGGER.error(trail(error))
    return f"the server could not do this ({type(error).__name__})"


def trail(error: BaseException) -> str:
    """Where an exception came from, without its words: the types and the lines of code, the first cause first."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = f"{trail(cause)}\nafter which\n" if cause is not None else ""
    return f"{before}{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()


async def unreadable(_: HttpRequest, error: Exception) -> Response:
    """The answer to a body of the wrong form: which field, and what it should be."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    detail = [{"loc": _short(".".join(map(str, one["loc"]))), "msg": _short(one["msg"]), "type": one["type"]} for one in found]
    return JSONResponse({"detail": detail[:10]}, 422)


def hush() -> None:
    """Have libraries tell nothing of calls. For a server that is about to begin: until then they speak to the operator."""
    _shorten_tools()
    warnings.filterwarnings("ignore", module=r"gradio\.")
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_mcp)  # it logs requests that it cannot read through the root logger


def _shorten_tools() -> None:
    """Short answers to language models too; their library quotes an argument of the wrong kind whole."""
    server: Any = getattr(GradioMCPServer, "Server", None)
    if server is None:  # the library is not installed
        return

    class ToolServer(server):  # type: ignore[misc]
        def _make_error_result(self, error_message: str) -> Any:
            return super()._make_error_result(_short(error_message))

    GradioMCPServer.Server = ToolServer  # type: ignore[misc]


def _is_not_of_mcp(record: logging.LogRecord) -> bool:
    return f"{os.sep}mcp{os.sep}" not in record.pathname


def _short(said: str) -> str:
    return said if len(said) <= MOST_CHARACTERS else said[:MOST_CHARACTERS] + " …"
