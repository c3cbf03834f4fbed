"""Runs a Llama-like model with ONNX Runtime on the CPU, in float32.

Nothing is copied between the cache and the graph: the ragged cache's buffers are bound to the graph's inputs and outputs,
once for as long as the buffers stay where they are, and the attention nodes write the new keys and values into them.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnxruntime
import torch

from naive_speculate.infer.arrays import Array, Numbers, as_numpy
from naive_speculate.infer.device import Tokens
from naive_speculate.infer.llama.onnx_binding import Binding, bind_array, bind_input, bind_output, bind_output_array
from naive_speculate.infer.llama.onnx_graph import TABLE, GraphBuilder, LlamaGraph, has_fast_form, residual
from naive_speculate.infer.llama.onnx_threads import session_options
from naive_speculate.infer.llama.onnx_window import WindowGraph
from naive_speculate.infer.llama.weights import LlamaShape, LlamaWeights, RotaryTable
from naive_speculate.infer.memory import on_disk
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache

_LOWEST = np.finfo(np.float32).min
_SEEN = np.float32(0)
SMALL = 100_000_000
"""Weights of a model whose two forms of attention have sessions of their own, a copy of the weights each. Beside computing a
larger one, calling a branch costs little."""
MAX_WINDOWED = 20_000_000
"""Weights of a model that drafts several tokens in one call; each length has a session of its own, likewise. Beside computing a
larger one, a call costs little."""
MAX_WINDOWS = 16
"""Such sessions of a model that are kept, those that were asked for last; of a head, as many for each form of its window."""


class OnnxSession:
    """Runs a graph over the rows of a ragged cache.

    Args:
        graph: The graph and its weights, float32 on the CPU.
        rotary: Its rotary embedding.

    Attributes:
        table: The embedding table.
    """

    def __init__(self, graph: GraphBuilder | WindowGraph, rotary: RotaryTable) -> None:
        self.shape = shape = graph.shape
        self._num_forwards, self._form = graph.num_forwards, graph.by_mask
        self._present = [value.name for value in graph.model.graph.output if "present_" in value.name]
        self._window = next((window for window in shape.windows if window is not None), None)
        self._always_by_mask = not all(has_fast_form(shape, layer) for layer in range(shape.num_layers))
        self._rotary = rotary
        assert graph.table is not None
        self.table = graph.table
        self._cuts_logits = any(value.name == "logits_from" for value in graph.model.graph.input)
        self._session = make_session(graph)
        self._lock = threading.Lock()  # the bound arrays serve one forward at a time
        self._bindings: WeakKeyDictionary[RaggedKVCache, dict[tuple[int, int, tuple[str, ...]], Binding]] = WeakKeyDictionary()

    def run(self, inputs: Mapping[str, Array], rows: CacheRows, outputs: Mapping[str, Array]) -> None:
        """One forward, which writes keys and values after the rows' ends without moving them.

        Args:
            inputs: By name, a row of each for a row of the cache; `token_ids` is among them.
            rows: Rows of a cache of this model.
            outputs: By name, filled in; likewise.

        Raises:
            ValueError: If a token is not in the vocabulary.
        """
        cache = rows.cache
        with self._lock:
            cache.reserve(max(rows.lengths) + inputs["token_ids"].shape[1] + self._num_forwards - 1)
            if rows.contiguous:
                self._run(inputs, cache, rows.indices[0], outputs)
            else:
                for begin, end in _neighbours(rows.indices):
                    parts = [{name: array[begin:end] for name, array in each.items()} for each in (inputs, outputs)]
                    self._run(parts[0], cache, rows.indices[begin], parts[1])

    def _run(
        self,
        inputs: Mapping[str, Array],
        cache: RaggedKVCache,
        first: int,
        outputs: Mapping[str, Array],
    ) -> None:
        """One forward over neighbouring rows, `first` and those after it."""
        token_ids = inputs["token_ids"]
        count, num_new = token_ids.shape
        binding = self._binding(cache, first, count, tuple(outputs))
        lengths = cache.lengths[first : first + count]
        by_mask = self._form
        if by_mask is None:
            by_mask = binding.by_mask[()] = _needs_mask(count, num_new, max(lengths))
        last = [length + num_new - 1 for length in lengths]
        if by_mask and "at" in inputs:
            # Padding follows. The masked form does not look at the ends, but later forwards of a window begin there.
            last = [length + at for length, at in zip(lengths, inputs["at"].flatten().tolist(), strict=True)]
        binding.ends[:] = [max(last) + 1, *last]
        if self._cuts_logits:
            binding.logits_from[0] = -outputs["logits"].shape[1] if "logits" in outputs else -1
        if by_mask or self._always_by_mask:
            self._bind_masks(binding.io, lengths, num_new, cache.capacity)
        bound_inputs = [(given, binding.array(name, given, bind_array)) for name, given in inputs.items()]
        bound_outputs = [(given, binding.array(name, given, bind_output_array)) for name, given in outputs.items()]
        for given, bound in bound_inputs:
            if bound is not given:
                bound[...] = given
        try:
            self._session.run_with_iobinding(binding.io)
        except RuntimeError as error:
            if int(token_ids.min()) < 0 or int(token_ids.max()) >= len(self.table):
                raise ValueError(f"query_token_ids must be in [0, {len(self.table)})") from error
            raise
        for given, bound in bound_outputs:
            if bound is not given:
                given[...] = bound

    def _binding(self, cache: RaggedKVCache, first: int, count: int, outputs: tuple[str, ...]) -> Binding:
        bindings = self._bindings.setdefault(cache, {})
        tables = self._rotary.up_to(cache.capacity)
        key = (first, count, outputs)  # what is not wanted must not stay bound
        binding = bindings.get(key)
        if binding is None or binding.cache_version != cache.version or binding.tables[0] is not tables[0]:
            if binding is not None:  # the others' buffers are gone too
                bindings.clear()
            binding = bindings[key] = self._bind(cache, first, count, tables)
        return binding

    def _bind(self, cache: RaggedKVCache, first: int, count: int, tables: tuple[torch.Tensor, torch.Tensor]) -> Binding:
        io = self._session.io_binding()
        binding = Binding(
            io=io,
            cache_version=cache.version,
            ends=np.zeros(1 + count, np.int32),
            logits_from=np.zeros(1, np.int64),
            by_mask=np.zeros((), np.bool_),
            tables=tables,
        )
        bind_array(io, "last", binding.ends[1:])
        bind_array(io, "total", binding.ends[0, ...])
        bind_array(io, "by_mask", binding.by_mask)
        if self._cuts_logits:
            bind_array(io, "logits_from", binding.logits_from)
        bind_input(io, TABLE, self.table)
        bind_input(io, "cos", tables[0])
        bind_input(io, "sin", tables[1])
        # The masked form's inputs must be bound even when it is not taken.
        bind_array(io, "positions", _UNUSED_INDEX[:, None])
        bind_array(io, "starts", _UNUSED_INDEX)
        bind_array(io, "mask", _UNUSED_MASK)
        for index, state in enumerate(cache.buffers()):
            for kind, buffer in (("key", state.keys), ("value", state.values)):
                bind_input(io, f"past_{kind}_{index}", buffer[first : first + count])
                for name in self._present:
                    if name.endswith(f"present_{kind}_{index}"):
                        bind_output(io, name, buffer[first : first + count])
        return binding

    def _bind_masks(self, io: Any, lengths: list[int], num_new: int, capacity: int) -> None:
        """Bind what the masked form of attention reads.

        In numpy, whose single thread does not meet ONNX Runtime's spinning ones, as torch's would.
        """
        starts = np.array(lengths, np.int64)
        positions = starts[:, None] + np.arange(num_new)
        slots, at = np.arange(capacity), positions[:, None, :, None]
        arrays = {"starts": starts, "positions": positions, "mask": np.where(slots > at, _LOWEST, _SEEN)}
        if self._window is not None:
            arrays["window_mask"] = np.where((slots > at) | (slots <= at - self._window), _LOWEST, _SEEN)
        for name, array in arrays.items():
            io.bind_cpu_input(name, array)


def token_array(token_ids: Tokens) -> Array:
    """Token ids as a session takes them.

    Raises:
        ValueError: If they are a tensor that is not int64, whose memory would be read as if they were.
    """
    if isinstance(token_ids, list):
        return np.array(token_ids, np.int64)
    if token_ids.dtype != torch.int64:
        raise ValueError(f"query_token_ids must be int64, got {token_ids.dtype}")
    return token_ids.numpy()


def make_session(graph: GraphBuilder | WindowGraph) -> onnxruntime.InferenceSession:
    """A session of a graph with its weights, float32 on the CPU."""
    options = session_options()
    options.log_severity_level = 4  # what goes wrong is raised, not logged as well
    values = [_or_value(weight) for weight in graph.initializers.values()]
    options.add_external_initializers(list(graph.initializers), values)
    return onnxruntime.InferenceSession(graph.model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Windows:
    """Sessions that draft several tokens in one call, each made when it is first asked for.

    Args:
        firsts: The model's graph without branches for the first forward, by whether it goes by masks.
        rest: For those after it.
        rotary: The model's rotary embedding.
    """

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
        race: tuple[Numbers, Numbers] | None,
        with_probs: bool,
        given_out: Mapping[str, Array] | None = None,
    ) -> tuple[Array, Array | None]:
        """As `OnnxLlama.draft`; `inputs` are those of the first forward, `given_out` values of the last, to be filled in."""
        count, num_new = inputs["token_ids"].shape
        padded = count > 1 and num_new > 1 and "at" in inputs and int(inputs["at"].min()) + 1 < num_new
        by_mask = padded or _needs_mask(count, num_new, rows.get_num_tokens())
        form = by_mask, k, vocab_size, race is not None, with_probs
        session = self._session(form)
        outputs: dict[str, Array] = {"drafts": np.empty((count, k), np.int64)}
        outputs |= {f"{k - 1}/{name}": array for name, array in (given_out or {}).items()}
        if race is not None:
            inputs = {**inputs, "temperature": as_numpy(race[0]), "noise": as_numpy(race[1])}
        if race is not None or with_probs:
            outputs["probs"] = np.empty((count, k, vocab_size), np.float32)
        session.run(inputs, rows, outputs)
        return outputs["drafts"], outputs.get("probs")

    def _session(self, form: tuple[bool, int, int, bool, bool]) -> OnnxSession:
        """The session of this form, k, vocabulary, drawn tokens or not, and whether probabilities are wanted."""
        with self._lock:
            if form not in self._sessions:
                by_mask, k, vocab_size, drawn, with_probs = form
                graph = WindowGraph(self._firsts[by_mask], self._rest, k, vocab_size, drawn=drawn, with_probs=with_probs)
                self._sessions[form] = OnnxSession(graph, self._rotary)
                if len(self._sessions) > MAX_WINDOWS:
                    self._sessions.popitem(last=False)
            self._sessions.move_to_end(form)
            return self._sessions[form]


class OnnxLlama(OnnxSession):
    """A forward of a Llama-like model, as `TorchLlama`.

    Args:
        shape: The model's shape.
        weights: Its weights, float32 on the CPU; not needed any more once this object is made. ONNX Runtime copies them all,
            the embedding table apart, of which a large model keeps a copy on the disk.
        rotary: Its rotary embedding.
    """

    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, shape: LlamaShape, weights: LlamaWeights, rotary: RotaryTable) -> None:
        graph = LlamaGraph(shape, weights)
        small = graph.num_weights <= SMALL and all(has_fast_form(shape, layer) for layer in range(shape.num_layers))
        if small:  # without branches; the other form has a session of its own, once batches ask for it
            graph = LlamaGraph(shape, weights, by_mask=False)
        super().__init__(graph, rotary)
        if not small:
            self.table = on_disk(self.table)
        self._forms = {False: graph, True: LlamaGraph(shape, weights, by_mask=True)} if small else None
        self._masked: OnnxSession | None = None
        self._windows = Windows(self._forms, graph, rotary) if self._forms and graph.num_weights <= MAX_WINDOWED else None

    @property
    def drafts_windows(self) -> bool:
        """Whether `draft` works for this model."""
        return self._windows is not None

    def draft(
        self,
        token_ids: Tokens,
        rows: CacheRows,
        k: int,
        vocab_size: int,
        race: tuple[Numbers, Numbers] | None,
        with_probs: bool,
    ) -> tuple[Array, Array | None]:
        """Choose k tokens, one after the other, in one call; writes keys and values as k forwards would.

        Args:
            token_ids: Shape `[rows, num_query_tokens]`, which the first forward takes.
            rows: As for `forward`.
            k: How many.
            vocab_size: How many tokens may be chosen.
            race: Temperatures, float32, shape `[rows, 1]`, and noise, float32, shape `[rows, k, num_noises(vocab_size)]`, where
                tokens are drawn; None for the most probable ones.
            with_probs: Whether probabilities are wanted where none is drawn.

        Returns:
            tuple: The tokens, int64, shape `[rows, k]`, and their distributions, float32, shape `[rows, k, vocab_size]`; None
                where they are not wanted.
        """
        assert self._windows is not None
        return self._windows.draft({"token_ids": token_array(token_ids)}, rows, k, vocab_size, race, with_probs)

    def forward(
        self, token_ids: Tokens, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[Array, Array | None]:
        """Compute logits and write keys and values after the rows' ends, without moving the ends.

        Args:
            token_ids: Shape `[rows, num_query_tokens]`.
            rows: Rows of a cache of this model.
            num_logits: The last so many positions' logits.
            layers: After how many decoder layers hidden states are wanted.

        Returns:
            tuple: Logits, float32, shape `[rows, num_logits, vocab_size]`, and the hidden states of `layers` side by side,
                shape `[rows, num_query_tokens, len(layers) * hidden_size]`; None where there are no layers.

        Raises:
            ValueError: If a token is not in the vocabulary, or tokens are not int64.
        """
        query = token_array(token_ids)
        count, num_new = query.shape
        logits = np.empty((count, num_logits, self.shape.vocab_size), np.float32)
        outputs: dict[str, Array] = {"logits": logits}
        if wanted := sorted(set(layers)):
            states = np.empty((count, num_new, len(wanted), self.shape.hidden_size), np.float32)
            outputs |= {residual(layer): states[:, :, place] for place, layer in enumerate(wanted)}
        self._session_for(rows, num_new).run({"token_ids": query}, rows, outputs)
        if not wanted:
            return logits, None
        if list(layers) != wanted:
            states = states[:, :, [wanted.index(layer) for layer in layers]]
        return logits, states.reshape(count, num_new, -1)

    def _session_for(self, rows: CacheRows, num_new: int) -> OnnxSession:
        """What runs a query of so many tokens a row."""
        if num_new == 1 or self._forms is None or not _needs_mask(len(rows.indices), num_new, rows.get_num_tokens()):
            return self
        with self._lock:
            if self._masked is None:
                self._masked = OnnxSession(self._forms[True], self._rotary)
        return self._masked


def _needs_mask(count: int, num_new: int, longest: int) -> bool:
    """The fast form takes several tokens a row for one row, or for rows that are all empty."""
    return count > 1 and num_new > 1 and longest > 0


_UNUSED_INDEX = np.zeros(1, np.int64)
_UNUSED_MASK = np.zeros((1, 1, 1, 1), np.float32)


def _neighbours(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Cut a list of rows into runs `[begin, end)` of consecutive numbers, each a slice of the cache's buffers."""
    begin = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place] != rows[place - 1] + 1:
            yield begin, place
            begin = place


def _or_value(weight: torch.Tensor) -> onnxruntime.OrtValue:
    """A weight as ONNX Runtime sees it: the same memory."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(weight.contiguous().numpy())
