"""A Llama-like model as an ONNX graph, built node by node.

Attention has two forms, chosen by the input `by_mask` at each call:

- Fast: `GroupQueryAttention` (an operator of ONNX Runtime) rotates, writes keys and values into the cache and attends in one
  node. It takes several rows of one new token, or one row of several.
- Masked: `RotaryEmbedding`, `TensorScatter` into the cache, `Attention` under a mask. It takes several rows of several
  tokens. Layers with a sliding window, and head sizes that the fast form does not support, always use it.

Both write in place: the caller binds each `past` input and its `present` output to the same memory. The weights are external
initializers, which the session copies. The embedding table is an input bound by the caller, so it exists once.
"""

from collections.abc import Sequence
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper

from naive_speculate.infer.llama.weights import LlamaLayer, LlamaShape, LlamaWeights

ORT = "com.microsoft"
_LAST = 2**63 - 1
_node, _value = helper.make_node, helper.make_tensor_value_info
TABLE = "embedding_table"  # name of the input with the embedding table


def has_fast_form(shape: LlamaShape, layer: int) -> bool:
    """Whether a layer supports the fast form."""
    return shape.windows[layer] is None and shape.head_dim % 16 == 0


def residual(layer: int) -> str:
    """Name of the residual stream after `layer` layers."""
    return f"{layer}.in_residual"


