"""A Llama-like model as an ONNX graph, built node by node.

Bits do not depend on company: a token's logits are bit for bit the same in a pass over one token
or many, in a batch or alone. Three things make it so:

- Products with weights are whole numbers, whose sums are exact, or compute each row by itself in
  float32 (`kernels.row_difference` checks it).
- Attention is written with products of its own. ONNX Runtime's product takes another kernel for a
  single row or column, so queries of heads that share keys are in one product, and where no heads
  share, a copy of the last query is added.
- Keys past a row's end get the lowest score, so they add exact zeros to its sums.

`TensorScatter` writes keys and values in place: the caller binds each `past` input and its
`present` output to the same memory. The weights are external initializers, which the session
copies. Embeddings are an input, so their table is not in the graph.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import count
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper

from naive_speculate.models.llama.rounded import TOP, is_rounded, parts, turns, width_of
from naive_speculate.models.llama.weights import LlamaLayer, LlamaShape, LlamaWeights

ORT = "com.microsoft"
_LAST = 2**63 - 1
_value = helper.make_tensor_value_info
_KINDS = {
    torch.float32: TensorProto.FLOAT,
    torch.int8: TensorProto.INT8,
    torch.uint8: TensorProto.UINT8,
}
EMBEDDED = "embedded"  # name of the input with the tokens' embeddings


class GraphBuilder:
    """Adds the nodes of graphs over a ragged cache; the methods take and return names of values.
    `initializers` are the weights by name; `exact`: the first numbers of the residual stream that
    rounded matrices read in float32. `signed`: see `onnx_session.takes_signed`."""

    model: onnx.ModelProto  # the ONNX model, once `_finish` was called

    def __init__(self, shape: LlamaShape, exact: int = 0, signed: bool = True) -> None:
        self.shape, self._exact, self._signed = shape, exact, signed
        self._group = shape.num_heads // shape.num_kv_heads  # heads that share keys
        # products of weights and values per key head: with two of them, two threads share the work
        # of an odd number of heads; none has a single column
        self.value_parts = 2 if shape.head_dim > 2 else 1
        self.initializers: dict[str, torch.Tensor] = {}
        self._constants: dict[str, onnx.TensorProto] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._numbers = count()
        self._whole: dict[str, tuple[str, str, str | None]] = {}  # by the name of the input

    def _finish(
        self, inputs: Sequence[onnx.ValueInfoProto], logits: str, states: Sequence[str]
    ) -> None:
        """Make the model from the added nodes: `b` rows, `s` new tokens per row, `c` the cache's
        capacity; the outputs are `logits` float32 `[b, n, vocab_size]`, the states, and
        `present_key_i`, `present_value_i` like the past."""
        self._add("Identity", [logits], ["logits"])
        shape = self.shape
        masks = ["mask", "window_mask"] if any(shape.windows) else ["mask"]
        past: dict[str, list[int | str]] = {
            kind: ["b", shape.num_kv_heads, parts, "c", shape.head_dim // parts]
            for kind, parts in (("key", 1), ("value", self.value_parts))
        }
        inputs = [
            _value(EMBEDDED, TensorProto.FLOAT, ["b", "s", "w"]),
            _value(
                "logits_from", TensorProto.INT64, [1]
            ),  # the first position with logits, counted from the end, negative
            _value("cos", TensorProto.FLOAT, ["p", shape.head_dim // 2]),  # of at least c positions
            _value("sin", TensorProto.FLOAT, ["p", shape.head_dim // 2]),
            _value("positions", TensorProto.INT64, ["b", "s"]),
            _value("starts", TensorProto.INT64, ["b"]),  # each row's length before this forward
            *(
                # 0 or the lowest float; a row per row of the product of queries and keys
                _value(name, TensorProto.FLOAT, ["b", 1, 1, "q", "c"])
                for name in masks
            ),
            *(
                _value(f"past_{kind}_{i}", TensorProto.FLOAT, past[kind])
                for i in range(shape.num_layers)
                for kind in past
            ),
            *inputs,
        ]
        present = [f"present_{kind}_{i}" for i in range(shape.num_layers) for kind in past]
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
        output = self._linear(attended, layer.output, layer.output_bias, exact=0)
        stream, normed = self._add_and_norm(stream, output, layer.mlp_norm)
        if is_rounded(layer.gate_up):
            both = self._linear(normed, layer.gate_up, exact=self._exact)
            gate, up = self._split(both, *[width_of(layer.down)] * 2)
        else:  # two products are faster than one fused product that must be split
            gate, up = (self._linear(normed, weight) for weight in layer.gate_up.chunk(2))
        activated = self._add("QuickGelu", [gate], domain=ORT, alpha=1.0)  # x * sigmoid(x): SiLU
        product = self._add("Mul", [activated, up])
        if is_rounded(layer.down):
            product = self._turned(product, width_of(layer.down))
        output = self._linear(product, layer.down, exact=0)
        return self._add_and_norm(stream, output, next_norm)

    def _attention(self, index: int, layer: LlamaLayer, normed: str) -> str:
        """Add the attention over the cache, to which new keys and values are written."""
        shape, group, part = self.shape, self._group, self.shape.head_dim // self.value_parts
        order, num_values = self._by_key_head(), shape.num_kv_heads * shape.head_dim
        bias = None if layer.qkv_bias is None else layer.qkv_bias[order]
        projected = self._linear(normed, layer.qkv[order], bias, self._exact)
        both, values = self._split(projected, len(order) - num_values, num_values)
        both = self._by_head(self._rotated(both, layer), group + 1, shape.head_dim)
        queries, keys = self._split(both, group, 1)
        values = self._by_head(values, self.value_parts, part)
        for kind, new in (("key", keys), ("value", values)):
            inputs = [f"past_{kind}_{index}", new, "starts"]
            self._add("TensorScatter", inputs, [f"present_{kind}_{index}"], axis=3)
        mask = "mask" if shape.windows[index] is None else "window_mask"
        keys, values = f"present_key_{index}", f"present_value_{index}"
        attended = self._weighted(self._rows_of_queries(queries), keys, values, mask)
        if group == 1:
            attended = self._slice(attended, 0, -1, axis=3)
        by_query = self._constant(0, shape.num_kv_heads, self.value_parts, group, -1, part)
        attended = self._add("Reshape", [attended, by_query])
        attended = self._add("Transpose", [attended], perm=[0, 4, 1, 3, 2, 5])
        return self._add("Reshape", [attended, self._constant(0, 0, -1)])

    def _by_key_head(self) -> torch.Tensor:
        """The rows of `LlamaLayer.qkv` in another order: for each key head the queries that share
        it, then its keys; at the end all values."""
        shape = self.shape
        heads = (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
        rows = torch.arange(sum(heads) * shape.head_dim)
        queries, keys, values = rows.split([count * shape.head_dim for count in heads])
        by_key_head = [part.view(shape.num_kv_heads, -1) for part in (queries, keys)]
        return torch.cat([torch.cat(by_key_head, dim=1).flatten(), values])

    def _by_head(self, by_token: str, count: int, width: int) -> str:
        """Add the split of `[b, s, n]` into vectors, `count` per key head: `[b, num_kv_heads,
        count, s, width]`."""
        heads = self._constant(0, 0, self.shape.num_kv_heads, count, width)
        return self._add(
            "Transpose", [self._add("Reshape", [by_token, heads])], perm=[0, 2, 3, 1, 4]
        )

    def _rotated(self, both: str, layer: LlamaLayer) -> str:
        """Add the rotation of queries and keys, all heads at once."""
        shape = self.shape
        if layer.q_norm is not None and layer.k_norm is not None:
            heads = self._constant(0, 0, shape.num_kv_heads, self._group + 1, shape.head_dim)
            normed = self._norm(self._add("Reshape", [both, heads]), torch.ones(shape.head_dim))
            scales = self._weight(torch.stack([*[layer.q_norm] * self._group, layer.k_norm]))
            scaled = self._add("Mul", [normed, scales])
            both = self._add("Reshape", [scaled, self._constant(0, 0, -1)])
        inputs = [both, "positions", "cos", "sin"]
        num_heads = shape.num_heads + shape.num_kv_heads
        return self._add("RotaryEmbedding", inputs, domain=ORT, num_heads=num_heads)

    def _rows_of_queries(self, queries: str) -> str:
        """Add the rows of one product per key head, `[b, num_kv_heads, 1, rows, head_dim]`, from
        the queries of all heads that share its keys. Never a single one."""
        if self._group == 1:
            return self._add("Concat", [queries, self._slice(queries, -1, _LAST, axis=3)], axis=3)
        rows = self._constant(0, self.shape.num_kv_heads, 1, -1, self.shape.head_dim)
        return self._add("Reshape", [queries, rows])

    def _weighted(self, queries: str, keys: str, values: str, mask: str) -> str:
        """Add the means of values, weighted by the softmax of queries times keys."""
        scale = self.shape.head_dim**-0.5
        # keys are the first factor, since ONNX Runtime copies the second one before it multiplies
        scores = self._add("FusedMatMul", [keys, queries], domain=ORT, transB=1, alpha=scale)
        scores = self._add("Transpose", [scores], perm=[0, 1, 2, 4, 3])
        weights = self._add("Softmax", [self._add("Add", [scores, mask])], axis=-1)
        return self._add("MatMul", [weights, values])

    def _slice(self, source: str, begin: int, end: int, axis: int) -> str:
        return self._add("Slice", [source, *(self._constant(at) for at in (begin, end, axis))])

    def _split(self, source: str, *sizes: int) -> list[str]:
        """Add the split of the third dimension into parts of these sizes."""
        names = [self._name() for _ in sizes]
        self._add("Split", [source, self._constant(*sizes)], names, axis=2)
        return names

    def _norm(self, source: str, weight: torch.Tensor) -> str:
        inputs = [source, self._weight(weight)]
        return self._add("SimplifiedLayerNormalization", inputs, epsilon=self.shape.norm_epsilon)

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

    def _linear(
        self, source: str, weight: torch.Tensor, bias: torch.Tensor | None = None, exact: int = 0
    ) -> str:
        product = self._product(source, weight, exact)
        return product if bias is None else self._add("Add", [product, self._weight(bias)])

    def _product(self, source: str, weight: torch.Tensor, exact: int) -> str:
        if not is_rounded(weight):
            return self._float_product(source, weight)
        numbers, scales, floats = parts(weight, exact)
        whole, largest, first = self._in_whole_numbers(source, exact, numbers.shape[1])
        form = numbers if self._signed else numbers.view(torch.uint8) ^ 128
        inputs = [whole, self._weight(form.T), self._step, self._weight(scales), self._middle]
        if not self._signed:
            inputs.append(self._middle)
        product = self._add("MatMulIntegerToFloat", inputs, domain=ORT)
        product = self._add("Mul", [product, largest])
        if first is None:
            return product
        return self._add("Add", [product, self._float_product(first, floats)])

    def _float_product(self, source: str, weight: torch.Tensor) -> str:
        return self._add("FusedMatMul", [source, self._weight(weight)], domain=ORT, transB=1)

    def _in_whole_numbers(self, source: str, exact: int, width: int) -> tuple[str, str, str | None]:
        """Add the rounding of vectors `[b, s, exact + width]`, once for all products of them:
        their last numbers as uint8 with zero at 128, the largest of each vector, and the first
        numbers as they are. Of zeros alone any whole numbers come, times zero."""
        if source not in self._whole:
            first, rest = self._split(source, exact, width) if exact else (None, source)
            largest = self._add("ReduceMax", [self._add("Abs", [rest]), self._constant(-1)])
            shares = self._add("Div", [rest, largest])
            whole = self._add("QuantizeLinear", [shares, self._step, self._middle])
            self._whole[source] = whole, largest, first
        return self._whole[source]

    @cached_property
    def _step(self) -> str:
        return self._weight(torch.tensor(1 / TOP))

    @cached_property
    def _middle(self) -> str:
        return self._weight(torch.tensor(128, dtype=torch.uint8))

    def _turned(self, source: str, width: int) -> str:
        """Add the turn of vectors `[b, s, width]`: see `rounded.turned`."""
        left, right = (self._weight(torch.from_numpy(matrix)) for matrix in turns(width))
        vectors = self._constant(0, 0, *(len(matrix) for matrix in turns(width)))
        product = self._add("MatMul", [self._add("Reshape", [source, vectors]), right])
        product = self._add("MatMul", [left, product])
        return self._add("Reshape", [product, self._constant(0, 0, width)])

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
        kind = _KINDS[weight.dtype]
        proto = self._constants[name] = onnx.TensorProto(
            name=name, data_type=kind, dims=weight.shape
        )
        proto.data_location = TensorProto.EXTERNAL
        proto.external_data.add(key="location", value="in memory")
        return name


class LlamaGraph(GraphBuilder):
    """The graph of a model; `residuals` are the outputs with the residual stream after 0, 1, 2 …
    layers, float32 `[b, s, hidden_size]`."""

    def __init__(self, shape: LlamaShape, weights: LlamaWeights, signed: bool = True) -> None:
        super().__init__(shape, 0 if weights.basis is None else weights.basis.exact, signed)
        stream = self._add("Identity", [EMBEDDED])  # an input itself would not be a filled output
        first = self._norm(stream, weights.layers[0].attention_norm)
        self.residuals, normed = self._layers(weights, stream, first)
        selected = self._add(
            "Slice", [normed, "logits_from", self._constant(_LAST), self._constant(1)]
        )
        logits = self._linear(selected, weights.head, exact=self._exact)
        self._finish([], logits, self.residuals)
