"""The memory of a process that serves for a long time."""

import atexit
import gc


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
