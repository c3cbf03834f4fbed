"""Saves memory: frees it to the system, and moves weights to files."""

import ctypes
import mmap
import sys
import tempfile

import numpy as np
import torch

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def free_memory() -> None:
    """Return freed memory to the system; glibc keeps it in the pools of ended threads and between used blocks."""
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None:
        trim(0)


def on_disk(tensor: torch.Tensor) -> torch.Tensor:
    """The float32 tensor in an unnamed mapped file, of which only the parts read are in memory; the tensor itself if the disk
    is full."""
    try:
        with tempfile.TemporaryFile() as file:
            tensor.numpy().tofile(file)
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError:
        return tensor
    return torch.from_numpy(np.frombuffer(mapped, np.float32)).view(tensor.shape)
