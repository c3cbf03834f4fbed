"""Runs a Llama-like model with plain torch operations, on any device and in any dtype.

Compared with transformers' modules: fused projections, no wrappers, keys and values written
directly into the cache.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from naive_speculate.infer.ragged_cache import CacheRows
from naive_speculate.models.llama.cuda_graphs import Graphs, Place
from naive_speculate.models.llama.weights import (
    LlamaLayer,
    LlamaShape,
    LlamaWeights,
    RotaryTable,
    rotation,
)


class TorchLlama:
    """A forward of a Llama-like model, whose weights are all on one device and in one dtype;
    with `graphs`, windows that occur again are captured."""

    def __init__(
        self,
        shape: LlamaShape,
        weights: LlamaWeights,
        rotary: RotaryTable,
        graphs: Graphs | None = None,
    ) -> None:
        self.shape = shape
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        self.rotary = rotary
        self.weights, self.table = weights, weights.embedding
        self.graphs = graphs

    @torch.inference_mode()
    def forward(
        self, token_ids: torch.Tensor, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Compute logits of the last `num_logits` positions for tokens int64 `[rows,
        num_query_tokens]`, and write keys and values after the rows' ends; the ends do not move.

        Returns logits `[rows, num_logits, vocab_size]`, and the hidden states of `layers` (each
        the number of decoder layers before it), concatenated, `[rows, num_query_tokens,
        len(layers) * hidden_size]`; None without layers. Raises `ValueError` if a token is not
        in the vocabulary (on the CPU; CUDA ends the process).
        """
        as_long = not layers or num_logits == token_ids.shape[1]  # a captured result is one tensor
        return self.run([token_ids], rows, (num_logits, tuple(layers)), capture=as_long)

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        rows: CacheRows,
        options: tuple[Any, ...] = (),
        capture: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`compute` of new tokens, the first of the inputs, captured if possible."""
        if (
            capture
            and self.graphs is not None
            and (replayed := self.graphs.run(rows, inputs, self.compute, options)) is not None
        ):
            return replayed
        lengths, num_new = rows.lengths, inputs[0].shape[1]
        masks: dict[int | None, torch.Tensor | None] = {}
        for window in set(self.shape.windows):
            # One new token of equally long rows attends to all tokens.
            attends_to_all = (
                num_new == 1
                and window is None
                and min(lengths) == max(lengths)
                and not rows.branches
            )
            masks[window] = None if attends_to_all else rows.mask(num_new, self.device, window)
        tables = self.rotary.up_to(max(lengths) + num_new)
        place = Place(
            rotation(tables, rows.positions(num_new, self.device), self.dtype), masks, rows.write
        )
        return self.compute(inputs, place, *options)

    def compute(
        self,
        inputs: Sequence[torch.Tensor],
        place: Place,
        num_logits: int,
        layers: Sequence[int] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The forward itself, with no work on the host, so that it can be captured; see
        `forward`. `inputs`: the tokens."""
        hidden = self.embed(inputs[0])
        states = {0: hidden}  # the residual stream by number of layers before it
        for index, layer in enumerate(self.weights.layers):
            normed = self.norm(hidden, layer.attention_norm)
            hidden = hidden + self.attend(index, layer, normed, place)
            hidden = hidden + self.mlp(layer, hidden)
            if index + 1 in layers:
                states[index + 1] = hidden
        first = hidden.shape[1] - num_logits
        logits = F.linear(self.norm(hidden[:, first:], self.weights.norm), self.weights.head)
        return logits, torch.cat([states[layer] for layer in layers], dim=-1) if layers else None

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings of tokens. Raises `ValueError` if one is not in the vocabulary."""
        try:
            return F.embedding(token_ids, self.weights.embedding)
        except IndexError as error:
            raise ValueError(
                f"query_token_ids must be in [0, {len(self.weights.embedding)})"
            ) from error

    def mlp(self, layer: LlamaLayer, hidden: torch.Tensor) -> torch.Tensor:
        """The contribution of a layer's MLP, with its norm, to the residual stream."""
        gate, up = F.linear(self.norm(hidden, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate).mul_(up), layer.down)

    def attend(
        self, index: int, layer: LlamaLayer, normed: torch.Tensor, place: Place
    ) -> torch.Tensor:
        """The contribution of a layer's attention to the residual stream, from its normed input
        `[rows, tokens, width]`."""
        queries, keys, values = self.project(layer, normed, place.rotation)
        all_keys, all_values = place.write(index, keys, values)
        mask, grouped = (
            place.masks[self.shape.windows[index]],
            self.shape.num_heads != self.shape.num_kv_heads,
        )
        attended = F.scaled_dot_product_attention(
            queries, all_keys, all_values, attn_mask=mask, enable_gqa=grouped
        )
        return F.linear(attended.transpose(1, 2).flatten(2), layer.output, layer.output_bias)

    def project(
        self, layer: LlamaLayer, normed: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A layer's rotated queries and keys, and its values, each `[rows, heads, tokens,
        head_dim]`."""
        heads = (self.shape.num_heads, self.shape.num_kv_heads)
        qkv = F.linear(normed, layer.qkv, layer.qkv_bias)
        qkv = qkv.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)
        queries_keys, values = qkv[:, : sum(heads)], qkv[:, sum(heads) :]
        if layer.q_norm is not None and layer.k_norm is not None:
            queries, keys = queries_keys.split(heads, dim=1)
            queries_keys = torch.cat(
                [self.norm(queries, layer.q_norm), self.norm(keys, layer.k_norm)], dim=1
            )
        queries, keys = rotated(queries_keys, *rotation).split(heads, dim=1)
        return queries, keys, values

    def norm(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMS norm."""
        return F.rms_norm(hidden, weight.shape, weight, self.shape.norm_epsilon)


def rotated(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate each pair of the first and second half of the head's dimensions (RoFormer, arXiv
    2104.09864)."""
    first, second = states.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
