"""A block drafter (DFlash, Chen et al. 2026, arXiv 2602.06036): one forward drafts all positions
of a window.

Names and computation follow the authors' `dflash/model.py` (z-lab/dflash).
"""

from collections.abc import Sequence
from typing import ClassVar

import torch

from naive_speculate.infer.device import on_device
from naive_speculate.infer.head.model import Head
from naive_speculate.infer.head.weights import HeadWeights
from naive_speculate.infer.llama.cuda_graphs import Place
from naive_speculate.infer.llama.torch import TorchLlama
from naive_speculate.infer.llama.weights import LlamaShape, RotaryTable, rotation
from naive_speculate.infer.ragged_cache import CacheRows


class BlockHead(Head):
    """A few layers that draft a whole block: the last token, and mask tokens after it.

    Each position of the block attends to the target's fused states of all tokens before the
    block, and to the whole block. The output at the j-th mask is the distribution of the j-th
    draft token; it does not depend on the other draft tokens. The block always has its trained
    size, so that a window's length does not change the distributions.

    Args:
        weights: Its weights, on the target's device; they have no `state_projection`.
        shape: The shape of its layers; `vocab_size` is its own.
        rotary: Its rotary embedding.
        layers, name: See `Head`.
        block_size: Positions of a block: one more than the draft tokens.
        mask_token_id: The target's token whose embedding a masked position reads.
    """

    role: ClassVar[str] = "block"
    _forward: TorchLlama

    def __init__(
        self,
        weights: HeadWeights,
        shape: LlamaShape,
        rotary: RotaryTable,
        layers: Sequence[int],
        name: str,
        block_size: int,
        mask_token_id: int,
    ) -> None:
        super().__init__(weights, shape, layers, name, "torch")
        self.block_size = block_size
        self._masks = [mask_token_id] * (block_size - 1)
        self._forward = TorchLlama(shape, weights, rotary)

    @torch.inference_mode()
    def read(self, features: torch.Tensor, rows: CacheRows) -> None:
        """Extend the rows by the target's hidden states at their next tokens, padding included.
        `features`: hidden states of `layers`, concatenated, shape `[rows, num_tokens,
        len(layers) * target_hidden_size]`; `rows`: rows of a cache of this block drafter. Raises
        `ValueError` if their width differs."""
        rows.cache.require(self._shape, self.dtype, self.device)
        llama, num_new = self._forward, features.shape[1]
        states = llama.norm(self._fused(features), self._weights.hidden_norm)
        tables = llama.rotary.up_to(rows.get_num_tokens() + num_new)
        rotated = rotation(tables, rows.positions(num_new, self.device), self.dtype)
        for index, layer in enumerate(self._weights.layers):
            _, keys, values = llama.project(layer, states, rotated)
            rows.write(index, keys, values)
        rows.advance(num_new)

    @torch.inference_mode()
    def draft(self, token_ids: Sequence[int], rows: CacheRows) -> torch.Tensor:
        """The logits of each row's draft tokens; the rows' ends do not move. `token_ids`: each
        row's last token; `rows`: rows that hold the states of all tokens before it. The result
        has shape `[rows, block_size - 1, vocab_size]`, minus infinity for tokens that it does
        not have."""
        rows.cache.require(self._shape, self.dtype, self.device)
        llama, size = self._forward, self.block_size
        block = on_device([[token, *self._masks] for token in token_ids], self.device)
        positions, num_keys = rows.positions(size, self.device), rows.get_num_tokens() + size
        keys = torch.arange(num_keys, device=self.device)
        seen = keys <= positions[:, None, -1:, None]
        masks = {
            window: seen if window is None else seen & (keys > positions[:, None, :, None] - window)
            for window in set(self._shape.windows)
        }
        rotated = rotation(llama.rotary.up_to(num_keys), positions, self.dtype)
        logits, _ = llama.compute([block], Place(rotated, masks, rows.write), size - 1)
        return self._in_target_tokens(logits)
