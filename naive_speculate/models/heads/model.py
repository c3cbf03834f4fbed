"""A draft head for a target: its inputs, its forward in torch, its cache."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from naive_speculate.infer.device import on_device
from naive_speculate.infer.ragged_cache import CacheRows
from naive_speculate.models.heads.weights import HeadWeights
from naive_speculate.models.llama.cuda_graphs import CudaCapture, Graphs, MakesRaggedCaches, Place
from naive_speculate.models.llama.rounded import width_of
from naive_speculate.models.llama.torch import TorchLlama
from naive_speculate.models.llama.weights import LlamaShape, RotaryTable


class Head(MakesRaggedCaches):
    """What reads the target's hidden states to draft: a `DraftHead` or a `BlockHead`.

    Attributes:
        layers: The target's hidden states that it reads; see `BatchLanguageModel.forward`.
        name: Its folder or Hub id.
        vocab_size: The target's vocabulary size.
        target_hidden_size: The target's width.
        num_parameters: Number of parameters without embeddings.
    """

    role: ClassVar[str] = "head"  # its name among a pair's models, and its drafter's

    def __init__(
        self,
        weights: HeadWeights,
        shape: LlamaShape,
        layers: Sequence[int],
        name: str,
        executor: str,
    ) -> None:
        self.layers = tuple(layers)
        self.name = name
        self.executor = executor
        self.vocab_size = len(weights.embedding)
        self.target_hidden_size = width_of(weights.fuse) // len(self.layers)
        self.num_parameters = weights.num_parameters
        self.device = weights.fuse.device
        self.dtype = weights.norm.dtype
        self._shape = shape
        self._weights = weights

    def check_target(self, target: Any) -> None:
        """See `Head` in `infer/protocols.py`."""
        check_sizes(self, target)

    def _features(self, features: torch.Tensor) -> torch.Tensor:
        """Hidden states of the target, `[..., len(layers) * target_hidden_size]`, in the head's
        dtype and on its device. Raises `ValueError` if their width differs."""
        if features.shape[-1] != (width := len(self.layers) * self.target_hidden_size):
            raise ValueError(
                f"head {self.name!r} reads hidden states of width {width}, got {features.shape[-1]}"
            )
        return features.to(self.device, self.dtype)

    def _fused(self, features: torch.Tensor) -> torch.Tensor:
        """One hidden state of the head's width, `[..., d]`, from the target's hidden states of
        `layers`, concatenated."""
        features, epsilon = self._features(features), self._shape.norm_epsilon
        if (norm := self._weights.input_norm) is not None:
            features = F.rms_norm(features, norm.shape, norm, epsilon)
        if (norms := self._weights.layer_norms) is not None:
            parts = features.unflatten(-1, norms.shape)
            features = (F.rms_norm(parts, norms.shape[1:], eps=epsilon) * norms).flatten(-2)
        return F.linear(features, self._weights.fuse)

    def _in_target_tokens(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits of all of the target's tokens; minus infinity for those that the head does not
        have."""
        if (token_ids := self._weights.token_ids) is None:
            return logits
        return logits.new_full((*logits.shape[:-1], self.vocab_size), -torch.inf).index_copy_(
            -1, token_ids, logits
        )


