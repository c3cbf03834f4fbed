"""A draft head beside a target: what it reads of it, its forward, its cache."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from naive_speculate.infer.arrays import as_tensor
from naive_speculate.infer.device import Tokens, num_new
from naive_speculate.infer.head.torch import TorchHead
from naive_speculate.infer.head.weights import HeadWeights
from naive_speculate.infer.llama.weights import LlamaShape, RotaryTable
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache


class _Forward(Protocol):
    def fuse(self, features: Any) -> torch.Tensor: ...

    def forward(
        self, token_ids: torch.Tensor, states: torch.Tensor, rows: CacheRows, last: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


class DraftHead:
    """A draft head: of the EAGLE-3 kind (Li et al. 2025, arXiv 2503.01840), or one that adds states to embeddings.

    At place i it reads the embedding of token i + 1 beside a hidden state, and says what token i + 2 may be. The hidden state
    is fused from the target's at token i, or, where the target has not been there yet, it is the head's own output at i - 1.

    Args:
        weights: Its weights, on the target's device.
        shape: The shape of its layers; `vocab_size` is the head's own.
        rotary: Its rotary embedding.
        layers: Of the target, whose hidden states it reads; see `BatchLanguageModel.forward`.
        name: Where it was loaded from.
        executor: "torch", or "onnx" (float32 on the CPU).

    Attributes:
        vocab_size: Of the target.
        target_hidden_size: The target's width.
        num_parameters: Number of parameters, embeddings apart.
    """

    def __init__(
        self,
        weights: HeadWeights,
        shape: LlamaShape,
        rotary: RotaryTable,
        layers: Sequence[int],
        name: str,
        executor: str = "torch",
    ) -> None:
        self.layers = tuple(layers)
        self.name = name
        self.executor = executor
        self.vocab_size = len(weights.embedding)
        self.target_hidden_size = weights.fuse.shape[1] // len(self.layers)
        self.num_parameters = weights.num_parameters
        self.device = weights.fuse.device
        self.dtype = weights.fuse.dtype
        self._shape = shape
        self._token_ids = weights.token_ids
        self._forward: _Forward
        if executor == "torch":
            self._forward = TorchHead(shape, weights, rotary)
        else:
            from naive_speculate.infer.head.onnx import OnnxHead  # onnxruntime is optional

            self._forward = OnnxHead(shape, weights, rotary)

    def new_cache(self, batch_size: int) -> RaggedKVCache:
        """An empty cache for `batch_size` rows."""
        return RaggedKVCache(batch_size)

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """One hidden state of the head's width from the target's hidden states.

        Args:
            features: Those of `layers` side by side, shape `[..., len(layers) * target_hidden_size]`.

        Raises:
            ValueError: If they are of another width.
        """
        return self._forward.fuse(self._checked(features))

    @torch.inference_mode()
    def forward(
        self, token_ids: torch.Tensor, states: torch.Tensor, rows: CacheRows, last: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute logits and extend the rows by all places, padding included.

        Args:
            token_ids: int64, shape `[rows, num_new]`.
            states: The hidden states of the tokens before these, shape `[rows, num_new, d]`.
            rows: Rows of a cache of this head.
            last: The one place of each row whose logits are wanted; what stands after it is padding.

        Returns:
            tuple: Logits, shape `[rows, vocab_size]`, minus infinity for tokens that the head does not know; and the head's own
                hidden state there, shape `[rows, d]`.
        """
        self._require(rows)
        logits, hidden = self._forward.forward(token_ids, states, rows, last)
        rows.advance(token_ids.shape[1])
        return self._in_target_tokens(logits), hidden

    @property
    def drafts_windows(self) -> bool:
        """Whether `draft_window` works for this head."""
        return bool(getattr(self._forward, "drafts_windows", False))

    def draft_window(
        self,
        query: Tokens,
        states: torch.Tensor,
        rows: CacheRows,
        last: Sequence[int],
        k: int,
        vocab_size: int,
        race: tuple[torch.Tensor, torch.Tensor] | None,
        with_probs: bool,
        fuses: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Choose k tokens, one after the other, in one call, which begins as `forward` does, or with `fuses` as `fuse` and
        `forward` do; see `OnnxHead.draft`. The drafts take the place of padding."""
        self._require(rows)
        if fuses:
            states = self._checked(states)
        ends = [length + at + k for length, at in zip(rows.lengths, last, strict=True)]
        drafts, probs, own = self._forward.draft(  # type: ignore[attr-defined]
            query, states, rows, last, k, vocab_size, race, with_probs, fuses
        )
        rows.advance(num_new(query) + k - 1)
        for row, end in zip(rows.indices, ends, strict=True):
            rows.cache.keep(row, end)
        return as_tensor(drafts), None if probs is None else as_tensor(probs), as_tensor(own)

    def _checked(self, features: torch.Tensor) -> torch.Tensor:
        """The target's hidden states where and as the head reads them."""
        if features.shape[-1] != (width := len(self.layers) * self.target_hidden_size):
            raise ValueError(f"head {self.name!r} reads hidden states {width} wide, got {features.shape[-1]}")
        return features.to(self.device, self.dtype)

    def _require(self, rows: CacheRows) -> None:
        """Make sure that the rows' cache is one of this head's."""
        if rows.cache.filled_by is not self._forward:
            shape = self._shape
            rows.cache.require(shape.num_layers, shape.num_kv_heads, shape.head_dim, self.dtype, self.device)
            rows.cache.filled_by = self._forward

    def _in_target_tokens(self, logits: torch.Tensor) -> torch.Tensor:
        if self._token_ids is None:
            return logits
        return logits.new_full((len(logits), self.vocab_size), -torch.inf).index_copy_(1, self._token_ids, logits)


def check_head(head: Any, target: Any) -> None:
    """Raise a `ValueError`, which says what differs, for a head that was made for another target."""
    if not isinstance(head, DraftHead):
        raise ValueError(f"head must be a DraftHead, which load_pair loads, got {head!r:.80}")
    for what, wanted in (("hidden_size", head.target_hidden_size), ("vocab_size", head.vocab_size)):
        if (found := getattr(target, what, None)) not in (None, wanted):
            raise ValueError(f"head {head.name!r} is for a target with {what} {wanted}, this one's is {found}")
    depth = getattr(target, "num_layers", None)
    if depth is not None and max(head.layers) > depth:
        raise ValueError(f"head {head.name!r} reads layer {max(head.layers)} of its target, this one has {depth}")
