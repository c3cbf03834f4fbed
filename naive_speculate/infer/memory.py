"""Memory that nobody uses any more."""

import ctypes
import sys

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def free_memory() -> None:
    """Hand freed memory back to the system, which glibc otherwise keeps: in the pools of threads that have ended, and between
    what is still used, as after a model was loaded, whose weights are rearranged meanwhile."""
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None:
        trim(0)