class TorchHead(TorchLlama):
    """A forward of a draft head, whose weights are all on one device and in one dtype."""

    weights: HeadWeights

    @torch.inference_mode()
    def forward(  # type: ignore[override]
        self, token_ids: torch.Tensor, states: torch.Tensor, rows: CacheRows, last: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Compute logits and write keys and values after the rows' ends; the ends do not move.
        See `DraftHead.forward`. Returns logits, shape `[rows, draft_vocab_size]`, and the state
        for the next draft token, shape `[rows, d]`. Raises `ValueError` if a token is not in the
        vocabulary (on the CPU; CUDA ends the process)."""
        return self.run([token_ids, states, on_device(last, self.device)], rows)

    def compute(  # type: ignore[override]
        self, inputs: Sequence[torch.Tensor], place: Place
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The forward itself, as `TorchLlama.compute`; `inputs`: tokens, states, and `last` on
        the device."""
        weights, (token_ids, states, at) = self.weights, inputs
        embedded, normed = self.embed(token_ids), self.norm(states, weights.hidden_norm)
        if weights.state_projection is None:
            hidden = normed if weights.norm_before_residual else states
            read = torch.cat(
                [self.norm(embedded, weights.layers[0].attention_norm), normed], dim=-1
            )
        else:
            hidden = embedded + F.linear(normed, weights.state_projection)
            read = self.norm(hidden, weights.layers[0].attention_norm)
        for index, layer in enumerate(weights.layers):
            if index:
                read = self.norm(hidden, layer.attention_norm)
            hidden = hidden + self.attend(index, layer, read, place)
            if index + 1 == len(weights.layers):  # the rest needs only the last tokens
                hidden = hidden[torch.arange(len(at), device=self.device) % len(hidden), at]
            hidden = hidden + self.mlp(layer, hidden)
        normed = self.norm(hidden, weights.norm)
        return F.linear(normed, weights.head), normed if weights.norm_output else hidden


class DraftHead(Head):
    """A draft head: EAGLE-3 (Li et al. 2025, arXiv 2503.01840), or one that adds states to
    embeddings.

    At position i it reads the embedding of token i + 1 and a hidden state, and predicts token i
    + 2. The hidden state is the fused state of the target at token i or, if the target has not
    computed it yet, the head's own output at i - 1. `weights`: its weights, on the target's
    device. `shape`: the shape of its layers; `vocab_size` is the head's own. `rotary`: its
    rotary embedding. `layers`, `name`: see `Head`. `executor`: "torch", or "onnx" (on the CPU,
    in float32 or rounded, see `HeadWeights.rounded`).
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
        super().__init__(weights, shape, layers, name, executor)
        if executor == "torch":
            graphs = (
                Graphs(shape, rotary, CudaCapture(self.device))
                if self.device.type == "cuda"
                else None
            )
            self._forward = TorchHead(shape, weights, rotary, graphs)
        else:
            from naive_speculate.models.heads.onnx import OnnxHead  # onnxruntime is optional

            self._forward = OnnxHead(shape, weights, rotary)
            self._weights = weights.with_matrices(_dropped)

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        states: torch.Tensor,
        rows: CacheRows,
        last: Sequence[int],
        of_target: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute logits and extend the rows by all tokens, padding included.

        Args:
            token_ids: int64, shape `[rows, num_new]`.
            states: Hidden states of the tokens before these: the head's own, shape `[rows,
                num_new, d]`, or the target's.
            rows: Rows of a cache of this head.
            last: The token index of each row's logits; later tokens are padding. Of a single
                row, any number of indices.
            of_target: Whether the states are the target's, of `layers`, concatenated, shape
                `[rows, num_new, len(layers) * target_hidden_size]`.

        Returns:
            tuple: Logits, shape `[len(last), vocab_size]`, minus infinity for tokens that the
                head does not have; and the head's own hidden state, shape `[len(last), d]`.

        Raises:
            ValueError: If the target's states have another width.
        """
        rows.cache.require(self._shape, self.dtype, self.device)
        if self.executor == "onnx":
            states = self._features(states) if of_target else states
            logits, hidden = self._forward.forward(token_ids, states, rows, last, of_target)
        else:
            logits, hidden = self._forward.forward(
                token_ids, self._fused(states) if of_target else states, rows, last
            )
        rows.advance(token_ids.shape[1])
        return self._in_target_tokens(logits), hidden


def _dropped(matrix: torch.Tensor) -> torch.Tensor:
    """An empty tensor: ONNX Runtime holds its own copy of the matrix."""
    return matrix.new_empty(0)


def check_sizes(head: Any, target: Any) -> None:
    """Raise a `ValueError` naming the difference for a head that was made for another target."""
    for what, expected in (
        ("hidden_size", head.target_hidden_size),
        ("vocab_size", head.vocab_size),
    ):
        if (actual := getattr(target, what, None)) not in (None, expected):
            raise ValueError(
                f"head {head.name!r} is for a target with {what} {expected}, this one's is {actual}"
            )
    depth = getattr(target, "num_layers", None)
    if depth is not None and max(head.layers) > depth:
        raise ValueError(
            f"head {head.name!r} reads layer {max(head.layers)} of its target, this one has {depth}"
        )
