"""Runs an ONNX graph, such as a Llama's, over a ragged cache with ONNX Runtime on the CPU, with
weights in float32 or in 8 bits.

Nothing is copied between cache and graph. The cache's buffers are bound to the graph's inputs
and outputs, until the buffers are replaced, and the attention nodes write new keys and values
into them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

from naive_speculate.infer.device import Array
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache
from naive_speculate.models.llama.cuda_graphs import Graphs
from naive_speculate.models.llama.onnx_graph import EMBEDDED, GraphBuilder, LlamaGraph
from naive_speculate.models.llama.rounded import TOP, Basis, float_rows
from naive_speculate.models.llama.weights import LlamaShape, LlamaWeights, RotaryTable
from naive_speculate.models.memory import on_disk
from naive_speculate.models.threads import num_threads

_POOL = Lock()
_SEEN, _LOWEST = np.float32(0), np.finfo(np.float32).min


class OnnxSession:
    """Runs a graph, whose weights are on the CPU, over the rows of a ragged cache. `table`: the
    embedding table, float32 `[vocab_size, w]` or rounded. `basis`: the coordinates of the graph's
    residual stream."""

    graphs: Graphs | None = None  # nothing is captured

    def __init__(
        self,
        graph: GraphBuilder,
        rotary: RotaryTable,
        table: torch.Tensor,
        basis: Basis | None = None,
    ) -> None:
        self.shape = shape = graph.shape
        windows = [window for window in shape.windows if window is not None]
        self._windows = {"mask": None} | ({"window_mask": windows[0]} if windows else {})
        self._group = shape.num_heads // shape.num_kv_heads
        self._value_parts = graph.value_parts
        self._rotary = rotary
        self.table, self._basis = table, basis
        self._session = session_of(graph.model, graph.initializers)
        self._lock = Lock()  # a binding serves one forward at a time
        # for each cache: what a binding depends on but its rows and outputs, and the bindings by
        # these
        self._bindings: WeakKeyDictionary[RaggedKVCache, tuple[int, Any, dict[Any, Any]]] = (
            WeakKeyDictionary()
        )

    def run(
        self, inputs: Mapping[str, Array], rows: CacheRows, outputs: Mapping[str, Array]
    ) -> None:
        """One forward. Keys and values are written after the rows' ends; the ends do not move.
        Inputs, with `token_ids` among them, and the contiguous outputs to fill, with `logits`,
        are arrays by name, with a row per row of the cache. Raises `ValueError` if a token is
        not in the vocabulary."""
        cache = rows.cache
        with self._lock:
            if cache.value_parts != self._value_parts:  # rarely
                cache.split_values(self._value_parts)
            if len(rows.indices) == 1 or rows.contiguous:
                self._run(inputs, rows, outputs)
                return
            for begin, end in _consecutive(rows.indices):
                parts = [
                    {name: array[begin:end] for name, array in each.items()}
                    for each in (inputs, outputs)
                ]
                self._run(parts[0], cache.rows(rows.indices[begin:end]), parts[1])

    def _run(
        self, inputs: Mapping[str, Array], rows: CacheRows, outputs: Mapping[str, Array]
    ) -> None:
        """One forward over consecutive rows."""
        token_ids = inputs["token_ids"]
        num_new = token_ids.shape[1]
        lengths = rows.lengths
        rows.cache.reserve(max(lengths) + num_new)
        feeds, capacity = dict(inputs), rows.cache.capacity
        positions, masks = rows.host_layout(num_new, capacity, list(self._windows.values()))
        feeds["starts"], feeds["positions"] = np.array(lengths), positions
        feeds |= zip(self._windows, map(self._scores_added, masks), strict=True)
        feeds["logits_from"] = np.array([-outputs["logits"].shape[1]])
        feeds[EMBEDDED] = self._embedded(feeds.pop("token_ids"))
        io = self._binding(rows, tuple(outputs))
        for name, array in feeds.items():
            io.bind_cpu_input(name, np.asarray(array, order="C"))
        for name, array in outputs.items():
            _bind_array(io.bind_output, name, array)
        self._session.run_with_iobinding(io)

    def _embedded(self, token_ids: Array) -> Array:
        """The embeddings of tokens `[b, s]`, float32 `[b, s, w]`."""
        table = self.table
        if token_ids.min() < 0 or token_ids.max() >= len(table):
            raise ValueError(f"query_token_ids must be in [0, {len(table)})")
        rows = float_rows(table.numpy()[token_ids])
        return rows if self._basis is None else self._basis.into(rows)

    def _binding(self, rows: CacheRows, outputs: tuple[str, ...]) -> Any:
        """A binding to the rows' buffers and the tables, made again when these are replaced."""
        cache = rows.cache
        kept = self._bindings.get(cache)
        if kept is None or kept[0] != cache.version:  # kept until the cache grows
            kept = cache.version, self._rotary.up_to(cache.capacity), {}
            self._bindings[cache] = kept
        _, tables, bindings = kept
        # an output of an earlier forward must not stay bound
        key = rows.indices[0], len(rows.indices), outputs
        if key in bindings:
            return bindings[key]
        io = bindings[key] = self._session.io_binding()
        for name, tensor in {"cos": tables[0], "sin": tables[1]}.items():
            _bind_array(io.bind_input, name, tensor.numpy())
        covered = slice(rows.indices[0], rows.indices[-1] + 1)
        for index, state in enumerate(cache.buffers()):
            for kind, buffer in (("key", state.keys), ("value", state.values)):
                part = buffer[covered].numpy()
                parts = 1 if kind == "key" else self._value_parts
                part = part.reshape(len(part), -1, parts, *part.shape[2:])
                _bind_array(io.bind_input, f"past_{kind}_{index}", part)
                _bind_array(io.bind_output, f"present_{kind}_{index}", part)
        return io

    def _scores_added(self, mask: Array) -> Array:
        """What is added to the scores of each row of queries, float32 `[b, 1, 1, q, capacity]`,
        from the keys that each may attend to: see `GraphBuilder._rows_of_queries`."""
        added = np.where(mask, _SEEN, _LOWEST)[:, None]
        again = [added[..., -1:, :]] if self._group == 1 else [added] * (self._group - 1)
        return np.concatenate([added, *again], axis=3)


