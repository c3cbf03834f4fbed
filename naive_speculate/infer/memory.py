"""What models hold in memory, and what they need not."""

import ctypes
import mmap
import sys
import tempfile

import numpy as np
import torch

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def free_memory() -> None:
    """Hand freed memory back to the system, which glibc otherwise keeps: in the pools of threads that have ended, and between
    what is still used, as after a model was loaded, whose weights are rearranged meanwhile."""
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None:
        trim(0)


def on_disk(tensor: torch.Tensor) -> torch.Tensor:
    """The same float32 numbers in a file without a name, of which only what is read is in memory; the tensor itself where there
    is no room for such a file."""
    try:
        with tempfile.TemporaryFile() as file:
            tensor.numpy().tofile(file)
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError:
        return tensor
    return torch.from_numpy(np.frombuffer(mapped, np.float32)).view(tensor.shape)
