"""A whole draft window as one ONNX graph: k forwards of a model, each fed the token that was chosen after the one before.

A small model's forward is mostly the cost of calling it, so that k tokens in one call cost little more than one. Chosen is the
most probable token, or one drawn with noise that the caller hands in, by the rule of `SeededRandom.categorical`.
"""

import math

import onnx
from onnx import TensorProto, helper

from naive_speculate.infer.llama.onnx_graph import GraphBuilder
from naive_speculate.sampling.random_source import num_noises


class WindowGraph:
    """Unrolls a model's graph; afterwards `model` is the ONNX model.

    Its inputs are those of the first forward's graph, and where tokens are drawn (`b` rows, `r` = `num_noises(vocab_size)`):
        temperature: float32 `[b, 1]`.
        noise: float32 `[b, k, r]`, as `SeededRandom.noise` gives it.

    Outputs: `drafts` int64 `[b, k]`; where they are wanted `probs` float32 `[b, k, vocab_size]` too; and each forward's
    `j/present_key_i`, `j/present_value_i`. All of these must be bound to the cache: a forward reads what those before it wrote
    there, and cannot begin before their token is known. What a forward gives out for the next one (`carried`) is an output of
    the last, `k - 1/…`.

    Args:
        first: A `LlamaGraph` or `HeadGraph`, for the first forward.
        graph: The same of the fast form, for those after it; of a head, one that reads fused states.
        k: Drafts in a window.
        vocab_size: How many tokens may be drafted; logits after them are not looked at.
        drawn: Whether tokens are drawn; else they are the most probable ones.
        with_probs: Whether the probabilities are wanted; drawn tokens always come with them.
    """

    def __init__(
        self, first: GraphBuilder, graph: GraphBuilder, k: int, vocab_size: int, *, drawn: bool, with_probs: bool
    ) -> None:
        self.shape, self.num_forwards, self.by_mask = graph.shape, k, first.by_mask
        self.initializers, self.table = graph.initializers | first.initializers, first.table
        model, forward = graph.model, graph.model.graph
        self._k, self._vocab_size, self._drawn, self._with_probs = k, vocab_size, drawn, with_probs or drawn
        self._width, self._carried = _width(forward), graph.carried
        self._nodes: list[onnx.NodeProto] = []
        constants = {tensor.name: tensor for each in (forward, first.model.graph) for tensor in each.initializer}
        self._constants = list(constants.values())
        self._constants.append(helper.make_tensor("one", TensorProto.INT32, [], [1]))
        self._add_constants()
        outputs = [helper.make_tensor_value_info("drafts", TensorProto.INT64, ["b", k])]
        inputs = list(first.model.graph.input)
        for step in range(k):
            self._forward(forward if step else first.model.graph, step)
            self._choose(f"{step}/")
            outputs += [
                helper.make_tensor_value_info(f"{step}/{output.name}", TensorProto.FLOAT, None)
                for output in forward.output
                if output.name.startswith("present_")
            ]
        self._add("Concat", [f"{step}/draft" for step in range(k)], "drafts", axis=1)
        if self._with_probs:
            self._add("Concat", [f"{step}/probs" for step in range(k)], "probs", axis=1)
            outputs.append(helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["b", k, vocab_size]))
        given_out = {output.name for output in forward.output} & set(self._carried.values())
        outputs += [helper.make_tensor_value_info(f"{k - 1}/{name}", TensorProto.FLOAT, None) for name in sorted(given_out)]
        if drawn:
            inputs.append(helper.make_tensor_value_info("temperature", TensorProto.FLOAT, ["b", 1]))
            inputs.append(helper.make_tensor_value_info("noise", TensorProto.FLOAT, ["b", k, num_noises(vocab_size)]))
        window = helper.make_graph(self._nodes, "window", inputs, outputs, self._constants)
        self.model = helper.make_model(window, opset_imports=model.opset_import, ir_version=model.ir_version)

    def _add_constants(self) -> None:
        self._integers("no_place", [0])
        self._integers("place_axis", [1])
        self._integers("vocab_axis", [2])
        self._integers("vocab_end", [self._vocab_size])
        size = math.isqrt(self._vocab_size)
        blocks = math.ceil(self._vocab_size / size)
        self._integers("pads", [0, 0, 0, 0, 0, blocks * size - self._vocab_size])
        self._integers("in_blocks", [0, blocks, size])
        self._integers("race_widths", [blocks, size])
        self._integers("block_size", [size])
        for step in range(self._k):
            self._constants.append(helper.make_tensor(f"{step}/number", TensorProto.INT64, [], [step]))

    def _forward(self, forward: onnx.GraphProto, step: int) -> None:
        """The model's nodes once more; after the first time they read the last draft, one place further."""
        at = f"{step}/"
        names = {name: at + name for node in forward.node for name in node.output if name}
        if step:
            for name in ("last", "total"):
                self._add("Add", [name if step == 1 else f"{step - 1}/{name}", "one"], at + name)
            names |= {name: f"{step - 1}/{value}" for name, value in self._carried.items()}
            names |= {"token_ids": f"{step - 1}/draft", "last": at + "last", "total": at + "total"}
        for node in forward.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            _rename(copy, names)
            self._nodes.append(copy)

    def _choose(self, at: str) -> None:
        logits = at + "logits"
        if self._vocab_size < self._width:
            self._add("Slice", [logits, "no_place", "vocab_end", "vocab_axis"], at + "usable")
            logits = at + "usable"
        if not self._drawn:
            self._add("ArgMax", [logits], at + "draft", axis=2, keepdims=0)
            if self._with_probs:
                self._add("Softmax", [logits], at + "probs", axis=-1)
            return
        self._add("Unsqueeze", ["temperature", "place_axis"], at + "temperature")
        self._add("Div", [logits, at + "temperature"], at + "scores")
        self._add("Softmax", [at + "scores"], at + "probs", axis=-1)
        # Blocks of neighbours race with their sums, then the members of the block that won.
        self._add("Pad", [at + "probs", "pads"], at + "padded")
        self._add("Reshape", [at + "padded", "in_blocks"], at + "blocks")
        self._add("ReduceSum", [at + "blocks", "vocab_axis"], at + "sums", keepdims=0)
        self._add("Gather", ["noise", at + "number"], at + "noise", axis=1)
        self._nodes.append(
            helper.make_node("Split", [at + "noise", "race_widths"], [at + "block_noise", at + "member_noise"], axis=1)
        )
        self._add("Div", [at + "sums", at + "block_noise"], at + "block_race")
        self._add("ArgMax", [at + "block_race"], at + "block", axis=1, keepdims=1)
        self._add("GatherND", [at + "blocks", at + "block"], at + "members", batch_dims=1)
        self._add("Div", [at + "members", at + "member_noise"], at + "member_race")
        self._add("ArgMax", [at + "member_race"], at + "member", axis=1, keepdims=1)
        self._add("Mul", [at + "block", "block_size"], at + "begin")
        self._add("Add", [at + "begin", at + "member"], at + "draft")

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: int) -> None:
        self._nodes.append(helper.make_node(kind, inputs, [output], None, None, None, None, **attributes))

    def _integers(self, name: str, values: list[int]) -> None:
        self._constants.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))


def _rename(node: onnx.NodeProto, names: dict[str, str]) -> None:
    """Give a node's values other names."""
    node.name = ""
    for values in (node.input, node.output):
        values[:] = [names.get(name, name) for name in values]


def _width(forward: onnx.GraphProto) -> int:
    logits = next(output for output in forward.output if output.name == "logits")
    return int(logits.type.tensor_type.shape.dim[-1].dim_value)
