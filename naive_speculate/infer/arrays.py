"""Between torch and ONNX Runtime, which takes and returns NumPy arrays."""

from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]
Numbers = torch.Tensor | Array
"""The result of an executor: a tensor from torch, an array from ONNX Runtime."""


def as_numpy(numbers: Numbers) -> Array:
    """The same memory as an array; a tensor must be on the CPU."""
    return numbers.detach().numpy() if isinstance(numbers, torch.Tensor) else numbers
