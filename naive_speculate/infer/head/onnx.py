"""Runs a draft head with ONNX Runtime on the CPU, in float32: its layer as an ONNX graph."""

from collections.abc import Sequence

import torch
from onnx import TensorProto, helper

from naive_speculate.infer.head.weights import HeadWeights
from naive_speculate.infer.llama.onnx import OnnxSession
from naive_speculate.infer.llama.onnx_graph import GraphBuilder
from naive_speculate.infer.llama.weights import LlamaShape, RotaryTable
from naive_speculate.infer.ragged_cache import CacheRows

_STATE = "1.in_residual"


class HeadGraph(GraphBuilder):
    """Builds the graph, in the form of `LlamaGraph` with these differences.

    Inputs:
        states: float32 `[b, s, d]`, the hidden states beside the tokens.
        at: int64 `[b, 1]`, the place of each row whose logits are wanted, in place of `logits_from`.

    Outputs: `logits` float32 `[b, draft_vocab_size]`, the layer's output `1.in_residual` `[b, d]`, and the cache's.
    """

    def __init__(self, shape: LlamaShape, weights: HeadWeights) -> None:
        super().__init__(shape)
        layer = weights.layer
        self._weight("embedding", weights.embedding)
        self._add("Gather", ["embedding", "token_ids"], ["embedded"])
        self._norm("embedded", layer.attention_norm, "0.attention_norm", "embedded_normed")
        self._norm("states", weights.hidden_norm, "0.hidden_norm", "states_normed")
        self._add("Concat", ["embedded_normed", "states_normed"], ["0.in"], axis=-1)
        self._linear("0.in", layer.qkv, "0.qkv_weight", "0.qkv", layer.qkv_bias)
        self._attention(0, layer)
        stream = "states_normed" if weights.norm_before_residual else "states"
        for source, selected in (("0.attended", "0.attended_at"), (stream, "stream_at")):
            self._add("GatherND", [source, "at"], [selected], batch_dims=1)
        self._linear("0.attended_at", layer.output, "0.output_weight", "0.attention_out", layer.output_bias)
        self._mlp(0, "stream_at", layer, weights.norm)
        tied = weights.head.data_ptr() == weights.embedding.data_ptr()
        self._linear("1.in", weights.head, "embedding" if tied else "head", "logits")
        value, kind = helper.make_tensor_value_info, TensorProto.FLOAT
        inputs = [value("states", kind, ["b", "s", shape.hidden_size]), value("at", TensorProto.INT64, ["b", 1])]
        self._finish(inputs, [value("logits", kind, ["b", shape.vocab_size]), value(_STATE, kind, None)])


class OnnxHead(OnnxSession):
    """A forward of a draft head, as `TorchHead`; its weights are float32 on the CPU."""

    def __init__(self, shape: LlamaShape, weights: HeadWeights, rotary: RotaryTable) -> None:
        super().__init__(HeadGraph(shape, weights), rotary)

    def forward(
        self, token_ids: torch.Tensor, states: torch.Tensor, rows: CacheRows, last: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `TorchHead.forward`."""
        count = len(token_ids)
        inputs = {"token_ids": token_ids.contiguous(), "states": states.contiguous(), "at": torch.tensor(last)[:, None]}
        outputs = {"logits": torch.empty(count, self.shape.vocab_size), _STATE: torch.empty(count, self.shape.hidden_size)}
        self.run(inputs, rows, outputs)
        return outputs["logits"], outputs[_STATE]
