"""Runs a Llama-like model with ONNX Runtime on the CPU, in float32.

Nothing is copied between the cache and the graph: the ragged cache's buffers are bound to the graph's inputs and outputs,
once for as long as the buffers stay where they are, and the attention nodes write the new keys and values into them.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnx
import onnxruntime
import torch

from naive_speculate.infer.llama.onnx_graph import LlamaGraph, has_fast_form, residual
from naive_speculate.infer.llama.onnx_threads import session_options
from naive_speculate.infer.llama.onnx_window import WindowGraph
from naive_speculate.infer.llama.weights import LlamaShape, LlamaWeights, RotaryTable
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache

_LOWEST = np.finfo(np.float32).min
_SEEN = np.float32(0)
_LARGEST_WINDOW_MODEL = 20_000_000  # parameters; of larger models the calls cost little, and every window's graph packs weights


@dataclass
class _Binding:
    """A run of neighbouring rows, bound to a session's inputs and outputs.

    The arrays are bound by their addresses, so that a forward only writes numbers into them.
    """

    io: Any
    cache_version: int
    last: np.ndarray[Any, Any]
    total: np.ndarray[Any, Any]
    logits_from: np.ndarray[Any, Any]
    by_mask: np.ndarray[Any, Any]
    tables: tuple[torch.Tensor, torch.Tensor]

    def place(self, lengths: list[int], num_new: int, num_logits: int) -> None:
        """Say where the new tokens go, and how many logits are wanted."""
        self.last[:] = lengths
        if num_new > 1:
            self.last += num_new - 1
        self.total[()] = max(lengths) + num_new
        self.logits_from[0] = -num_logits


_Key = tuple[int, int, tuple[str, ...]]


class OnnxLlama:
    """A forward of a Llama-like model, as `TorchLlama`.

    Args:
        shape: The model's shape.
        weights: Its weights, float32 on the CPU; not needed any more once this object is made.
        rotary: Its rotary embedding.
    """

    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, shape: LlamaShape, weights: LlamaWeights, rotary: RotaryTable) -> None:
        self.shape = shape
        self._window = next((window for window in shape.windows if window is not None), None)
        self._always_by_mask = not all(has_fast_form(shape, layer) for layer in range(shape.num_layers))
        self._rotary = rotary
        graph = LlamaGraph(shape, weights)
        self._session = _new_session(graph.model, graph.initializers)
        num_weights = sum(weight.numel() for weight in graph.initializers.values())
        self._graph = graph if num_weights <= _LARGEST_WINDOW_MODEL and not self._always_by_mask else None
        self._windows: dict[tuple[int, int, bool], onnxruntime.InferenceSession] = {}
        self._lock = threading.Lock()  # the bound arrays serve one forward at a time
        self._bindings: WeakKeyDictionary[RaggedKVCache, dict[_Key, _Binding]] = WeakKeyDictionary()

    def forward(
        self, token_ids: torch.Tensor, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Compute logits and write keys and values after the rows' ends, without moving the ends.

        Args:
            token_ids: int64, shape `[rows, num_query_tokens]`.
            rows: Rows of a cache of this model.
            num_logits: The last so many positions' logits.
            layers: After how many decoder layers hidden states are wanted.

        Returns:
            tuple: Logits, float32, shape `[rows, num_logits, vocab_size]`, and the hidden states of `layers` side by side,
                shape `[rows, num_query_tokens, len(layers) * hidden_size]`; None where there are no layers.

        Raises:
            ValueError: If a token is not in the vocabulary.
        """
        token_ids = token_ids.contiguous()
        count, num_new = token_ids.shape
        outputs = {"logits": torch.empty(count, num_logits, self.shape.vocab_size)}
        if layers:
            outputs |= {residual(layer): torch.empty(count, num_new, self.shape.hidden_size) for layer in sorted(set(layers))}
        cache = rows.cache
        with self._lock:
            cache.reserve(max(rows.lengths) + num_new)
            if rows.contiguous:
                self._run(token_ids, cache, rows.indices[0], outputs)
            else:
                for begin, end in _neighbours(rows.indices):
                    part = {name: output[begin:end] for name, output in outputs.items()}
                    self._run(token_ids[begin:end], cache, rows.indices[begin], part)
        return outputs["logits"], torch.cat([outputs[residual(layer)] for layer in layers], dim=-1) if layers else None

    def _run(self, token_ids: torch.Tensor, cache: RaggedKVCache, first: int, outputs: Mapping[str, torch.Tensor]) -> None:
        """One forward over neighbouring rows, `first` and those after it."""
        count, num_new = token_ids.shape
        binding = self._binding(self._session, cache, first, count, tuple(outputs))
        lengths = cache.lengths[first : first + count]
        binding.place(lengths, num_new, outputs["logits"].shape[1])
        by_mask = _needs_mask(lengths, num_new)
        binding.by_mask[()] = by_mask
        kept: list[np.ndarray[Any, Any]] = []
        if by_mask or self._always_by_mask:
            kept = self._bind_masks(binding.io, lengths, num_new, cache.capacity)
        self._execute(self._session, binding, token_ids, outputs)
        del kept  # bound by address: had to live until here

    def can_draft(self, rows: CacheRows, num_new: int) -> bool:
        """Whether `draft` takes these rows and so many tokens of each."""
        return self._graph is not None and rows.contiguous and not _needs_mask(rows.lengths, num_new)

    def draft(
        self,
        token_ids: torch.Tensor,
        rows: CacheRows,
        k: int,
        vocab_size: int,
        temperatures: torch.Tensor | None = None,
        noise: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Choose k tokens one after the other in one call, and write keys and values as k forwards would.

        Args:
            token_ids: int64, shape `[rows, num_query_tokens]`: what the first forward takes.
            rows: As for `forward`; `can_draft` has said yes to them.
            k: How many.
            vocab_size: How many tokens may be chosen.
            temperatures: float32, shape `[rows, 1]`, where tokens are drawn; None for the most probable ones.
            noise: float32, shape `[k, rows, num_noises(vocab_size)]`, then: what decides the draws.

        Returns:
            tuple: The tokens, int64, shape `[rows, k]`, and the probabilities that they were drawn with, float32, shape
                `[rows, k, vocab_size]`; None where none was drawn.
        """
        token_ids = token_ids.contiguous()
        count, num_new = token_ids.shape
        outputs = {"drafts": torch.empty(count, k, dtype=torch.int64)}
        inputs = {}
        if temperatures is not None and noise is not None:
            outputs["probs"] = torch.empty(count, k, vocab_size)
            inputs = {"temperature": temperatures, "noise": noise.contiguous()}
        cache, first = rows.cache, rows.indices[0]
        with self._lock:
            session = self._window_session(k, vocab_size, bool(inputs))
            cache.reserve(max(rows.lengths) + num_new + k - 1)
            binding = self._binding(session, cache, first, count, (*outputs, str(k), str(vocab_size)), k)
            binding.place(rows.lengths, num_new, 1)
            for name, value in inputs.items():
                _bind_input(binding.io, name, value)
            self._execute(session, binding, token_ids, outputs)
        return outputs["drafts"], outputs.get("probs")

    def _window_session(self, k: int, vocab_size: int, drawn: bool) -> onnxruntime.InferenceSession:
        session = self._windows.get((k, vocab_size, drawn))
        if session is None:
            assert self._graph is not None
            window = WindowGraph(self._graph.model, k, vocab_size, drawn=drawn)
            session = self._windows[k, vocab_size, drawn] = _new_session(window.model, self._graph.initializers)
        return session

    def _execute(
        self, session: Any, binding: _Binding, token_ids: torch.Tensor, outputs: Mapping[str, torch.Tensor]
    ) -> None:
        _bind_input(binding.io, "token_ids", token_ids)
        for name, output in outputs.items():
            _bind_output(binding.io, name, output)
        try:
            session.run_with_iobinding(binding.io)
        except RuntimeError as error:
            if int(token_ids.min()) < 0 or int(token_ids.max()) >= self.shape.vocab_size:
                raise ValueError(f"query_token_ids must be in [0, {self.shape.vocab_size})") from error
            raise

    def _binding(
        self, session: Any, cache: RaggedKVCache, first: int, count: int, outputs: tuple[str, ...], steps: int = 0
    ) -> _Binding:
        bindings = self._bindings.setdefault(cache, {})
        tables = self._rotary.up_to(cache.capacity)
        key = (first, count, outputs)  # what is not wanted must not stay bound
        binding = bindings.get(key)
        if binding is None or binding.cache_version != cache.version or binding.tables[0] is not tables[0]:
            binding = bindings[key] = self._bind(session, cache, first, count, tables, steps)
        return binding

    def _bind(
        self,
        session: Any,
        cache: RaggedKVCache,
        first: int,
        count: int,
        tables: tuple[torch.Tensor, torch.Tensor],
        steps: int,
    ) -> _Binding:
        io = session.io_binding()
        binding = _Binding(
            io=io,
            cache_version=cache.version,
            last=np.zeros(count, np.int32),
            total=np.zeros((), np.int32),
            logits_from=np.zeros(1, np.int64),
            by_mask=np.zeros((), np.bool_),
            tables=tables,
        )
        for name in ("last", "total", "logits_from", "by_mask"):
            _bind_array(io, name, getattr(binding, name))
        _bind_input(io, "cos", tables[0])
        _bind_input(io, "sin", tables[1])
        # The masked form's inputs must be bound even when it is not taken.
        _bind_array(io, "positions", _UNUSED_INDEX[:, None])
        _bind_array(io, "starts", _UNUSED_INDEX)
        _bind_array(io, "mask", _UNUSED_MASK)
        for index, state in enumerate(cache.buffers()):
            for kind, buffer in (("key", state.keys), ("value", state.values)):
                _bind_input(io, f"past_{kind}_{index}", buffer[first : first + count])
                for at in [f"{step}/" for step in range(steps)] or [""]:
                    _bind_output(io, f"{at}present_{kind}_{index}", buffer[first : first + count])
        return binding

    def _bind_masks(self, io: Any, lengths: list[int], num_new: int, capacity: int) -> list[np.ndarray[Any, Any]]:
        """Bind what the masked form of attention reads; returns the arrays, which have to outlive the run.

        In numpy, whose single thread does not meet ONNX Runtime's spinning ones, as torch's would.
        """
        starts = np.array(lengths, np.int64)
        positions = starts[:, None] + np.arange(num_new)
        slots, at = np.arange(capacity), positions[:, None, :, None]
        arrays = {"starts": starts, "positions": positions, "mask": np.where(slots > at, _LOWEST, _SEEN)}
        if self._window is not None:
            arrays["window_mask"] = np.where((slots > at) | (slots <= at - self._window), _LOWEST, _SEEN)
        for name, array in arrays.items():
            _bind_array(io, name, array)
        return list(arrays.values())


_UNUSED_INDEX = np.zeros(1, np.int64)
_UNUSED_MASK = np.zeros((1, 1, 1, 1), np.float32)
_NUMPY_TYPES = {torch.int64: np.int64, torch.float32: np.float32}


def _new_session(model: onnx.ModelProto, initializers: Mapping[str, torch.Tensor]) -> onnxruntime.InferenceSession:
    options = session_options()
    options.log_severity_level = 4  # what goes wrong is raised, not logged as well
    options.add_external_initializers(list(initializers), [_or_value(weight) for weight in initializers.values()])
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _needs_mask(lengths: list[int], num_new: int) -> bool:
    """The fast form takes several tokens a row for one row, or for rows that are all empty."""
    return len(lengths) > 1 and num_new > 1 and max(lengths) > 0


def _neighbours(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Cut a list of rows into runs `[begin, end)` of consecutive numbers, each a slice of the cache's buffers."""
    begin = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place] != rows[place - 1] + 1:
            yield begin, place
            begin = place


def _bind_array(io: Any, name: str, array: np.ndarray[Any, Any]) -> None:
    io.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def _bind_input(io: Any, name: str, tensor: torch.Tensor) -> None:
    io.bind_input(name, "cpu", 0, _NUMPY_TYPES[tensor.dtype], tensor.shape, tensor.data_ptr())


def _bind_output(io: Any, name: str, tensor: torch.Tensor) -> None:
    io.bind_output(name, "cpu", 0, _NUMPY_TYPES[tensor.dtype], tensor.shape, tensor.data_ptr())


def _or_value(weight: torch.Tensor) -> onnxruntime.OrtValue:
    """A weight as ONNX Runtime sees it: the same memory."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(weight.contiguous().numpy())
