"""A block drafter (DFlash, Chen et al. 2026, arXiv 2602.06036): one forward drafts all positions
of a window.

Names and computation follow the authors' `dflash/model.py` (z-lab/dflash 0.1.0) and vLLM's
speculators 0.9.0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from naive_speculate.infer.device import on_device
from naive_speculate.infer.ragged_cache import CacheRows
from naive_speculate.models.foreign.chain import BlockOutput, Chain
from naive_speculate.models.heads.model import Head
from naive_speculate.models.heads.weights import HeadWeights
from naive_speculate.models.llama.cuda_graphs import Place
from naive_speculate.models.llama.torch import TorchLlama
from naive_speculate.models.llama.weights import LlamaLayer, LlamaShape, RotaryTable, rotation


@dataclass(frozen=True)
class BlockOptions:
    """How a block is computed, beyond its layers."""

    block_size: int  # positions of a block
    mask_token_id: int  # the target's token whose embedding a masked position reads
    # whether a position predicts the next token (DSpark), so that the last token's output is the
    # first draft; otherwise a mask predicts the token at its own position (DFlash)
    from_anchor: bool = False
    # whether a position sees earlier ones of its block alone: None in sliding layers only
    causal: bool | None = False
    # whether a sliding window counts from the block's first position, for every position, and does
    # not bound the block itself (speculators); otherwise from each position (z-lab/dflash)
    window_from_anchor: bool = False
    embedding_scale: float = 1.0  # factor on the embeddings that the block reads
    output_scale: float = 1.0  # factor on the logits
    softcap: float = 0.0  # logits are softcap * tanh(logits / softcap); 0 for none

    @property
    def first(self) -> int:
        """The position of a block that drafts the first token."""
        return 0 if self.from_anchor else 1

    @property
    def num_drafts(self) -> int:
        """Draft tokens of a block."""
        return self.block_size - self.first


@dataclass
class Convolution:
    """DFlash 2: mixes the positions of a block with those just before them, before and after a
    sublayer, by kernels that depend on the state."""

    base: torch.Tensor  # `[2, taps, d]`
    projection: torch.Tensor  # `[2 * taps * groups, d]`

    def prepare(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The input of the sublayer, from states `[rows, size, d]`, and the kernels for `finish`,
        `[rows, size, taps, groups]`."""
        taps = self.base.shape[1]
        kernels = F.linear(hidden, self.projection).unflatten(-1, (2, taps, -1))
        return self._mixed(hidden, kernels[..., 0, :, :], self.base[0]), kernels[..., 1, :, :]

    def finish(self, hidden: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
        """The output of the sublayer, mixed."""
        return self._mixed(hidden, kernels, self.base[1])

    def _mixed(
        self, hidden: torch.Tensor, kernels: torch.Tensor, base: torch.Tensor
    ) -> torch.Tensor:
        groups, size, mixed = kernels.shape[-1], hidden.shape[1], torch.zeros_like(hidden)
        for tap, weights in enumerate(base[:size]):
            before = F.pad(hidden, (0, 0, tap, 0))[:, :size]
            own = kernels[..., tap, :].repeat_interleave(hidden.shape[-1] // groups, -1)
            mixed = mixed + before * (weights + own)
        return mixed


class TorchBlock(TorchLlama):
    """The layers of a block drafter. `convolutions`: by layer, those around attention and MLP."""

    def __init__(
        self,
        shape: LlamaShape,
        weights: HeadWeights,
        rotary: RotaryTable,
        convolutions: Sequence[tuple[Convolution, Convolution]] = (),
    ) -> None:
        super().__init__(shape, weights, rotary)
        self.convolutions = convolutions

    def block(self, embedded: torch.Tensor, place: Place) -> torch.Tensor:
        """The states of a block after the last norm, `[rows, size, d]`, from its embeddings."""
        hidden = embedded
        for index, layer in enumerate(self.weights.layers):
            normed = self.norm(hidden, layer.attention_norm)
            if not self.convolutions:
                hidden = hidden + self.attend(index, layer, normed, place)
                hidden = hidden + self.mlp(layer, hidden)
                continue
            around_attention, around_mlp = self.convolutions[index]
            read, kernels = around_attention.prepare(normed)
            attended = self.attend(index, layer, read, place)
            hidden = hidden + around_attention.finish(attended, kernels)
            read, kernels = around_mlp.prepare(self.norm(hidden, layer.mlp_norm))
            hidden = hidden + around_mlp.finish(_mlp(layer, read), kernels)
        return self.norm(hidden, self.weights.norm)


def _mlp(layer: LlamaLayer, read: torch.Tensor) -> torch.Tensor:
    """A layer's MLP without its norm."""
    gate, up = F.linear(read, layer.gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, layer.down)


class BlockHead(Head):
    """A few layers that draft a whole block: the last token, and mask tokens after it.

    Each position of the block attends to the target's fused states of all tokens before the
    block, and to the whole block. The outputs are the distributions of the draft tokens. In
    DFlash they do not depend on the other draft tokens; with a chain, each also depends on the
    draft tokens before. The block always has its trained size, so that a window's length does not
    change the distributions.

    Args:
        weights: Its weights, on the target's device; they have no `state_projection`.
        shape: The shape of its layers; `vocab_size` is its own.
        rotary: Its rotary embedding.
        layers, name: See `Head`.
        options: Of its blocks.
        chain: Draws the tokens of a block in order (DSpark, DFlash 2, XPress); None for DFlash.
        convolutions: See `TorchBlock` (DFlash 2).
    """

    role: ClassVar[str] = "block"
    _forward: TorchBlock

    def __init__(
        self,
        weights: HeadWeights,
        shape: LlamaShape,
        rotary: RotaryTable,
        layers: Sequence[int],
        name: str,
        options: BlockOptions,
        chain: Chain | None = None,
        convolutions: Sequence[tuple[Convolution, Convolution]] = (),
    ) -> None:
        super().__init__(weights, shape, layers, name, "torch")
        self.options = options
        self.chain = chain
        if chain is not None:
            self.num_parameters += sum(tensor.numel() for tensor in chain.tensors())
        self._masks = [options.mask_token_id] * (options.block_size - 1)
        self._forward = TorchBlock(shape, weights, rotary, convolutions)

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
    def compute(
        self, token_ids: Sequence[int], rows: CacheRows, count: int | None = None
    ) -> BlockOutput:
        """One block per row; the rows' ends do not move. `token_ids`: each row's last token;
        `rows`: rows that hold the states of all tokens before it; `count`: how many draft tokens
        are needed, all without."""
        rows.cache.require(self._shape, self.dtype, self.device)
        llama, options = self._forward, self.options
        block = on_device([[token, *self._masks] for token in token_ids], self.device)
        size = options.block_size
        positions, num_keys = rows.positions(size, self.device), rows.get_num_tokens() + size
        masks: dict[int | None, torch.Tensor | None] = {
            window: self._mask(positions, num_keys, window) for window in set(self._shape.windows)
        }
        rotated = rotation(llama.rotary.up_to(num_keys), positions, self.dtype)
        embedded = llama.embed(block) * options.embedding_scale
        hidden = llama.block(embedded, Place(rotated, masks, rows.write))
        logits = F.linear(hidden[:, options.first :][:, :count], self._weights.head)
        logits = logits * options.output_scale
        if options.softcap > 0:
            logits = torch.tanh(logits / options.softcap) * options.softcap
        return BlockOutput(hidden, logits, options.first)

    def draft(self, token_ids: Sequence[int], rows: CacheRows) -> torch.Tensor:
        """The logits of each row's draft tokens before a chain, `[rows, num_drafts, vocab_size]`,
        minus infinity for tokens that it does not have; see `compute`."""
        return self._in_target_tokens(self.compute(token_ids, rows).logits)

    @torch.inference_mode()
    def logits_after(self, block: BlockOutput, index: int, token_ids: torch.Tensor) -> torch.Tensor:
        """The logits of draft token `index`, in order, `[rows, vocab_size]`, minus infinity for
        tokens that it does not have. `token_ids`: the tokens before it, int64 `[rows]`; of the
        first one each row's last two, `[rows, 2]`."""
        if self.chain is None:
            return self._in_target_tokens(block.logits[:, index])
        if not index:
            self.chain.begin(block, token_ids)
            token_ids = token_ids[:, 1]
        return self._in_target_tokens(self.chain.logits(block, index, token_ids))

    def _mask(self, positions: torch.Tensor, num_keys: int, window: int | None) -> torch.Tensor:
        """Which keys each position of the blocks attends to, bool `[rows, 1, size, num_keys]`."""
        options, keys = self.options, torch.arange(num_keys, device=self.device)
        own = positions[:, None, :, None]
        first, last = own[:, :, :1], own[:, :, -1:]
        visible = (keys <= last).expand(-1, -1, positions.shape[1], -1)
        causal = window is not None if options.causal is None else options.causal
        if causal:
            visible = visible & (keys <= own)
        if window is None:
            return visible
        if options.window_from_anchor:
            return visible & (keys >= first - window)
        return visible & ((keys - own).abs() < window)
