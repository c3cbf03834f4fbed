"""From the host to a device and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

Tokens = torch.Tensor | list[list[int]]
"""Token ids, int64, `[rows, tokens]`; lists where the host knows them."""
_NUMPY_TYPES = {torch.int64: np.int64, torch.float32: np.float32, torch.float64: np.float64}


def on_device(values: Sequence[Any], device: torch.device | None = None, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """A tensor of numbers, or nested lists of them, that the host knows; int64, float32 or float64, on the CPU or where it is
    wanted.

    `torch.tensor(values, device="cuda")` waits until the GPU has done all it was given; this does not. On the CPU NumPy takes a
    list in a third of torch's time.
    """
    if device is None or device.type == "cpu":
        return torch.from_numpy(np.array(values, _NUMPY_TYPES[dtype]))
    pinned = device.type == "cuda"
    return torch.tensor(values, dtype=dtype, pin_memory=pinned).to(device, non_blocking=pinned)


def tokens_on(device: torch.device, tokens: Tokens) -> torch.Tensor:
    """Token ids as a tensor there."""
    return on_device(tokens, device) if isinstance(tokens, list) else tokens


def num_new(tokens: Tokens) -> int:
    """How many tokens there are a row."""
    return len(tokens[0]) if isinstance(tokens, list) else tokens.shape[1]


def to_lists(*tensors: torch.Tensor) -> list[Any]:
    """Tensors of any shapes and types on one device as lists; waits for the device once."""
    copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]  # into pinned memory
    if tensors[0].is_cuda:
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return [copy.tolist() for copy in copies]
