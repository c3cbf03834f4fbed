"""Moves numbers from the host to a device and back."""

from collections.abc import Sequence
from typing import Any

import torch

Tokens = torch.Tensor | list[list[int]]
"""Token ids, int64, `[rows, tokens]`, as a tensor or as lists on the host."""


def on_device(values: Sequence[Any], device: torch.device | None = None, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """A tensor from numbers, or nested lists of them, on the host.

    Unlike `torch.tensor(values, device="cuda")`, this does not wait for the GPU.
    """
    pinned = device is not None and device.type == "cuda"
    return torch.tensor(values, dtype=dtype, pin_memory=pinned).to(device or torch.device("cpu"), non_blocking=pinned)


def tokens_on(device: torch.device, tokens: Tokens) -> torch.Tensor:
    """Token ids as a tensor on a device."""
    return on_device(tokens, device) if isinstance(tokens, list) else tokens


def num_new(tokens: Tokens) -> int:
    """Number of tokens per row."""
    return len(tokens[0]) if isinstance(tokens, list) else tokens.shape[1]


def to_lists(*tensors: torch.Tensor) -> list[list[Any]]:
    """Tensors of one dtype and device, `[batch_size]` or `[batch_size, n]`, as lists; a GPU is waited for once."""
    if tensors[0].device.type == "cpu":
        return [tensor.tolist() for tensor in tensors]
    columns = [tensor if tensor.dim() > 1 else tensor[:, None] for tensor in tensors]
    parts = torch.cat(columns, dim=1).cpu().split([column.shape[1] for column in columns], dim=1)
    return [part.reshape(tensor.shape).tolist() for part, tensor in zip(parts, tensors, strict=True)]
