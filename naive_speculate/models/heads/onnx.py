"""Runs a draft head with ONNX Runtime on the CPU: its layers as an ONNX graph."""

from collections.abc import Sequence

import numpy as np
import torch
from onnx import TensorProto, helper

from naive_speculate.infer.ragged_cache import CacheRows
from naive_speculate.models.heads.weights import HeadWeights
from naive_speculate.models.llama.onnx_graph import EMBEDDED, GraphBuilder
from naive_speculate.models.llama.onnx_session import OnnxSession, takes_signed, token_array
from naive_speculate.models.llama.rounded import is_rounded, width_of
from naive_speculate.models.llama.weights import LlamaShape, RotaryTable


class HeadGraph(GraphBuilder):
    """The graph of a head, with the state for the next draft token (`state_name`) `[b, n, d]` as
    an output."""

    def __init__(self, shape: LlamaShape, weights: HeadWeights, signed: bool = True) -> None:
        super().__init__(shape, signed=signed)
        embedded, first_norm = EMBEDDED, weights.layers[0].attention_norm
        features = self._normed_features(weights)
        if is_rounded(weights.fuse):
            features = self._turned(features, width_of(weights.fuse))
        fused = self._linear(features, weights.fuse)
        states = self._add("Concat", [fused, "own_states"], axis=1)
        states_normed = self._norm(states, weights.hidden_norm)
        if weights.state_projection is not None:
            projected = self._linear(states_normed, weights.state_projection)
            stream, normed = self._add_and_norm(embedded, projected, first_norm)
        else:
            stream = states_normed if weights.norm_before_residual else states
            normed = self._add("Concat", [self._norm(embedded, first_norm), states_normed], axis=-1)
        (*_, stream), normed = self._layers(weights, stream, normed, "at")
        # the state for the next draft token: the last layer's output, before or after the final
        # norm
        self.state_name = normed if weights.norm_output else stream
        value = helper.make_tensor_value_info
        # the target's hidden states of the tokens, or the head's own: the others are of no token
        inputs = [
            value("features", TensorProto.FLOAT, ["b", "s_target", width_of(weights.fuse)]),
            value("own_states", TensorProto.FLOAT, ["b", "s_own", shape.hidden_size]),
            # the token indices of each row's logits, one but in trees, instead of `logits_from`
            value("at", TensorProto.INT64, ["b", "n", 1]),
        ]
        self._finish(inputs, self._linear(normed, weights.head), [self.state_name])

    def _normed_features(self, weights: HeadWeights) -> str:
        """The features that are fused: normed, if the head norms them."""
        name = "features"
        if weights.input_norm is not None:
            name = self._norm(name, weights.input_norm)
        if weights.layer_norms is not None:
            by_layer = self._add(
                "Reshape", [name, self._constant(0, 0, *weights.layer_norms.shape)]
            )
            normed = self._norm(by_layer, torch.ones(weights.layer_norms.shape[1]))
            scaled = self._add("Mul", [normed, self._weight(weights.layer_norms)])
            name = self._add("Reshape", [scaled, self._constant(0, 0, width_of(weights.fuse))])
        return name


class OnnxHead(OnnxSession):
    """A forward of a draft head, like `TorchHead`; its weights are on the CPU, the matrices
    float32 or rounded."""

    def __init__(self, shape: LlamaShape, weights: HeadWeights, rotary: RotaryTable) -> None:
        super().__init__(
            graph := HeadGraph(shape, weights, takes_signed()), rotary, weights.embedding
        )
        self._state_name = graph.state_name
        self._widths = {"features": width_of(weights.fuse), "own_states": shape.hidden_size}

    def forward(
        self,
        token_ids: torch.Tensor,
        states: torch.Tensor,
        rows: CacheRows,
        last: Sequence[int],
        of_target: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `DraftHead.forward`; the ends of the rows do not move."""
        count, each = len(token_ids), len(last) // len(token_ids)
        logits, state = (
            np.empty((count, each, size), np.float32)
            for size in (self.shape.vocab_size, self.shape.hidden_size)
        )
        at = np.array(last, np.int64).reshape(count, each, 1)
        inputs = {
            name: np.empty((count, 0, width), np.float32) for name, width in self._widths.items()
        }
        inputs["features" if of_target else "own_states"] = states.detach().numpy()
        self.run(
            {"token_ids": token_array(token_ids), "at": at} | inputs,
            rows,
            {"logits": logits, self._state_name: state},
        )
        return torch.from_numpy(logits).flatten(0, 1), torch.from_numpy(state).flatten(0, 1)
