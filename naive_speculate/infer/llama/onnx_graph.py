"""A Llama-like model as an ONNX graph, built node by node.

Attention has two forms, chosen by the input `by_mask` at each call:

- Fast: `GroupQueryAttention` (an operator of ONNX Runtime) rotates, writes keys and values into
  the cache and attends in one node. It takes several rows of one new token, or one row of
  several.
- Masked: `RotaryEmbedding`, `TensorScatter` into the cache, `Attention` under a mask. It takes
  several rows of several tokens. Layers with a sliding window, and head sizes that the fast form
  does not support, always use it.

Both write in place: the caller binds each `past` input and its `present` output to the same
memory. The weights are external initializers, which the session copies. The embedding table is
an input bound by the caller, so it exists once.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper

from naive_speculate.infer.llama.weights import LlamaLayer, LlamaShape, LlamaWeights

ORT = "com.microsoft"
_LAST = 2**63 - 1
_value = helper.make_tensor_value_info
TABLE = "embedding_table"  # name of the input with the embedding table


def has_fast_form(shape: LlamaShape, layer: int) -> bool:
    """Whether a layer supports the fast form."""
    return shape.windows[layer] is None and shape.head_dim % 16 == 0


class GraphBuilder:
    """Adds the nodes of graphs over a ragged cache; the methods take and return names of values.
    `initializers` are the weights by name."""

    model: onnx.ModelProto  # the ONNX model, once `_finish` was called
    table: torch.Tensor  # the embedding table, once `_embed` was called

    def __init__(self, shape: LlamaShape) -> None:
        self.shape = shape
        self.initializers: dict[str, torch.Tensor] = {}
        self._constants: dict[str, onnx.TensorProto] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._numbers = count()

    def _finish(
        self, inputs: Sequence[onnx.ValueInfoProto], logits: str, states: Sequence[str]
    ) -> None:
        """Make the model from the added nodes: `b` rows, `s` new tokens per row, `c` the cache's
        capacity; the outputs are `logits` float32 `[b, n, vocab_size]`, the states, and
        `present_key_i`, `present_value_i` like the past."""
        self._add("Identity", [logits], ["logits"])
        shape, kinds = self.shape, ("key", "value")
        masks = ["mask", "window_mask"] if any(shape.windows) else ["mask"]
        past: list[int | str] = ["b", shape.num_kv_heads, "c", shape.head_dim]
        inputs = [
            _value(TABLE, TensorProto.FLOAT, ["v", "w"]),
            _value("token_ids", TensorProto.INT64, ["b", "s"]),
            _value(
                "logits_from", TensorProto.INT64, [1]
            ),  # the first position with logits, counted from the end, negative
            _value("last", TensorProto.INT32, ["b"]),  # each row's last position after this forward
            _value("total", TensorProto.INT32, []),  # the longest row's length after this forward
            _value("cos", TensorProto.FLOAT, ["p", shape.head_dim // 2]),  # of at least c positions
            _value("sin", TensorProto.FLOAT, ["p", shape.head_dim // 2]),
            _value(
                "by_mask", TensorProto.BOOL, []
            ),  # the form; only the masked one reads positions, starts and masks
            _value("positions", TensorProto.INT64, ["b2", "s2"]),
            _value("starts", TensorProto.INT64, ["b2"]),  # each row's length before this forward
            *(
                _value(name, TensorProto.FLOAT, ["b2", 1, "s2", "c2"]) for name in masks
            ),  # 0 or the lowest float
            *(
                _value(f"past_{kind}_{i}", TensorProto.FLOAT, past)
                for i in range(shape.num_layers)
                for kind in kinds
            ),
            *inputs,
        ]
        present = [f"present_{kind}_{i}" for i in range(shape.num_layers) for kind in kinds]
        outputs = [_value(name, TensorProto.FLOAT, None) for name in ("logits", *states, *present)]
        graph = helper.make_graph(
            self._nodes, "llama", inputs, outputs, list(self._constants.values())
        )
        opsets = [helper.make_opsetid("", 24), helper.make_opsetid(ORT, 1)]
        self.model = helper.make_model(graph, opset_imports=opsets, ir_version=11)

    def _layers(
        self, weights: LlamaWeights, stream: str, normed: str, selected: str | None = None
    ) -> tuple[list[str], str]:
        """Add all layers and the norm after them, from the residual stream and the first layer's
        input: the residual stream before and after each layer, and its norm at the end.
        `selected`: an input with the tokens that are wanted of it."""
        streams = [stream]
        norms = [*(layer.attention_norm for layer in weights.layers[1:]), weights.norm]
        for index, (layer, next_norm) in enumerate(zip(weights.layers, norms, strict=True)):
            last = index + 1 == len(weights.layers)
            stream, normed = self._layer(
                index, layer, stream, normed, next_norm, selected if last else None
            )
            streams.append(stream)
        return streams, normed

    def _layer(
        self,
        index: int,
        layer: LlamaLayer,
        stream: str,
        normed: str,
        next_norm: torch.Tensor,
        selected: str | None = None,
    ) -> tuple[str, str]:
        """Add one layer and the norm after it: from the residual stream and the layer's input to
        those of the next layer."""
        attended = self._attention(index, layer, normed)
        if selected is not None:
            attended, stream = (
                self._add("GatherND", [source, selected], batch_dims=1)
                for source in (attended, stream)
            )
        output = self._linear(attended, layer.output, layer.output_bias)
        stream, normed = self._add_and_norm(stream, output, layer.mlp_norm)
        # Two products are faster than one fused product that must be split.
        gate, up = (self._linear(normed, weight) for weight in layer.gate_up.chunk(2))
        activated = self._add("QuickGelu", [gate], domain=ORT, alpha=1.0)  # x * sigmoid(x): SiLU
        output = self._linear(self._add("Mul", [activated, up]), layer.down)
        return self._add_and_norm(stream, output, next_norm)

    def _attention(self, index: int, layer: LlamaLayer, normed: str) -> str:
        outputs = [f"attended_{index}", f"present_key_{index}", f"present_value_{index}"]
        projected = [
            self._linear(normed, layer.qkv, layer.qkv_bias)
        ]  # packed: the fast form reads it 8% faster
        if layer.q_norm is not None and layer.k_norm is not None:
            queries, keys, values = self._split(projected[0])
            projected = [
                self._head_norm(queries, layer.q_norm),
                self._head_norm(keys, layer.k_norm),
                values,
            ]
        if not has_fast_form(self.shape, index):
            self._attend_by_mask(index, projected, outputs)
            return outputs[0]
        branches, nodes = {}, self._nodes
        for branch, attend in (
            ("then_branch", self._attend_by_mask),
            ("else_branch", self._attend_fast),
        ):
            self._nodes, own = [], [f"{output}/{branch}" for output in outputs]
            attend(index, projected, own)
            typed = [_value(output, TensorProto.FLOAT, None) for output in own]
            branches[branch] = helper.make_graph(self._nodes, branch, [], typed)
        self._nodes = nodes
        self._add("If", ["by_mask"], outputs, **branches)
        return outputs[0]

    def _attend_fast(self, index: int, projected: Sequence[str], outputs: Sequence[str]) -> None:
        packed = ["", ""] if len(projected) == 1 else []
        inputs = [
            *projected,
            *packed,
            f"past_key_{index}",
            f"past_value_{index}",
            "last",
            "total",
            "cos",
            "sin",
        ]
        heads = {"num_heads": self.shape.num_heads, "kv_num_heads": self.shape.num_kv_heads}
        self._add("GroupQueryAttention", inputs, outputs, ORT, do_rotary=1, **heads)

    def _attend_by_mask(self, index: int, projected: Sequence[str], outputs: Sequence[str]) -> None:
        shape, by_head = self.shape, list[str]()
        parts = self._split(projected[0]) if len(projected) == 1 else projected
        for name, num_heads in zip(
            parts, (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads), strict=True
        ):
            if len(by_head) < 2:  # queries and keys
                name = self._add(
                    "RotaryEmbedding",
                    [name, "positions", "cos", "sin"],
                    domain=ORT,
                    num_heads=num_heads,
                )
            by_head.append(self._add("Transpose", [self._split_heads(name)], perm=[0, 2, 1, 3]))
        for kind, new, present in zip(("key", "value"), by_head[1:], outputs[1:], strict=True):
            self._add("TensorScatter", [f"past_{kind}_{index}", new, "starts"], [present], axis=2)
        mask = "mask" if shape.windows[index] is None else "window_mask"
        attended = self._add("Attention", [by_head[0], *outputs[1:], mask])
        attended = self._add("Transpose", [attended], perm=[0, 2, 1, 3])
        self._add("Reshape", [attended, self._constant(0, 0, -1)], outputs[:1])

    def _split(self, qkv: str) -> list[str]:
        """Add the split into queries, keys and values."""
        widths = [
            self.shape.num_heads * self.shape.head_dim,
            *2 * [self.shape.num_kv_heads * self.shape.head_dim],
        ]
        names = [self._name() for _ in widths]
        self._add("Split", [qkv, self._constant(*widths)], names, axis=-1)
        return names

    def _embed(self, table: torch.Tensor) -> str:
        """Add the tokens' embeddings."""
        self.table = table.contiguous()
        return self._add("Gather", [TABLE, "token_ids"])

    def _norm(self, source: str, weight: torch.Tensor) -> str:
        inputs = [source, self._weight(weight)]
        return self._add("SimplifiedLayerNormalization", inputs, epsilon=self.shape.norm_epsilon)

    def _head_norm(self, source: str, weight: torch.Tensor) -> str:
        return self._add(
            "Reshape", [self._norm(self._split_heads(source), weight), self._constant(0, 0, -1)]
        )

    def _split_heads(self, source: str) -> str:
        return self._add("Reshape", [source, self._constant(0, 0, -1, self.shape.head_dim)])

    def _add_and_norm(self, stream: str, delta: str, weight: torch.Tensor) -> tuple[str, str]:
        """Add a sum and its norm."""
        normed, total = self._name(), self._name()
        inputs, epsilon = [stream, delta, self._weight(weight)], self.shape.norm_epsilon
        self._add(
            "SkipSimplifiedLayerNormalization",
            inputs,
            [normed, "", "", total],
            ORT,
            epsilon=epsilon,
        )
        return total, normed

    def _linear(self, source: str, weight: torch.Tensor, bias: torch.Tensor | None = None) -> str:
        product = self._product(source, weight)
        return product if bias is None else self._add("Add", [product, self._weight(bias)])

    def _product(self, source: str, weight: torch.Tensor) -> str:
        return self._add("FusedMatMul", [source, self._weight(weight)], domain=ORT, transB=1)

    def _add(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str] = (),
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """Add a node; returns the name of its first output."""
        outputs = outputs or [self._name()]
        self._nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def _name(self) -> str:
        return f"value_{next(self._numbers)}"

    def _constant(self, *values: int) -> str:
        name = f"constant {values}"
        self._constants[name] = helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
        return name

    def _weight(self, weight: torch.Tensor) -> str:
        name = f"weight_{len(self.initializers)}"
        self.initializers[name] = weight
        kind = TensorProto.UINT8 if weight.dtype == torch.uint8 else TensorProto.FLOAT
        proto = self._constants[name] = onnx.TensorProto(
            name=name, data_type=kind, dims=weight.shape
        )
        proto.data_location = TensorProto.EXTERNAL
        proto.external_data.add(key="location", value="in memory")
        return name


class LlamaGraph(GraphBuilder):
    """The graph of a model; `residuals` are the outputs with the residual stream after 0, 1, 2 …
    layers, float32 `[b, s, hidden_size]`."""

    def __init__(self, shape: LlamaShape, weights: LlamaWeights) -> None:
        super().__init__(shape)
        stream = self._embed(weights.embedding)
        first = self._norm(stream, weights.layers[0].attention_norm)
        self.residuals, normed = self._layers(weights, stream, first)
        selected = self._add(
            "Slice", [normed, "logits_from", self._constant(_LAST), self._constant(1)]
        )
        self._finish([], self._linear(selected, weights.head), self.residuals)
