"""A block drafter (DFlash, Chen et al. 2026, arXiv 2602.06036): one forward drafts all positions
of a window.

Names and computation follow the authors' `dflash/model.py` (z-lab/dflash), and for DSpark vLLM's
speculators.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from naive_speculate.infer.device import on_device
from naive_speculate.infer.head.model import Head
from naive_speculate.infer.head.weights import HeadWeights
from naive_speculate.infer.llama.cuda_graphs import Place
from naive_speculate.infer.llama.torch import TorchLlama
from naive_speculate.infer.llama.weights import LlamaShape, RotaryTable, rotation
from naive_speculate.infer.ragged_cache import CacheRows


@dataclass
class Markov:
    """DSpark's low-rank product of the token before: `embedding` `[vocab_size, rank]`, `output`
    `[draft_vocab_size, rank]`."""

    embedding: torch.Tensor
    output: torch.Tensor

    def bias(self, token_ids: torch.Tensor) -> torch.Tensor:
        """What tokens `[rows]` add to the logits of their successors, `[rows,
        draft_vocab_size]`."""
        return F.linear(F.embedding(token_ids, self.embedding), self.output)


@dataclass(frozen=True)
class BlockOptions:
    """How a block is read, beyond its layers."""

    block_size: int  # positions of a block
    mask_token_id: int  # the target's token whose embedding a masked position reads
    # whether a position predicts the next token (DSpark), so that the last token's output is the
    # first draft; otherwise a mask predicts the token at its own position (DFlash)
    from_anchor: bool = False

    @property
    def num_drafts(self) -> int:
        """Draft tokens of a block."""
        return self.block_size - (not self.from_anchor)


class BlockHead(Head):
    """A few layers that draft a whole block: the last token, and mask tokens after it.

    Each position of the block attends to the target's fused states of all tokens before the
    block, and to the whole block. The outputs are the distributions of the draft tokens. In
    DFlash they do not depend on the other draft tokens; in DSpark each also depends on the draft
    token before. The block always has its trained size, so that a window's length does not change
    the distributions.

    Args:
        weights: Its weights, on the target's device; they have no `state_projection`.
        shape: The shape of its layers; `vocab_size` is its own.
        rotary: Its rotary embedding.
        layers, name: See `Head`.
        options: Of its blocks.
        markov: DSpark's product; None for DFlash.
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
        options: BlockOptions,
        markov: Markov | None = None,
    ) -> None:
        super().__init__(weights, shape, layers, name, "torch")
        self.options = options
        self.markov = markov
        self._masks = [options.mask_token_id] * (options.block_size - 1)
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
    def draft(
        self, token_ids: Sequence[int], rows: CacheRows, count: int | None = None
    ) -> torch.Tensor:
        """The logits of each row's draft tokens, before `Markov`; the rows' ends do not move.
        `token_ids`: each row's last token; `rows`: rows that hold the states of all tokens before
        it; `count`: how many draft tokens are needed, all without. The result has shape `[rows,
        count, draft_vocab_size]`; see `logits_after`."""
        rows.cache.require(self._shape, self.dtype, self.device)
        llama, size = self._forward, self.options.block_size
        block = on_device([[token, *self._masks] for token in token_ids], self.device)
        positions, num_keys = rows.positions(size, self.device), rows.get_num_tokens() + size
        keys = torch.arange(num_keys, device=self.device)
        seen = keys <= positions[:, None, -1:, None]
        masks = {
            window: seen if window is None else seen & (keys > positions[:, None, :, None] - window)
            for window in set(self._shape.windows)
        }
        rotated = rotation(llama.rotary.up_to(num_keys), positions, self.dtype)
        num_drafts = self.options.num_drafts
        logits, _ = llama.compute([block], Place(rotated, masks, rows.write), num_drafts)
        return logits[:, :count]

    @torch.inference_mode()
    def logits_after(self, token_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """The logits of each row's next draft token, `[rows, vocab_size]`, minus infinity for
        tokens that it does not have. `token_ids`: the tokens before, int64 `[rows]`; `logits`: one
        position of `draft`'s."""
        if self.markov is not None:
            logits = logits + self.markov.bias(token_ids)
        return self._in_target_tokens(logits)
