"""Three ways to use less memory: return it to the system, map weights from files, and exclude
loaded models from garbage collection."""

import atexit
import ctypes
import gc
import mmap
import sys
import tempfile
from threading import Lock
from weakref import WeakSet

import numpy as np
import torch

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_MAPPED: WeakSet[mmap.mmap] = WeakSet()
_MAPPING = Lock()  # a model may be loaded while another thread frees memory


def free_memory() -> None:
    """Return memory to the system: what was freed, which glibc keeps in the pools of ended
    threads and between used blocks, and the parts of mapped files that were read."""
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None:
        trim(0)
    if sys.platform == "linux":
        with _MAPPING:
            for mapped in _MAPPED:
                mapped.madvise(mmap.MADV_DONTNEED)


def on_disk(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in an unnamed mapped file, of which only the parts read are in memory;
    the tensor itself if the disk is full."""
    try:
        with tempfile.TemporaryFile() as file:
            array = tensor.contiguous().numpy()
            array.tofile(file)
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError:
        return tensor
    with _MAPPING:
        _MAPPED.add(mapped)
    return torch.from_numpy(np.frombuffer(mapped, array.dtype)).view(tensor.shape)


def settle_memory() -> None:
    """Exclude all present objects from garbage collection; call it once everything is loaded.

    Models and libraries are more than half a million objects. A full collection of them stops
    all threads for a third of a second.
    """
    gc.collect()
    gc.freeze()
    # A full collection runs when new objects exceed 25% of those at the last one. This one sees
    # none, so cyclic garbage, such as a run whose reader left while Ray passed on its events, is
    # collected soon.
    gc.collect()
    atexit.register(gc.unfreeze)  # libraries warn about uncollected objects at exit
