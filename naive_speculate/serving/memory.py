"""The memory of a process that serves for a long time."""

import atexit
import ctypes
import gc
import sys

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def free_memory() -> None:
    """Hand freed memory back to the system, which glibc otherwise keeps in the pools of threads that have ended."""
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None:
        trim(0)


def settle_memory() -> None:
    """Spare the garbage collector what is there now; call it once everything is loaded.

    Models and libraries are more than half a million objects. To look through them all, as it does after every few hundred
    thousand new ones, stops every thread for a third of a second.
    """
    gc.collect()
    gc.freeze()
    # It comes once a quarter as much is new as was there the last time: now that is nothing. Else garbage in circles, as a run
    # whose reader has gone while Ray was passing on its events, would be found after minutes.
    gc.collect()
    atexit.register(gc.unfreeze)  # libraries complain about what is not collected by then
