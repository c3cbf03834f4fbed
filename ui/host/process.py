"""The page's process: how it starts and ends, and every place where this page reaches into
Gradio, because Gradio has no hook for it. Checked against Gradio 6.31.0.

Each function says why it exists. The rest of `ui` uses only what Gradio documents, with two
exceptions: `ui.host.errors` and `ui.host.queue` subclass Gradio's page and its queue. Two more
patches run in the browser:

- `assets/js/connection.js` replaces `window.fetch`: when the connection breaks, Gradio asks
  every two seconds, shows an error each time, and finally reloads the page without its run and
  settings.
- `ui/templates/first_paint.html` replaces `window.requestAnimationFrame` once: Gradio's loading
  screen keeps counting seconds at every frame after it is gone.

This module imports Gradio inside its functions: `quick_imports` must run before Gradio is imported.
"""

import atexit
import ctypes
import faulthandler
import gc
import importlib.util
import inspect
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import gradio as gr
    from starlette.requests import Request

CHECKED = "6.31.0"  # the Gradio release for which every patch here was read and tried
OURS = frozenset({"localhost", "127.0.0.1", "::1"})
M_ARENA_MAX = -8  # as in glibc's malloc.h: the number of pools
HOST = re.compile(r"(?:([\w.-]+)|\[([0-9a-f:.]+)\])(?::\d{1,5})?", re.ASCII)


def prepare() -> None:
    """Prepare a process that serves the page, before it has threads and models."""
    end_in_time()
    silence_native_code()
    share_one_pool()


def end_in_time(seconds: float = 8.0) -> None:
    """Let another process kill this one so many seconds after SIGTERM or Ctrl-C, whatever this
    one is doing.

    Python runs signal handlers only when the interpreter is free. Its C code writes the signal's
    number to a pipe at once.
    """
    if not hasattr(os, "fork"):
        return
    reader, writer = os.pipe()
    served = os.getpid()
    if os.fork() > 0:
        os.close(reader)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        return
    os.setsid()  # Ctrl-C is for the other process
    os.close(writer)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 2)

    def kill(*_: object) -> None:
        os.kill(served, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGALRM, kill)
    for number in iter(lambda: os.read(reader, 1), b""):  # no byte once the other process has ended
        if number[0] in (signal.SIGTERM, signal.SIGINT) and not any(
            signal.getitimer(signal.ITIMER_REAL)
        ):
            signal.setitimer(signal.ITIMER_REAL, seconds)
    os._exit(0)


def silence_native_code() -> None:
    """Let Python alone write to the log. Native libraries print warnings about visitors'
    input, and not all have a setting against it. A crash of native code still leaves the lines
    of Python that it came from."""
    if sys.stderr is None:  # it is closed, but 2 could become the number of a visitor's connection
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        return
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    faulthandler.enable(sys.stderr)


def share_one_pool() -> None:
    """Let all threads take memory from one pool. By default glibc has up to eight pools per core,
    each of which keeps what its threads freed: some 20 MB here, and no speed is gained."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(M_ARENA_MAX, 1)


def leave(status: int) -> NoReturn:
    """End the process at once: Python would first search half a million objects for garbage,
    which takes seconds."""
    atexit._run_exitfuncs()  # exit handlers of libraries
    with suppress(OSError):  # the reader may be gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


@contextmanager
def quick_imports(*, mcp: bool) -> Iterator[None]:
    """Import the page's libraries in half the time. Leave this context before a thread starts.

    Gradio parses the source of each component at import and writes an editor stub next to it. It
    skips classes without a file, so here its classes have none. It also imports the MCP library
    whenever that is installed; without `mcp`, it is not found. Its cache, which this page does
    not use, imports pandas, 32 MB; here pandas is imported when something uses it. The garbage
    collector is off: libraries create half a million objects, hardly any of them garbage, and it
    would visit them seven times. Afterwards it ignores them for good.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # Gradio reads it at import
    file_of = inspect.getfile
    replaced = {"pandas": _stand_in("pandas")} | ({} if mcp else {"mcp": None})
    replaced = {name: module for name, module in replaced.items() if name not in sys.modules}

    def getfile(object: Any) -> str:
        if (getattr(object, "__module__", None) or "").startswith("gradio."):
            raise OSError("no stub is to be written for it")
        return file_of(object)

    inspect.getfile = getfile
    sys.modules |= replaced  # type: ignore[arg-type]
    gc.disable()
    try:
        yield
    finally:
        inspect.getfile = file_of
        for name, module in replaced.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        gc.freeze()
        # libraries complain about objects that are not collected at exit
        atexit.register(gc.unfreeze)
        gc.enable()


