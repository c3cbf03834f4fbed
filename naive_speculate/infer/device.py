"""From the host to a device."""

from collections.abc import Sequence
from typing import Any

import torch


def on_device(
    values: Sequence[Any], device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A tensor of numbers that the host knows.

    `torch.tensor(values, device="cuda")` waits until the GPU has done all it was given; this does not.

    Args:
        values: Numbers, or nested lists of them.
        device: Where the tensor is wanted; None for the CPU.
        dtype: None for what torch infers.
    """
    if device is None or torch.device(device).type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
