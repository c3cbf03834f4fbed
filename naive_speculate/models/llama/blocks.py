"""Matrices in 8 or 4 bits: blocks of 32 numbers share a scale, as in GGUF's `Q8_0`.

A matrix `[n, k]` in blocks is a tensor uint8 `[n, k / 32, bytes]`: a block's numbers, with zero in
the middle of their range (two numbers of 4 bits to a byte, the first in its low half), then its
scale, float32 in 4 bytes. So matrices in blocks are joined, cut and permuted by rows like others.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from naive_speculate.infer.device import Array

BLOCK = 32  # numbers that share a scale
_SCALE = 4  # bytes of a scale
_AT_ONCE = 2**16  # numbers that are rounded at a time; the intermediate values fit a core's cache


@dataclass(frozen=True)
class Rounding:
    """To how many bits a model's matrices are rounded while it is loaded; `progress` is called
    with the share of its tensors that were read."""

    bits: int = 8
    progress: Callable[[float], object] | None = None


def in_blocks(matrix: torch.Tensor, bits: int = 8) -> torch.Tensor:
    """Round a matrix `[n, k]` to blocks; itself if its rows are not whole blocks, or it is in
    blocks already."""
    if is_in_blocks(matrix) or matrix.shape[1] % BLOCK:
        return matrix
    rows_at_once = max(1, _AT_ONCE // matrix.shape[1])
    return torch.cat([_rounded(rows, bits) for rows in matrix.split(rows_at_once)])


def _rounded(matrix: torch.Tensor, bits: int) -> torch.Tensor:
    blocks = matrix.detach().float().unflatten(1, (-1, BLOCK))
    middle = 2 ** (bits - 1)
    scales = blocks.abs().amax(-1, keepdim=True) / (middle - 1)
    numbers = (blocks / scales.masked_fill(scales == 0, 1)).round() + middle
    return joined(numbers.to(torch.uint8), scales[..., 0], bits)


def joined(numbers: torch.Tensor, scales: torch.Tensor, bits: int = 8) -> torch.Tensor:
    """Blocks from numbers, uint8 `[n, blocks, 32]`, and scales, float32 `[n, blocks]`."""
    if bits == 4:
        numbers = numbers[..., 0::2] | numbers[..., 1::2] << 4
    return torch.cat([numbers, scales.contiguous()[..., None].view(torch.uint8)], dim=-1)


def is_in_blocks(matrix: torch.Tensor) -> bool:
    """Whether a matrix is in blocks."""
    return matrix.dtype == torch.uint8


def bits_of(blocks: torch.Tensor) -> int:
    """Bits of a number of a matrix in blocks."""
    return (blocks.shape[-1] - _SCALE) * 8 // BLOCK


def width_of(matrix: torch.Tensor) -> int:
    """Numbers of a matrix's row."""
    return matrix.shape[1] * (BLOCK if is_in_blocks(matrix) else 1)


def numbers_and_scales(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The parts of blocks `[..., bytes]`: numbers as stored, uint8 `[..., 4 * bits]`, and scales,
    float32 `[...]`."""
    numbers, scales = blocks[..., :-_SCALE], blocks[..., -_SCALE:]
    return numbers.contiguous(), scales.contiguous().view(torch.float32)[..., 0]


def floats(matrix: torch.Tensor) -> torch.Tensor:
    """The numbers of blocks `[..., bytes]`, float32 `[..., 32 * blocks]`; a matrix that is not in
    blocks itself."""
    return torch.from_numpy(float_rows(matrix.numpy())) if is_in_blocks(matrix) else matrix


def float_rows(rows: Array) -> Array:
    """Like `floats`, of an array in blocks: for a few rows NumPy takes a third of the time that
    torch takes."""
    numbers, scales = rows[..., :-_SCALE], rows[..., -_SCALE:]
    bits = numbers.shape[-1] * 8 // BLOCK
    if bits == 4:
        numbers = np.stack([numbers & 15, numbers >> 4], axis=-1)
        numbers = numbers.reshape(*rows.shape[:-1], BLOCK)
    scaled = (numbers.astype(np.float32) - 2 ** (bits - 1)) * scales.copy().view(np.float32)
    return scaled.reshape(*rows.shape[:-2], -1)
