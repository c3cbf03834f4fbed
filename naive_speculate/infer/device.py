"""What computes: packages that may be installed, and devices, to which numbers move and from
which they come back."""

import importlib.metadata
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from packaging.version import Version

Array = np.ndarray[Any, Any]  # an input or output of ONNX Runtime


def on_device(
    values: Sequence[Any], device: torch.device | None = None, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """A tensor from numbers, or nested lists of them, on the host.

    Unlike `torch.tensor(values, device="cuda")`, this does not wait for the GPU.
    """
    pinned = device is not None and device.type == "cuda"
    return torch.tensor(values, dtype=dtype, pin_memory=pinned).to(
        device or torch.device("cpu"), non_blocking=pinned
    )


def to_lists(*tensors: torch.Tensor) -> list[Any]:
    """Tensors of any shapes and types on one device as lists; waits for the device once."""
    copies = [
        tensor.to("cpu", non_blocking=tensor.is_cuda) for tensor in tensors
    ]  # into pinned memory
    if tensors[0].is_cuda:
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return [copy.tolist() for copy in copies]


def is_installed(package: str, at_least: str) -> bool:
    """Whether a recent enough version of a package is installed; it is not imported."""
    try:
        return Version(importlib.metadata.version(package)) >= Version(at_least)
    except importlib.metadata.PackageNotFoundError:
        return False
