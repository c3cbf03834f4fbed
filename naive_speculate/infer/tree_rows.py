"""A row of a cache whose next tokens are the nodes of a tree, so that one forward computes many continuations of a text."""

from collections.abc import Sequence

import torch

from naive_speculate.infer.device import on_device
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache


class TreeRows(CacheRows):
    """One row, a text with the nodes of a tree after it: a node attends to the text, its ancestors and itself, and has the
    position of its own continuation.

    Args:
        cache: The cache.
        row: The row's number.
        trunk: Number of tokens of the text.
        parents: For each node its parent's index, which is lower; -1 for the text.
    """

    branches = True

    def __init__(self, cache: RaggedKVCache, row: int, trunk: int, parents: Sequence[int]) -> None:
        super().__init__(cache, [row])
        self._trunk = trunk
        self._depths: list[int] = []
        self._visible = torch.eye(len(parents), dtype=torch.bool)
        for node, parent in enumerate(parents):
            self._depths.append(0 if parent < 0 else self._depths[parent] + 1)
            if parent >= 0:
                self._visible[node] |= self._visible[parent]

    def positions(self, num_new: int, device: torch.device | None = None) -> torch.Tensor:
        """See `CacheRows.positions`."""
        first = self.lengths[0] - self._trunk
        return on_device([self._trunk + depth for depth in self._depths[first : first + num_new]], device)[None]

    def mask(self, num_new: int, device: torch.device | None = None, window: int | None = None) -> torch.Tensor:
        """See `CacheRows.mask`."""
        first = self.lengths[0] - self._trunk
        end = first + num_new
        visible = torch.nn.functional.pad(self._visible[first:end, :end], (self._trunk, 0), value=True)
        if window is not None:
            keys = torch.tensor([*range(self._trunk), *(self._trunk + depth for depth in self._depths[:end])])
            visible &= keys > self.positions(num_new)[0, :, None] - window
        return visible[None, None].to(device or torch.device("cpu"))
