"""Runs a draft head with ONNX Runtime on the CPU, in float32: its layers as an ONNX graph."""

from collections.abc import Sequence

import numpy as np
import torch
from onnx import TensorProto, helper

from naive_speculate.infer.device import Array, Tokens
from naive_speculate.infer.head.weights import HeadWeights
from naive_speculate.infer.llama.onnx import MAX_WINDOWED
from naive_speculate.infer.llama.onnx_graph import GraphBuilder, has_fast_form, residual
from naive_speculate.infer.llama.onnx_session import OnnxSession, make_session, token_array
from naive_speculate.infer.llama.onnx_window import Windows
from naive_speculate.infer.llama.weights import LlamaShape, RotaryTable
from naive_speculate.infer.ragged_cache import CacheRows
from naive_speculate.sampling.random_source import Race


class HeadGraph(GraphBuilder):
    """The graph of a head: a `LlamaGraph` with these differences.

    Inputs:
        states: float32 `[b, s, d]`, the hidden states of the tokens; or, with `fuses`, `features`, float32 `[b, s, t]`, as for
            `DraftHead.fuse`.
        at: int64 `[b, n, 1]`, the token indices of each row's logits, one but in trees, instead of `logits_from`.

    Outputs: `logits` float32 `[b, n, draft_vocab_size]`, the state for the next draft token (`state_name`) `[b, n, d]`, and the
    cache's.
    """

    def __init__(self, shape: LlamaShape, weights: HeadWeights, by_mask: bool | None = None, fuses: bool = False) -> None:
        super().__init__(shape, by_mask)
        self._embed(weights.embedding, "embedded")
        if fuses:
            _fuse(self, weights, "states")
        self._norm("states", weights.hidden_norm, "hidden_norm", "states_normed")
        stream = self._join(weights)
        norms = [*(layer.attention_norm for layer in weights.layers[1:]), weights.norm]
        for index, (layer, next_norm) in enumerate(zip(weights.layers, norms, strict=True)):
            last = index + 1 == len(weights.layers)
            self._layer(index, layer, next_norm, residual(index) if index else stream, "at" if last else None)
        state = self.state_name = state_name(weights)
        self.carried = {"states": state, "at": "first"}
        self._linear(f"{len(weights.layers)}.in", weights.head, "head", "logits")
        self._add("Sub", ["at", "at"], ["first"])  # later forwards of a window have one token per row
        value, kind = helper.make_tensor_value_info, TensorProto.FLOAT
        read = ("features", weights.fuse.shape[1]) if fuses else ("states", shape.hidden_size)
        inputs = [value(read[0], kind, ["b", "s", read[1]]), value("at", TensorProto.INT64, ["b", "n", 1])]
        self._finish(inputs, [value("logits", kind, ["b", "n", shape.vocab_size]), value(state, kind, None)])

    def _join(self, weights: HeadWeights) -> str:
        """Add the first layer's normed input from embedding and states; returns the residual stream's name."""
        first_norm = weights.layers[0].attention_norm
        if weights.state_projection is not None:
            self._linear("states_normed", weights.state_projection, "state_projection", "projected")
            return self._add_and_norm("embedded", "projected", first_norm, "0.in")
        self._norm("embedded", first_norm, "0.attention_norm", "embedded_normed")
        self._add("Concat", ["embedded_normed", "states_normed"], ["0.in"], axis=-1)
        return "states_normed" if weights.norm_before_residual else "states"


class FuseGraph(GraphBuilder):
    """The graph of `DraftHead.fuse`: from `features` float32 `[n, t]` to `fused` `[n, d]`."""

    def __init__(self, shape: LlamaShape, weights: HeadWeights) -> None:
        super().__init__(shape)
        _fuse(self, weights, "fused")
        kind, (width, read) = TensorProto.FLOAT, weights.fuse.shape
        value = helper.make_tensor_value_info
        self._make([value("features", kind, ["n", read])], [value("fused", kind, ["n", width])])


