"""A draft window as one ONNX graph: k forwards of a model, each with the token chosen after the previous one.

A small model's forward is mostly the cost of the call, so k tokens in one call cost little more than one. The chosen token is
the most probable one, or is sampled with the caller's noise by the rule of `SeededRandom.categorical`.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from naive_speculate.infer.device import Array
from naive_speculate.infer.llama.onnx_graph import GraphBuilder
from naive_speculate.infer.llama.onnx_session import OnnxSession, needs_mask
from naive_speculate.infer.llama.weights import RotaryTable
from naive_speculate.infer.ragged_cache import CacheRows
from naive_speculate.sampling.random_source import Race, num_noises

MAX_WINDOWS = 16  # sessions that `Windows` keeps: those used last


class WindowGraph(GraphBuilder):
    """Unrolls a model's graph; `model` is the ONNX model.

    Inputs are those of the first forward's graph, and for sampling (`b` rows, `r` = `num_noises(vocab_size)`):
        temperature: float32 `[b, 1]`.
        noise: float32 `[b, k, r]`, from `SeededRandom.noise`.

    Outputs: `drafts` int64 `[b, k]`; optionally `probs` float32 `[b, k, vocab_size]`; and each forward's `j/present_key_i`,
    `j/present_value_i`. These must be bound to the cache, since each forward reads what earlier ones wrote there. The values
    that a forward passes to the next one (`carried`) are outputs of the last, `k - 1/…`. `first` is the graph of the first
    forward, `graph` that of later ones: the same in the fast form; of a head, one that reads fused states.
    """

    def __init__(
        self, first: GraphBuilder, graph: GraphBuilder, k: int, vocab_size: int, *, drawn: bool, with_probs: bool
    ) -> None:
        super().__init__(graph.shape, first.by_mask)
        self.num_forwards, self.carried = k, graph.carried
        self.initializers, self.table = graph.initializers | first.initializers, first.table
        forward = graph.model.graph
        self._k, self._vocab_size, self._drawn, self._with_probs = k, vocab_size, drawn, with_probs or drawn
        self._width = _width(forward)
        constants = {tensor.name: tensor for each in (forward, first.model.graph) for tensor in each.initializer}
        self._constants = [*constants.values(), helper.make_tensor("one", TensorProto.INT32, [], [1])]
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
        self._add("Concat", [f"{step}/draft" for step in range(k)], ["drafts"], axis=1)
        if self._with_probs:
            self._add("Concat", [f"{step}/probs" for step in range(k)], ["probs"], axis=1)
            outputs.append(helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["b", k, vocab_size]))
        last_outputs = {output.name for output in forward.output} & set(self.carried.values())
        outputs += [helper.make_tensor_value_info(f"{k - 1}/{name}", TensorProto.FLOAT, None) for name in sorted(last_outputs)]
        if drawn:
            inputs.append(helper.make_tensor_value_info("temperature", TensorProto.FLOAT, ["b", 1]))
            inputs.append(helper.make_tensor_value_info("noise", TensorProto.FLOAT, ["b", k, num_noises(vocab_size)]))
        self._make(inputs, outputs)

    def _add_constants(self) -> None:
        self._constant("zero", [0])
        self._constant("race_axis", [1])
        self._constant("vocab_axis", [2])
        self._constant("vocab_end", [self._vocab_size])
        size = math.isqrt(self._vocab_size)
        blocks = math.ceil(self._vocab_size / size)
        self._constant("pads", [0, 0, 0, 0, 0, blocks * size - self._vocab_size])
        self._constant("in_blocks", [0, blocks, size])
        self._constant("race_widths", [blocks, size])
        self._constant("block_size", [size])
        for step in range(self._k):
            self._constants.append(helper.make_tensor(f"{step}/number", TensorProto.INT64, [], [step]))

    def _forward(self, forward: onnx.GraphProto, step: int) -> None:
        """Copy the model's nodes for a forward; all but the first read the last draft token, one position later."""
        at = f"{step}/"
        names = {name: at + name for node in forward.node for name in node.output if name}
        if step:
            for name in ("last", "total"):
                self._add("Add", [name if step == 1 else f"{step - 1}/{name}", "one"], [at + name])
            names |= {name: f"{step - 1}/{value}" for name, value in self.carried.items()}
            names |= {"token_ids": f"{step - 1}/draft", "last": at + "last", "total": at + "total"}
        for node in forward.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = ""
            for values in (copy.input, copy.output):
                values[:] = [names.get(name, name) for name in values]
            self._nodes.append(copy)

    def _choose(self, at: str) -> None:
        logits = at + "logits"
        if self._vocab_size < self._width:
            self._add("Slice", [logits, "zero", "vocab_end", "vocab_axis"], [at + "usable"])
            logits = at + "usable"
        if not self._drawn:
            self._add("ArgMax", [logits], [at + "draft"], axis=2, keepdims=0)
            if self._with_probs:
                self._add("Softmax", [logits], [at + "probs"], axis=-1)
            return
        self._add("Unsqueeze", ["temperature", "race_axis"], [at + "temperature"])
        self._add("Div", [logits, at + "temperature"], [at + "scores"])
        self._add("Softmax", [at + "scores"], [at + "probs"], axis=-1)
        # Blocks of adjacent tokens race with their sums, then the members of the winning block.
        self._add("Pad", [at + "probs", "pads"], [at + "padded"])
        self._add("Reshape", [at + "padded", "in_blocks"], [at + "blocks"])
        self._add("ReduceSum", [at + "blocks", "vocab_axis"], [at + "sums"], keepdims=0)
        self._add("Gather", ["noise", at + "number"], [at + "noise"], axis=1)
        self._add("Split", [at + "noise", "race_widths"], [at + "block_noise", at + "member_noise"], axis=1)
        self._add("Div", [at + "sums", at + "block_noise"], [at + "block_race"])
        self._add("ArgMax", [at + "block_race"], [at + "block"], axis=1, keepdims=1)
        self._add("GatherND", [at + "blocks", at + "block"], [at + "members"], batch_dims=1)
        self._add("Div", [at + "members", at + "member_noise"], [at + "member_race"])
        self._add("ArgMax", [at + "member_race"], [at + "member"], axis=1, keepdims=1)
        self._add("Mul", [at + "block", "block_size"], [at + "begin"])
        self._add("Add", [at + "begin", at + "member"], [at + "draft"])