class OnnxLlama(OnnxSession):
    """A forward of a Llama-like model, like `TorchLlama`, of weights on the CPU, float32 or in
    rounded. ONNX Runtime copies all but the embedding table, which is moved to a file."""

    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, shape: LlamaShape, weights: LlamaWeights, rotary: RotaryTable) -> None:
        graph = LlamaGraph(shape, weights, takes_signed())
        super().__init__(graph, rotary, on_disk(weights.embedding), weights.basis)
        self._residuals = graph.residuals

    def forward(
        self, token_ids: torch.Tensor, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `TorchLlama.forward`; all tensors are float32. Raises `ValueError` if a token is
        not in the vocabulary, or tokens are not int64."""
        query = token_array(token_ids)
        count, num_new = query.shape
        logits = np.empty((count, num_logits, self.shape.vocab_size), np.float32)
        outputs = {"logits": logits}
        for layer in layers:
            states = np.empty((count, num_new, self.shape.hidden_size), np.float32)
            outputs[self._residuals[layer]] = states
        self.run({"token_ids": query}, rows, outputs)
        if not layers:
            return torch.from_numpy(logits), None
        states = np.stack([outputs[self._residuals[layer]] for layer in layers], axis=2)
        if self._basis is not None:
            states = self._basis.back(states)
        states = states.reshape(count, num_new, -1)
        return torch.from_numpy(logits), torch.from_numpy(states)


@lru_cache
def _has_shared_pool() -> bool:
    """Make one thread pool for all sessions of the process; not if other code used ONNX Runtime
    before without one.

    ONNX Runtime's threads spin after each operation, waiting for the next. With a pool per
    session, the threads of draft and target would compete.
    """
    try:
        onnxruntime.set_global_thread_pool_sizes(num_threads(), 1)
    except Exception:  # ONNX Runtime's errors have no common base class
        return False
    return True


def session_of(
    model: onnx.ModelProto, initializers: Mapping[str, torch.Tensor] | None = None
) -> onnxruntime.InferenceSession:
    """A session of a graph with its weights by name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised, so they need not be logged
    with _POOL:
        shared = _has_shared_pool()
    if shared:
        options.use_per_session_threads = False
    else:
        options.intra_op_num_threads, options.inter_op_num_threads = num_threads(), 1
        options.add_session_config_entry("session.force_spinning_stop", "1")
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(weight.contiguous().numpy())
        for name, weight in (initializers or {}).items()
    }
    options.add_external_initializers(list(values), list(values.values()))
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@lru_cache
def takes_signed() -> bool:
    """Whether unsigned inputs are multiplied with signed weights, which is fastest, or with
    unsigned ones: some processors' kernels add pairs of the former in 16 bits, which saturates.
    Raises `ValueError` if neither product is exact."""
    for signed in (True, False):
        if is_exact(signed):
            return signed
    raise ValueError("this processor's kernels compute no exact products of 8 bits")


def is_exact(signed: bool) -> bool:
    """Whether products of extreme values equal sums in int64."""
    random, kind = np.random.default_rng(0), np.int8 if signed else np.uint8
    left = random.choice([0, 1, 254, 255], (4, 150)).astype(np.uint8)
    right = (random.choice([-TOP, TOP], (150, 40)) + (0 if signed else 128)).astype(kind)
    right[:, 0] = right.max()
    node = helper.make_node("MatMulInteger", ["left", "right"], ["product"])
    inputs = [helper.make_tensor_value_info("left", TensorProto.UINT8, ["n", 150])]
    outputs = [helper.make_tensor_value_info("product", TensorProto.INT32, None)]
    graph = helper.make_graph(
        [node], "exact", inputs, outputs, [numpy_helper.from_array(right, "right")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    session = session_of(model)
    exact = left.astype(np.int64) @ right.astype(np.int64)
    return all(
        np.array_equal(session.run(None, {"left": left[:rows]})[0], exact[:rows]) for rows in (1, 4)
    )


def token_array(token_ids: torch.Tensor) -> Array:
    """Token ids in the form of a session; a `ValueError` if they are not int64."""
    if token_ids.dtype != torch.int64:
        raise ValueError(f"query_token_ids must be int64, got {token_ids.dtype}")
    return token_ids.numpy()


def _consecutive(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Cut a list of rows into runs `[begin, end)` of consecutive numbers, each a slice of the
    cache's buffers."""
    begin = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or rows[index] != rows[index - 1] + 1:
            yield begin, index
            begin = index


def _bind_array(bind: Any, name: str, array: Array) -> None:
    """Bind a contiguous array to an input or output by its address; it must not be freed before
    the forward."""
    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
