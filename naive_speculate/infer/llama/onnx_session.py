"""Runs an ONNX graph over a ragged cache with ONNX Runtime on the CPU, in float32.

Nothing is copied between cache and graph. The cache's buffers are bound to the graph's inputs and outputs, until the buffers
are replaced, and the attention nodes write new keys and values into them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnxruntime
import torch

from naive_speculate.infer.device import Array
from naive_speculate.infer.llama.onnx_graph import TABLE, GraphBuilder, has_fast_form
from naive_speculate.infer.llama.weights import RotaryTable
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache
from naive_speculate.infer.threads import num_threads

_POOL = Lock()
_LOWEST = np.finfo(np.float32).min
_VISIBLE = np.float32(0)
_UNUSED_INDEX = np.zeros(1, np.int64)
_UNUSED_MASK = np.zeros((1, 1, 1, 1), np.float32)


@dataclass
class _Binding:
    """Consecutive rows of a cache, bound to a session by address; a forward only writes numbers into the arrays."""

    io: Any
    cache_version: int
    ends: Array  # `total`, then each row's `last`
    logits_from: Array
    by_mask: Array
    tables: tuple[torch.Tensor, torch.Tensor]


class OnnxSession:
    """Runs a graph, whose weights are float32 on the CPU, over the rows of a ragged cache."""

    def __init__(self, graph: GraphBuilder, rotary: RotaryTable) -> None:
        self.shape = shape = graph.shape
        self._window = next((window for window in shape.windows if window is not None), None)
        self._always_by_mask = not all(has_fast_form(shape, layer) for layer in range(shape.num_layers))
        self._rotary = rotary
        assert graph.table is not None
        self.table = graph.table
        self._session = _session(graph)
        self._lock = Lock()  # the bound arrays serve one forward at a time
        self._bindings: WeakKeyDictionary[RaggedKVCache, dict[tuple[int, int, tuple[str, ...]], _Binding]] = WeakKeyDictionary()

    def run(self, inputs: Mapping[str, Array], rows: CacheRows, outputs: Mapping[str, Array]) -> None:
        """One forward. Keys and values are written after the rows' ends; the ends do not move. Inputs, with `token_ids` among
        them, and the contiguous outputs to fill, with `logits`, are arrays by name, with a row per row of the cache. Raises
        `ValueError` if a token is not in the vocabulary."""
        cache = rows.cache
        with self._lock:
            cache.reserve(max(rows.lengths) + inputs["token_ids"].shape[1])
            for begin, end in _consecutive(rows.indices):
                parts = [{name: array[begin:end] for name, array in each.items()} for each in (inputs, outputs)]
                self._run(parts[0], cache, rows.indices[begin], parts[1], rows if rows.branches else None)

    def _run(
        self,
        inputs: Mapping[str, Array],
        cache: RaggedKVCache,
        first: int,
        outputs: Mapping[str, Array],
        tree: CacheRows | None,
    ) -> None:
        """One forward over consecutive rows from `first` on, or over a row with a tree."""
        token_ids = inputs["token_ids"]
        count, num_new = token_ids.shape
        binding = self._binding(cache, first, count, tuple(outputs))
        lengths = cache.lengths[first : first + count]
        # The fast form takes several tokens per row only of one row, or of empty rows.
        by_mask = binding.by_mask[()] = tree is not None or (count > 1 and num_new > 1 and max(lengths) > 0)
        last = [length + num_new - 1 for length in lengths]
        binding.ends[:] = [max(last) + 1, *last]
        binding.logits_from[0] = -outputs["logits"].shape[1]
        if by_mask or self._always_by_mask:
            self._bind_masks(binding.io, lengths, num_new, cache.capacity, tree)
        given = {name: np.ascontiguousarray(array) for name, array in inputs.items()}  # referenced until the forward is over
        for name, array in given.items():
            _bind_array(binding.io.bind_input, name, array)
        for name, array in outputs.items():
            _bind_array(binding.io.bind_output, name, array)
        try:
            self._session.run_with_iobinding(binding.io)
        except RuntimeError as error:
            if int(token_ids.min()) < 0 or int(token_ids.max()) >= len(self.table):
                raise ValueError(f"query_token_ids must be in [0, {len(self.table)})") from error
            raise

    def _binding(self, cache: RaggedKVCache, first: int, count: int, outputs: tuple[str, ...]) -> _Binding:
        bindings = self._bindings.setdefault(cache, {})
        tables = self._rotary.up_to(cache.capacity)
        key = (first, count, outputs)  # an output of an earlier forward must not stay bound
        binding = bindings.get(key)
        if binding is None or binding.cache_version != cache.version or binding.tables[0] is not tables[0]:
            if binding is not None:  # the buffers of the other bindings are gone too
                bindings.clear()
            binding = bindings[key] = self._bind(cache, first, count, tables)
        return binding

    def _bind(self, cache: RaggedKVCache, first: int, count: int, tables: tuple[torch.Tensor, torch.Tensor]) -> _Binding:
        io = self._session.io_binding()
        binding = _Binding(
            io=io,
            cache_version=cache.version,
            ends=np.zeros(1 + count, np.int32),
            logits_from=np.zeros(1, np.int64),
            by_mask=np.zeros((), np.bool_),
            tables=tables,
        )
        # The inputs of the masked form must be bound even when it is not used.
        unused = {"positions": _UNUSED_INDEX[:, None], "starts": _UNUSED_INDEX, "mask": _UNUSED_MASK}
        ends = {"last": binding.ends[1:], "total": binding.ends[0, ...]}
        both = {TABLE: self.table.numpy(), "cos": tables[0].numpy(), "sin": tables[1].numpy()}
        inputs = ends | both | unused | {"by_mask": binding.by_mask, "logits_from": binding.logits_from}
        for name, array in inputs.items():
            _bind_array(io.bind_input, name, array)
        for index, state in enumerate(cache.buffers()):
            for kind, buffer in (("key", state.keys), ("value", state.values)):
                rows = buffer[first : first + count].numpy()
                _bind_array(io.bind_input, f"past_{kind}_{index}", rows)
                _bind_array(io.bind_output, f"present_{kind}_{index}", rows)
        return binding

    def _bind_masks(self, io: Any, lengths: list[int], num_new: int, capacity: int, tree: CacheRows | None) -> None:
        """Bind the inputs of the masked form. NumPy makes them: torch's threads would compete with ONNX Runtime's."""
        starts = np.array(lengths, np.int64)
        positions = starts[:, None] + np.arange(num_new)
        slots, at = np.arange(capacity), positions[:, None, :, None]
        arrays = {"starts": starts, "positions": positions, "mask": np.where(slots > at, _LOWEST, _VISIBLE)}
        if self._window is not None:
            arrays["window_mask"] = np.where((slots > at) | (slots <= at - self._window), _LOWEST, _VISIBLE)
        if tree is not None:
            arrays["positions"] = tree.positions(num_new).numpy()
            for name, window in {"mask": None, "window_mask": self._window}.items():
                if name in arrays:
                    seen = tree.mask(num_new, window=window).numpy()
                    arrays[name][:] = _LOWEST
                    arrays[name][..., : seen.shape[-1]][seen] = _VISIBLE
        for name, array in arrays.items():
            io.bind_cpu_input(name, array)


@lru_cache
def _has_shared_pool() -> bool:
    """Make one thread pool for all sessions of the process; not if other code used ONNX Runtime before without one.

    ONNX Runtime's threads spin after each operation, waiting for the next. With a pool per session, the threads of draft and
    target would compete.
    """
    try:
        onnxruntime.set_global_thread_pool_sizes(num_threads(), 1)
    except Exception:  # ONNX Runtime's errors have no common base class
        return False
    return True


def _session(graph: GraphBuilder) -> onnxruntime.InferenceSession:
    """A session of a graph with its weights, float32 on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised, so they need not be logged
    with _POOL:
        shared = _has_shared_pool()
    if shared:
        options.use_per_session_threads = False
    else:
        options.intra_op_num_threads, options.inter_op_num_threads = num_threads(), 1
        options.add_session_config_entry("session.force_spinning_stop", "1")
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(weight.contiguous().numpy()) for weight in graph.initializers.values()]
    options.add_external_initializers(list(graph.initializers), values)
    return onnxruntime.InferenceSession(graph.model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def token_array(token_ids: torch.Tensor) -> Array:
    """Token ids in the form of a session; a `ValueError` if they are not int64."""
    if token_ids.dtype != torch.int64:
        raise ValueError(f"query_token_ids must be int64, got {token_ids.dtype}")
    return token_ids.numpy()


def _consecutive(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Cut a list of rows into runs `[begin, end)` of consecutive numbers, each a slice of the cache's buffers."""
    begin = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or rows[index] != rows[index - 1] + 1:
            yield begin, index
            begin = index


def _bind_array(bind: Any, name: str, array: Array) -> None:
    """Bind a contiguous array to an input or output by its address; it must not be freed before the forward."""
    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
