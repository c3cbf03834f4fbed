"""What a session's inputs and outputs are bound to.

A forward's weights drive everything else out of the processor's caches, so that what runs between two forwards costs several
times what it does by itself. Hence arrays that stay bound, and NumPy, which calls less of its own than torch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from naive_speculate.infer.arrays import Array

HELD_BYTES = 2**20
"""Largest array, in bytes, that a binding keeps to copy a forward's own from or to. To bind costs about as much as to copy 100
kilobytes; beyond some times that, a forward computes for so long that neither matters, and memory does."""
_NUMPY_TYPES = {torch.int64: np.int64, torch.float32: np.float32}


@dataclass
class Binding:
    """A run of neighbouring rows, bound to a session's inputs and outputs.

    The arrays are bound by their addresses, so that a forward only writes numbers into them.
    """

    io: Any
    cache_version: int
    ends: Array  # `total`, and after it each row's `last`
    logits_from: Array
    by_mask: Array
    tables: tuple[torch.Tensor, torch.Tensor]
    held: dict[str, Array] = field(default_factory=dict)  # for a forward's own inputs and outputs, by name

    def array(self, name: str, given: Array, bind: Callable[[Any, str, Array], None]) -> Array:
        """The array that is bound for one that a forward was given: that of the forward before if it was like this one, else a
        new one; a large one itself, which must live until the forward is over."""
        held = self.held.get(name)
        if held is None or held.shape != given.shape or held.dtype != given.dtype:
            self.held.pop(name, None)
            large = given.nbytes > HELD_BYTES
            held = given if large and given.flags.c_contiguous else np.empty(given.shape, given.dtype)
            bind(self.io, name, held)
            if not large:
                self.held[name] = held
        return held


def bind_array(io: Any, name: str, array: Array) -> None:
    """Bind an array to an input; it must stay where it is."""
    io.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def bind_output_array(io: Any, name: str, array: Array) -> None:
    """The same to an output."""
    io.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def bind_input(io: Any, name: str, tensor: torch.Tensor) -> None:
    """Bind a contiguous tensor to an input; it must stay where it is."""
    io.bind_input(name, "cpu", 0, _NUMPY_TYPES[tensor.dtype], tensor.shape, tensor.data_ptr())


def bind_output(io: Any, name: str, tensor: torch.Tensor) -> None:
    """The same to an output."""
    io.bind_output(name, "cpu", 0, _NUMPY_TYPES[tensor.dtype], tensor.shape, tensor.data_ptr())