def _stand_in(name: str) -> ModuleType:
    """A module that imports the one of this name as soon as something is read from it, such as
    `DataFrame`. It has none of a module's own attributes and no submodules."""
    module = ModuleType(name)
    module.__spec__ = importlib.util.find_spec(name)

    def attribute(requested: str) -> Any:
        if requested.startswith("__"):  # `inspect` asks every module for its file
            raise AttributeError(requested)
        if sys.modules.get(name) is module:
            del sys.modules[name]
        return getattr(importlib.import_module(name), requested)

    module.__dict__["__getattr__"] = attribute  # PEP 562
    return module


def trust(listed: Iterable[str], host: str | None) -> None:
    """Let Gradio derive the page's address from known names only: this machine's, the Space's,
    the operator's `listed` ones and the `host` that the server listens on.

    Gradio would trust `Host`, `X-Forwarded-Host` and `X-Gradio-Server`. Under any other name the
    address is relative, and browsers resolve it against the page's own.
    """
    names = {name.lower() for name in (*OURS, *listed, host, os.environ.get("SPACE_HOST")) if name}

    def root_of(request: "Request", route_path: str, root_path: str | None) -> str:
        path = (root_path or "").rstrip("/")
        if path.startswith(("http://", "https://")):
            return path
        asked = request.headers.get("x-forwarded-host") or request.headers.get("host") or ""
        host = asked.split(",")[0].strip().lower()
        parts = HOST.fullmatch(host)
        if parts is None or (parts[1] or parts[2]) not in names:
            return path
        secure = (
            request.headers.get("x-forwarded-proto", request.url.scheme).split(",")[0].strip()
            == "https"
        )
        return f"http{'s' * secure}://{host}{path}"

    from gradio import route_utils

    patched: Any = route_utils
    patched.get_root_url = root_of


def page_address(request: "Request") -> str:
    """The page's address with a slash at the end, as Gradio derives it (see `trust`)."""
    from gradio import route_utils

    address = route_utils.get_root_url(request, "/", request.scope.get("root_path") or None)
    return f"{address.rstrip('/')}/"


def take_dicts_as_tables() -> None:
    """The value of a `gr.Dataframe` is the dict that Gradio would send to the browser;
    `datatype` must be given. Gradio's own imports pandas, 32 MB, to see whether the value is one
    of its tables."""
    from gradio.components import dataframe

    patched: Any = dataframe.Dataframe
    patched.postprocess = lambda self, value: value and dataframe.DataframeData(**value)


def shorten_tool_errors(shorten: Callable[[str], str]) -> None:
    """The MCP library quotes an invalid argument in full, and Gradio has no hook for the answer."""
    from gradio.mcp import GradioMCPServer

    server: Any = getattr(GradioMCPServer, "Server", None)
    if server is not None:  # the library is installed
        answer = server._make_error_result
        server._make_error_result = lambda self, message: answer(self, shorten(message))


def answer_tools_in_json() -> None:
    """Gradio answers a language model with Python's form of a list or dict, in which null is
    None."""
    from gradio.mcp import GradioMCPServer

    patched: Any = GradioMCPServer
    answer = patched.postprocess_output_data

    def in_json(self: Any, data: Any, root_url: str) -> Any:
        return answer(self, [_json_of(value) for value in data], root_url)

    patched.postprocess_output_data = in_json


def _json_of(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def queue_of(page: "gr.Blocks") -> Any:
    """The queue's sessions and calls are needed to refuse unknown names; Gradio answers 200
    first and fails later."""
    return page._queue


def waiting_calls(page: "gr.Blocks", concurrency_id: str) -> int:
    """How many calls wait in Gradio's queue; Gradio reports that only to the visitors who wait."""
    waiting = page._queue.event_queue_per_concurrency_id.get(concurrency_id)
    return len(waiting.queue) if waiting is not None else 0


def current_call() -> tuple[Any, Any, str | None]:
    """Request, page and id of the call that is being answered; None for each outside a call.
    Gradio passes the request only to event listeners with a `gr.Request` parameter, not to what
    they call."""
    from gradio.context import LocalContext

    return (
        LocalContext.request.get(None),
        LocalContext.blocks.get(None),
        LocalContext.event_id.get(None),
    )


def payload(event: "gr.EventData") -> dict[str, Any]:
    """The object that a component sent with an event; `EventData` offers its keys as attributes
    only. Empty for anything else, which a component of this page never sends."""
    data = event._data
    return data if isinstance(data, dict) else {}


def is_server_function(function: object) -> bool:
    """Whether the browser may call this method of a component; Gradio's own route keeps a
    megabyte per session that calls one."""
    return bool(getattr(function, "_is_server_fn", False))
