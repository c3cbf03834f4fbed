"""Matrices in 8 bits, for products in whole numbers, whose sums are exact.

A row of a matrix has one scale, and so has each row that it is multiplied with. A few large numbers
would leave the others few steps, so

- rows are turned: an orthogonal matrix, its own inverse, spreads each number over all columns. The
  product stays, since matrix and input turn alike (Ashkboos et al. 2024, "QuaRot", arXiv
  2404.00456; here a Hartley transform in two dimensions, of any width);
- the columns of the residual stream with most energy stay in float32 (`Basis`).

A matrix `[n, k]` becomes a tensor int8 `[n, 4 * exact + k - exact + 4]`: a row's first numbers in
float32, the others in whole numbers, then their scale, float32 in 4 bytes. So rounded matrices are
joined, cut and permuted by rows like others.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from naive_speculate.infer.device import Array

TOP = 127  # the largest whole number
_FLOAT = 4  # bytes of a float32
_EXACT = 8  # columns of the residual stream that stay in float32
_AT_ONCE = 2**16  # numbers that are rounded at a time; the intermediate values fit a core's cache


@dataclass(frozen=True)
class Rounding:
    """A model's matrices are rounded while it is loaded; `progress` is called with the share of
    its layers that were read."""

    progress: Callable[[float], object] | None = None


def rounded(
    matrix: torch.Tensor,
    exact: int = 0,
    change: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.float,
) -> torch.Tensor:
    """A matrix `[n, k]` in 8 bits, but its first `exact` columns; its rows are changed before."""
    rows_at_once = max(1, _AT_ONCE // matrix.shape[1])
    return torch.cat([_rounded(change(rows), exact) for rows in matrix.split(rows_at_once)])


def _rounded(rows: torch.Tensor, exact: int) -> torch.Tensor:
    floats, rest = rows[:, :exact].contiguous(), rows[:, exact:]
    scales = rest.abs().amax(1, keepdim=True) / TOP
    numbers = (rest / scales.masked_fill(scales == 0, 1)).round().to(torch.int8)
    return torch.cat([floats.view(torch.int8), numbers, scales.view(torch.int8)], dim=1)


def is_rounded(matrix: torch.Tensor) -> bool:
    """Whether a matrix is in 8 bits."""
    return matrix.dtype == torch.int8


def width_of(matrix: torch.Tensor) -> int:
    """Columns of a matrix, rounded with none in float32, or not rounded."""
    return matrix.shape[-1] - _FLOAT * is_rounded(matrix)


def parts(matrix: torch.Tensor, exact: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of a rounded matrix: the whole numbers, int8 `[n, k - exact]`; their scales, float32 `[n]`;
    and the columns in float32, `[n, exact]`."""
    begin = _FLOAT * exact
    floats, scales = (
        torch.from_numpy(np.ascontiguousarray(part).view(np.float32))
        for part in (matrix[:, :begin].numpy(), matrix[:, -_FLOAT:].numpy())
    )
    return matrix[:, begin:-_FLOAT], scales[:, 0], floats


def floats(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix in float32 that was rounded with no column in float32; any other itself."""
    return torch.from_numpy(float_rows(matrix.numpy())) if is_rounded(matrix) else matrix


def float_rows(rows: Array) -> Array:
    """Like `floats`, of an array: for a few rows NumPy takes a third of the time of torch."""
    if rows.dtype != np.int8:
        return rows
    scales = rows[..., -_FLOAT:].copy().view(np.float32)
    return rows[..., :-_FLOAT].astype(np.float32) * scales


@lru_cache
def turns(width: int) -> tuple[Array, Array]:
    """The matrices of a turn of vectors of this width, float32 `[a, a]` and `[b, b]` with a * b =
    width: both symmetric and orthogonal."""
    a = max(part for part in range(1, int(width**0.5) + 1) if width % part == 0)
    return _hartley(a), _hartley(width // a)


def _hartley(size: int) -> Array:
    at = np.arange(size)
    angles = 2 * np.pi / size * (np.outer(at, at) % size)
    return ((np.cos(angles) + np.sin(angles)) / size**0.5).astype(np.float32)


def turned(rows: Array) -> Array:
    """Vectors `[..., k]`, float32, turned; turned again they are the same up to rounding. The
    bits of a vector do not depend on the others: NumPy multiplies matrix by matrix."""
    left, right = turns(rows.shape[-1])
    vectors = rows.reshape(*rows.shape[:-1], len(left), len(right))
    return np.matmul(np.matmul(left, vectors), right).reshape(rows.shape)


def turned_columns(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix `[n, k]` for products with turned vectors."""
    return torch.from_numpy(turned(matrix.float().numpy()))


class Basis:
    """Coordinates of a residual stream: the columns with most energy as they are, then the others,
    turned. `energies`: of all columns, `[d]`."""

    def __init__(self, energies: torch.Tensor) -> None:
        self.exact = min(_EXACT, len(energies) // 4)
        self._order = energies.argsort(descending=True, stable=True).numpy()
        self._places = self._order.argsort()

    @classmethod
    def of(
        cls,
        embedding: torch.Tensor,
        sublayers: Iterable[tuple[torch.Tensor, torch.Tensor]],
    ) -> "Basis":
        """The basis for a model: `sublayers` are, in order, each norm `[d]` and the matrix `[d, k]`
        whose product is added to the stream. A norm's input is taken as the sum of independent
        parts, each as large as its matrix's rows, and all inputs count alike."""
        stream = embedding.float().square().mean(0)
        energies = torch.zeros_like(stream)
        for norm, matrix in sublayers:
            read = stream * norm.float().square()
            energies += read / read.sum()
            stream = stream + matrix.float().square().mean(1)
        return cls(energies)

    def into(self, rows: Array) -> Array:
        """Vectors of the stream `[..., d]`, float32, in these coordinates."""
        ordered = rows.take(self._order, axis=-1)
        ordered[..., self.exact :] = turned(ordered[..., self.exact :])
        return ordered

    def back(self, rows: Array) -> Array:
        """Vectors in these coordinates in those of the stream."""
        ordered = rows.copy()
        ordered[..., self.exact :] = turned(rows[..., self.exact :])
        return ordered.take(self._places, axis=-1)

    def reading(self, matrix: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        """A matrix `[n, d]` after a norm `[d]`, for the norm's input in these coordinates,
        rounded."""

        def change(rows: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(self.into((rows.float() * norm.float()).numpy()))

        return rounded(matrix, self.exact, change)

    def writing(self, matrix: torch.Tensor) -> torch.Tensor:
        """A matrix `[d, k]` or a bias `[d]` that adds to the stream in these coordinates."""
        return torch.from_numpy(self.into(matrix.float().numpy().T)).T.contiguous()