class GraphBuilder:
    """Adds the nodes of graphs over a ragged cache. `initializers` are the weights by name."""

    model: onnx.ModelProto  # the ONNX model, once `_finish` was called
    table: torch.Tensor  # the embedding table, once `_embed` was called

    def __init__(self, shape: LlamaShape) -> None:
        self.shape = shape
        self.initializers: dict[str, torch.Tensor] = {}
        self._constants: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constant("query_shape", [0, -1, shape.num_heads, shape.head_dim])
        self._constant("key_shape", [0, -1, shape.num_kv_heads, shape.head_dim])
        self._constant("flat_shape", [0, 0, -1])
        widths = [shape.num_heads * shape.head_dim] + 2 * [shape.num_kv_heads * shape.head_dim]
        self._constant("qkv_widths", widths)

    def _finish(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> None:
        """Make the model from the added nodes, with the cache's inputs and outputs."""
        shape, kinds = self.shape, ("key", "value")
        masks = ["mask", "window_mask"] if any(shape.windows) else ["mask"]
        past: list[int | str] = ["b", shape.num_kv_heads, "c", shape.head_dim]
        inputs = [
            _value(TABLE, TensorProto.FLOAT, ["v", "w"]),
            _value("token_ids", TensorProto.INT64, ["b", "s"]),
            _value("logits_from", TensorProto.INT64, [1]),
            _value("last", TensorProto.INT32, ["b"]),
            _value("total", TensorProto.INT32, []),
            _value("cos", TensorProto.FLOAT, ["p", shape.head_dim // 2]),
            _value("sin", TensorProto.FLOAT, ["p", shape.head_dim // 2]),
            _value("by_mask", TensorProto.BOOL, []),
            _value("positions", TensorProto.INT64, ["b2", "s2"]),
            _value("starts", TensorProto.INT64, ["b2"]),
            *(_value(name, TensorProto.FLOAT, ["b2", 1, "s2", "c2"]) for name in masks),
            *(_value(f"past_{kind}_{i}", TensorProto.FLOAT, past) for i in range(shape.num_layers) for kind in kinds),
            *inputs,
        ]
        present = [_value(f"present_{kind}_{i}", TensorProto.FLOAT, None) for i in range(shape.num_layers) for kind in kinds]
        graph = helper.make_graph(self._nodes, "llama", inputs, [*outputs, *present], self._constants)
        opsets = [helper.make_opsetid("", 24), helper.make_opsetid(ORT, 1)]
        self.model = helper.make_model(graph, opset_imports=opsets, ir_version=11)

    def _layer(
        self, index: int, layer: LlamaLayer, next_norm: torch.Tensor, stream: str | None = None, selected: str | None = None
    ) -> None:
        """Add one layer and the norm after it."""
        at, stream, attended = f"{index}.", stream or residual(index), f"{index}.attended"
        self._linear(at + "in", layer.qkv, at + "qkv_weight", at + "qkv", layer.qkv_bias)
        self._attention(index, layer)
        if selected is not None:
            for source in (attended, stream):
                self._add("GatherND", [source, selected], [f"{source}/selected"], batch_dims=1)
            attended, stream = f"{attended}/selected", f"{stream}/selected"
        self._linear(attended, layer.output, at + "output_weight", at + "attention_out", layer.output_bias)
        attended = self._add_and_norm(stream, at + "attention_out", layer.mlp_norm, at + "mlp_in")
        # Two products are faster than one fused product that must be split.
        gate, up = layer.gate_up.chunk(2)
        self._linear(at + "mlp_in", gate, at + "gate_weight", at + "gate")
        self._linear(at + "mlp_in", up, at + "up_weight", at + "up")
        self._add("QuickGelu", [at + "gate"], [at + "activated"], ORT, alpha=1.0)  # x * sigmoid(x): SiLU
        self._add("Mul", [at + "activated", at + "up"], [at + "mlp"])
        self._linear(at + "mlp", layer.down, at + "down_weight", at + "mlp_out")
        self._add_and_norm(attended, at + "mlp_out", next_norm, f"{index + 1}.in")

    def _attention(self, index: int, layer: LlamaLayer) -> None:
        at = f"{index}."
        outputs = [at + "attended", f"present_key_{index}", f"present_value_{index}"]
        packed = [at + "qkv", "", ""]
        if layer.q_norm is not None and layer.k_norm is not None:
            self._nodes.append(_split_heads(at))
            queries = self._head_norm(at + "q", layer.q_norm, "query_shape")
            keys = self._head_norm(at + "k", layer.k_norm, "key_shape")
            packed = [queries, keys, at + "v"]
        if not has_fast_form(self.shape, index):
            self._nodes += self._masked_attention(index, packed, outputs)
            return
        inputs = [*packed, f"past_key_{index}", f"past_value_{index}", "last", "total", "cos", "sin"]
        heads: dict[str, Any] = {"num_heads": self.shape.num_heads, "kv_num_heads": self.shape.num_kv_heads}
        fast = _node("GroupQueryAttention", inputs, [name + "/fast" for name in outputs], domain=ORT, do_rotary=1, **heads)
        masked = _branch("masked", self._masked_attention(index, packed, [name + "/masked" for name in outputs]), outputs)
        self._add("If", ["by_mask"], outputs, then_branch=masked, else_branch=_branch("fast", [fast], outputs))

    def _masked_attention(self, index: int, packed: Sequence[str], outputs: Sequence[str]) -> list[onnx.NodeProto]:
        at, shape = f"{index}.masked.", self.shape
        mask = "mask" if shape.windows[index] is None else "window_mask"
        nodes, (queries, keys, values) = [], packed
        if not keys:
            nodes.append(_split_heads(f"{index}."))
            queries, keys, values = f"{index}.q", f"{index}.k", f"{index}.v"
        for name, source, heads in (("q", queries, shape.num_heads), ("k", keys, shape.num_kv_heads)):
            rotary = [source, "positions", "cos", "sin"]
            nodes.append(_node("RotaryEmbedding", rotary, [at + name], domain=ORT, num_heads=heads))
        for name, source in (("q", at + "q"), ("k", at + "k"), ("v", values)):
            split = "query_shape" if name == "q" else "key_shape"
            nodes.append(_node("Reshape", [source, split], [at + name + "_split"]))
            nodes.append(_node("Transpose", [at + name + "_split"], [at + name + "_heads"], perm=[0, 2, 1, 3]))
        for name, kind, present in (("k", "key", outputs[1]), ("v", "value", outputs[2])):
            scatter = [f"past_{kind}_{index}", f"{at}{name}_heads", "starts"]
            nodes.append(_node("TensorScatter", scatter, [present], axis=2))
        nodes.append(_node("Attention", [at + "q_heads", outputs[1], outputs[2], mask], [at + "out_heads"]))
        nodes.append(_node("Transpose", [at + "out_heads"], [at + "out"], perm=[0, 2, 1, 3]))
        nodes.append(_node("Reshape", [at + "out", "flat_shape"], [outputs[0]]))
        return nodes

    def _embed(self, table: torch.Tensor, output: str) -> None:
        """Add the tokens' embeddings."""
        self.table = table.contiguous()
        self._add("Gather", [TABLE, "token_ids"], [output])

    def _norm(self, source: str, weight: torch.Tensor, name: str, output: str) -> None:
        self._weight(name, weight)
        self._add("SimplifiedLayerNormalization", [source, name], [output], epsilon=self.shape.norm_epsilon)

    def _head_norm(self, name: str, weight: torch.Tensor, split: str) -> str:
        self._weight(name + "_norm", weight)
        self._add("Reshape", [name, split], [name + "_split"])
        epsilon = self.shape.norm_epsilon
        self._add("SimplifiedLayerNormalization", [name + "_split", name + "_norm"], [name + "_scaled"], epsilon=epsilon)
        self._add("Reshape", [name + "_scaled", "flat_shape"], [name + "_normed"])
        return name + "_normed"

    def _add_and_norm(self, stream: str, delta: str, weight: torch.Tensor, output: str) -> str:
        self._weight(output + "_norm", weight)
        outputs = [output, "", "", output + "_residual"]
        epsilon = self.shape.norm_epsilon
        self._add("SkipSimplifiedLayerNormalization", [stream, delta, output + "_norm"], outputs, ORT, epsilon=epsilon)
        return outputs[3]

    def _linear(self, source: str, weight: torch.Tensor, name: str, output: str, bias: torch.Tensor | None = None) -> None:
        product = output if bias is None else output + "_unbiased"
        self._product(source, weight, name, product)
        if bias is not None:
            self._weight(output + "_bias", bias)
            self._add("Add", [product, output + "_bias"], [output])

    def _product(self, source: str, weight: torch.Tensor, name: str, output: str) -> None:
        self._weight(name, weight)
        self._add("FusedMatMul", [source, name], [output], ORT, transB=1)

    def _add(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any) -> None:
        self._nodes.append(_node(kind, inputs, outputs, domain=domain, **attributes))

    def _constant(self, name: str, values: list[int]) -> None:
        self._constants.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))

    def _weight(self, name: str, weight: torch.Tensor) -> None:
        if name in self.initializers:
            return
        self.initializers[name] = weight
        kind = TensorProto.UINT8 if weight.dtype == torch.uint8 else TensorProto.FLOAT
        proto = onnx.TensorProto(name=name, data_type=kind, dims=weight.shape)
        proto.data_location = TensorProto.EXTERNAL
        proto.external_data.add(key="location", value="in memory")
        self._constants.append(proto)


class LlamaGraph(GraphBuilder):
    """The graph of a model; `model` is the ONNX model and `initializers` its weights by name.

    Inputs of the graph (`b` rows, `s` new tokens per row, `c` the cache's capacity):
        embedding_table: float32 `[vocab_size, hidden_size]`.
        token_ids: int64 `[b, s]`.
        logits_from: int64 `[1]`, the first position with logits, counted from the end, negative.
        last: int32 `[b]`, each row's last position after this forward.
        total: int32 `[]`, the longest row's length after this forward.
        cos, sin: float32 `[at least c, head_dim / 2]`.
        by_mask: bool `[]`, the form of attention of layers that have both; only the masked form reads the next four.
        positions: int64 `[b, s]`; `starts`: int64 `[b]`, each row's length before this forward.
        mask: float32 `[b, 1, s, c]`, 0 or the lowest float.
        window_mask: The same for layers with a sliding window.
        past_key_i, past_value_i: float32 `[b, num_kv_heads, c, head_dim]`.

    Outputs: `logits` float32 `[b, -logits_from, vocab_size]`, and `present_key_i`, `present_value_i` like the past; optionally
    `residual(i)` float32 `[b, s, hidden_size]`.
    """

    def __init__(self, shape: LlamaShape, weights: LlamaWeights) -> None:
        super().__init__(shape)
        self._embed(weights.embedding, residual(0))
        self._norm(residual(0), weights.layers[0].attention_norm, "0.attention_norm", "0.in")
        for index, layer in enumerate(weights.layers):
            last = index + 1 == shape.num_layers
            self._layer(index, layer, weights.norm if last else weights.layers[index + 1].attention_norm)
        self._constant("last_position", [_LAST])
        self._constant("token_axis", [1])
        self._add("Slice", [f"{shape.num_layers}.in", "logits_from", "last_position", "token_axis"], ["selected"])
        self._linear("selected", weights.head, "head", "logits")
        outputs = [_value("logits", TensorProto.FLOAT, ["b", "n", shape.vocab_size])]
        outputs += [_value(residual(index), TensorProto.FLOAT, None) for index in range(shape.num_layers + 1)]
        self._finish([], outputs)


def _split_heads(at: str) -> onnx.NodeProto:
    return _node("Split", [at + "qkv", "qkv_widths"], [at + "q", at + "k", at + "v"], axis=-1)


def _branch(name: str, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> onnx.GraphProto:
    values = [_value(f"{output}/{name}", TensorProto.FLOAT, None) for output in outputs]
    return helper.make_graph(list(nodes), name, [], values)
