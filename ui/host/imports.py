"""Imports the page's libraries without the parts that only Gradio's developers need: a third of the start time."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from ui.gradio_gaps import without_mcp, without_stubs


@contextmanager
def quick_imports(*, mcp: bool) -> Iterator[None]:
    """Make imports in this context faster. Leave it before a thread starts.

    The garbage collector is off: libraries create half a million objects, hardly any of them garbage, and it would visit
    them seven times. Afterwards it ignores them for good.

    Args:
        mcp: Whether to import the MCP library; Gradio works without it.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        with without_stubs(), nullcontext() if mcp else without_mcp():
            yield
    finally:
        if collecting:
            gc.freeze()
            atexit.register(gc.unfreeze)  # libraries complain about objects that are not collected at exit
            gc.enable()