def _width(forward: onnx.GraphProto) -> int:
    logits = next(output for output in forward.output if output.name == "logits")
    return int(logits.type.tensor_type.shape.dim[-1].dim_value)


class Windows:
    """Sessions that draft several tokens in one call, each made on first use, from a model's graphs without branches: for the
    first forward by form of attention (`by_mask`), and for later ones."""

    def __init__(self, firsts: Mapping[bool, GraphBuilder], rest: GraphBuilder, rotary: RotaryTable) -> None:
        self._firsts, self._rest, self._rotary = firsts, rest, rotary
        self._sessions: OrderedDict[tuple[bool, int, int, bool, bool], OnnxSession] = OrderedDict()
        self._lock = threading.Lock()

    def draft(
        self,
        inputs: Mapping[str, Array],
        rows: CacheRows,
        k: int,
        vocab_size: int,
        race: Race | None,
        with_probs: bool,
        last_outputs: Mapping[str, Array] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `OnnxLlama.draft`; `inputs` are those of the first forward, `last_outputs` are filled by the last."""
        count, num_new = inputs["token_ids"].shape
        padded = count > 1 and num_new > 1 and "at" in inputs and int(inputs["at"].min()) + 1 < num_new
        by_mask = padded or needs_mask(count, num_new, rows.get_num_tokens())
        form = by_mask, k, vocab_size, race is not None, with_probs
        session = self._session(form)
        outputs: dict[str, Array] = {"drafts": np.empty((count, k), np.int64)}
        outputs |= {f"{k - 1}/{name}": array for name, array in (last_outputs or {}).items()}
        if race is not None:
            inputs = {**inputs, "temperature": race[0].numpy(), "noise": race[1].numpy()}
        if race is not None or with_probs:
            outputs["probs"] = np.empty((count, k, vocab_size), np.float32)
        session.run(inputs, rows, outputs)
        probs = outputs.get("probs")
        return torch.from_numpy(outputs["drafts"]), None if probs is None else torch.from_numpy(probs)

    def _session(self, form: tuple[bool, int, int, bool, bool]) -> OnnxSession:
        """The session for a form, k, vocabulary size, sampling or not, and probabilities or not."""
        with self._lock:
            if form not in self._sessions:
                by_mask, k, vocab_size, drawn, with_probs = form
                graph = WindowGraph(self._firsts[by_mask], self._rest, k, vocab_size, drawn=drawn, with_probs=with_probs)
                self._sessions[form] = OnnxSession(graph, self._rotary)
                if len(self._sessions) > MAX_WINDOWS:
                    self._sessions.popitem(last=False)
            self._sessions.move_to_end(form)
            return self._sessions[form]