def state_name(weights: HeadWeights) -> str:
    """Name of the state for the next draft token: the last layer's output, before or after the final norm."""
    count = len(weights.layers)
    return f"{count}.in" if weights.norm_output else residual(count)


def _fuse(graph: GraphBuilder, weights: HeadWeights, output: str) -> None:
    """Add the fusing of the target's hidden states, `features`, to one."""
    read = "features"
    if weights.input_norm is not None:
        graph._norm(read, weights.input_norm, "input_norm", "features_normed")
        read = "features_normed"
    if weights.layer_norms is not None:
        count = len(weights.layer_norms)
        graph._add("Split", [read], [f"feature_{index}" for index in range(count)], axis=-1, num_outputs=count)
        for index, norm in enumerate(weights.layer_norms):
            graph._norm(f"feature_{index}", norm, f"layer_norm_{index}", f"feature_{index}_normed")
        graph._add("Concat", [f"feature_{index}_normed" for index in range(count)], ["features_joined"], axis=-1)
        read = "features_joined"
    graph._linear(read, weights.fuse, "fuse", output)


class OnnxHead(OnnxSession):
    """A forward of a draft head, like `TorchHead`; its weights are float32 on the CPU."""

    def __init__(self, shape: LlamaShape, weights: HeadWeights, rotary: RotaryTable) -> None:
        super().__init__(graph := HeadGraph(shape, weights), rotary)
        self._fuse = make_session(FuseGraph(shape, weights))
        self._state_name = graph.state_name
        self._windows: dict[bool, Windows] = {}  # by whether the first forward fuses
        fast = all(has_fast_form(shape, layer) for layer in range(shape.num_layers))
        if graph.num_weights <= MAX_WINDOWED and weights.token_ids is None and fast:
            rest = HeadGraph(shape, weights, by_mask=False)
            for fuses in (False, True):
                firsts = {by_mask: HeadGraph(shape, weights, by_mask, fuses) for by_mask in (False, True)}
                self._windows[fuses] = Windows(firsts, rest, rotary)

    @property
    def drafts_windows(self) -> bool:
        """Whether `draft` works for this head: its tokens are the target's, and it is small."""
        return bool(self._windows)

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """See `TorchHead.fuse`."""
        given = features.numpy()
        (fused,) = self._fuse.run(None, {"features": given.reshape(-1, given.shape[-1])})
        return torch.from_numpy(fused.reshape(*given.shape[:-1], fused.shape[-1]))

    def forward(
        self, token_ids: torch.Tensor, states: torch.Tensor, rows: CacheRows, last: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `TorchHead.forward`."""
        count, each = len(token_ids), len(last) // len(token_ids)
        state, logits = self._state(count, each), np.empty((count, each, self.shape.vocab_size), np.float32)
        self.run(_inputs(token_ids, "states", states, last), rows, {"logits": logits, self._state_name: state})
        return torch.from_numpy(logits).flatten(0, 1), torch.from_numpy(state).flatten(0, 1)

    def draft(
        self,
        token_ids: Tokens,
        states: torch.Tensor,
        rows: CacheRows,
        last: Sequence[int],
        k: int,
        vocab_size: int,
        race: Race | None,
        with_probs: bool,
        fuses: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """See `OnnxLlama.draft`; `states` and `last` as for `forward`. With `fuses`, `states` are the target's. Returns as
        there, and the head's own state of the last forward, shape `[rows, 1, d]`."""
        state, inputs = self._state(len(token_ids)), _inputs(token_ids, "features" if fuses else "states", states, last)
        drafts, probs = self._windows[fuses].draft(inputs, rows, k, vocab_size, race, with_probs, {self._state_name: state})
        return drafts, probs, torch.from_numpy(state)

    def _state(self, count: int, each: int = 1) -> Array:
        return np.empty((count, each, self.shape.hidden_size), np.float32)


def _inputs(token_ids: Tokens, name: str, states: torch.Tensor, last: Sequence[int]) -> dict[str, Array]:
    at = np.array(last, np.int64).reshape(len(token_ids), -1, 1)
    return {"token_ids": token_array(token_ids), name: states.detach().numpy(), "at": at}
