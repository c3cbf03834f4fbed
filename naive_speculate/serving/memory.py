"""The memory of a process that serves for a long time."""

import atexit
import gc


def settle_memory() -> None:
    """Exclude all present objects from garbage collection; call it once everything is loaded.

    Models and libraries are more than half a million objects. A full collection of them stops all threads for a third of a
    second.
    """
    gc.collect()
    gc.freeze()
    # A full collection runs when new objects exceed 25% of those at the last one. This one sees none, so cyclic garbage, such
    # as a run whose reader left while Ray passed on its events, is collected soon.
    gc.collect()
    atexit.register(gc.unfreeze)  # libraries warn about uncollected objects at exit
