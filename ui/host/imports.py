"""Imports of the page's libraries, without what only those who develop Gradio need of them: a third of a start."""

import atexit
import gc
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quick_imports(*, mcp: bool) -> Iterator[None]:
    """Within it, what is imported comes sooner. To be left before a thread is started.

    - The garbage collector rests: libraries are half a million objects, hardly one of them garbage, and it would look through
      them seven times. Afterwards it leaves them alone for good.
    - Gradio writes a stub for editors beside each file with a component, from the file's syntax tree, each time. For classes
      without a file it does not, so its classes seem to have none.
    - The library for MCP is not there, where it is not wanted; Gradio does without.

    Args:
        mcp: Whether the library for MCP is wanted.
    """
    hidden = not mcp and "mcp" not in sys.modules
    file_of = inspect.getfile

    def getfile(object: Any) -> str:
        if (getattr(object, "__module__", None) or "").startswith("gradio."):
            raise OSError("no stub is to be written for it")
        return file_of(object)

    collecting = gc.isenabled()
    gc.disable()
    inspect.getfile = getfile
    if hidden:
        sys.modules["mcp"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["mcp"]
        inspect.getfile = file_of
        if collecting:
            gc.freeze()
            atexit.register(gc.unfreeze)  # libraries complain about what is not collected by then
            gc.enable()
