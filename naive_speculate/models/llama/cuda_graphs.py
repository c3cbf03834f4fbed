"""CUDA graphs for the windows of decoding.

On a GPU the forward of a few tokens takes longer to launch, kernel by kernel, than to compute. A
CUDA graph launches all kernels at once, but always the same ones on the same addresses. So
lengths are numbers on the device, and attention covers the cache's whole buffers under a mask.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from naive_speculate.infer.device import on_device
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache, causal_mask
from naive_speculate.models.llama.weights import LlamaShape, RotaryTable, rotation
from naive_speculate.text import one_line

# of a query; longer ones are prompts, or long copies for a head to read, and seldom occur twice
MAX_TOKENS = 32
CAPACITY_STEP = 512  # positions by which caches grow: graphs are captured again after that
MAX_SPARE = 2  # most caches that are kept
MAX_GRAPHS = 64  # most graphs of one cache; at the limit all are dropped and captured again on use
Capture = Callable[[Callable[[], torch.Tensor]], tuple[Callable[[], None], torch.Tensor]]
"""Turns a computation into a function that repeats it, and the tensor that then holds the
result."""
_Key = tuple[Any, ...]  # first row, number of rows, and what else a forward depends on
Write = Callable[[int, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Stores a layer's new keys and values and returns all to attend to; see `CacheRows.write`."""
_CAPTURING = threading.Lock()  # held during a capture: a process can capture one graph at a time
_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """What attention needs of the place of new tokens in a cache."""

    # cosines and sines there, `[rows, 1, num_new, head_dim / 2]`
    rotation: tuple[torch.Tensor, torch.Tensor]
    # by sliding window; None where all tokens are attended to
    masks: Mapping[int | None, torch.Tensor | None]
    write: Write


Compute = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]
"""A forward from its inputs, its place and options, with no work on the host: logits, and hidden
states or None."""


@dataclass
class _Window:
    """A captured forward: write inputs and lengths, replay, read the result."""

    inputs: list[torch.Tensor]
    starts: torch.Tensor
    others: Any  # the other tensors that it reads, kept because a graph has only their addresses
    replay: Callable[[], None]
    result: torch.Tensor


@dataclass
class _Windows:
    """The captured forwards over one cache, valid until its buffers are replaced."""

    version: int
    used_once: set[_Key] = field(default_factory=set)
    captured: dict[_Key, _Window] = field(default_factory=dict)
    full: bool = False  # memory was insufficient for another one


class MakesRaggedCaches:
    """Makes the caches of a model or head: `MakesCaches` for an executor that may capture its
    forwards."""

    _forward: Any  # the executor; its `graphs` capture, or are None

    def new_cache(self, batch_size: int) -> RaggedKVCache:
        """An empty cache for `batch_size` rows."""
        graphs = self._forward.graphs
        return RaggedKVCache(batch_size) if graphs is None else graphs.new_cache(batch_size)

    def recycle(self, cache: RaggedKVCache) -> None:
        """Take back an unused cache for a later `new_cache`; see `Graphs`."""
        if self._forward.graphs is not None:
            self._forward.graphs.recycle(cache)


class Graphs:
    """Captures forwards of a model or head, as CUDA graphs or what `capture` makes, for every
    window width that occurs a second time.

    Up to `MAX_SPARE` small caches of one row that are no longer used are kept for later
    sequences, since graphs were captured for their buffers.
    """

    def __init__(self, shape: LlamaShape, rotary: RotaryTable, capture: Capture) -> None:
        self._shape = shape
        self._rotary = rotary
        self._capture = capture
        self._works = True
        self._caches: WeakKeyDictionary[RaggedKVCache, _Windows] = WeakKeyDictionary()
        self._spare: list[RaggedKVCache] = []
        # Captured forwards share memory, so writing inputs and reading results must not be
        # interrupted.
        self._lock = threading.Lock()

    def new_cache(self, batch_size: int) -> RaggedKVCache:
        """An empty cache for `batch_size` rows."""
        with suppress(IndexError):  # another thread may take the last one
            if batch_size == 1:
                spare = self._spare.pop()
                spare.empty()
                return spare
        return RaggedKVCache(batch_size, CAPACITY_STEP)

    def recycle(self, cache: RaggedKVCache) -> None:
        """Take back an unused cache; large ones, and those whose buffers could not all be
        allocated, are dropped."""
        small, complete = (
            cache.capacity <= 2 * CAPACITY_STEP,
            cache.num_layers == self._shape.num_layers,
        )
        if len(cache.lengths) == 1 and small and complete and len(self._spare) < MAX_SPARE:
            self._spare.append(cache)

    def run(
        self,
        rows: CacheRows,
        inputs: Sequence[torch.Tensor],
        compute: Compute,
        options: tuple[Any, ...],
    ) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """The result of a captured forward; reserves room in the cache.

        `inputs`: the new tokens `[rows, num_new]`, and others; `options`: what else `compute`
        depends on. None if the forward is the first of its kind or is not captured: compute it
        as usual.
        """
        num_new = inputs[0].shape[1]
        if num_new > MAX_TOKENS or not rows.contiguous or rows.branches:
            return None
        rows.cache.reserve(rows.get_num_tokens() + num_new)
        with self._lock:
            if not self._works or (window := self._window(rows, inputs, compute, options)) is None:
                return None
            for own, source in zip(window.inputs, inputs, strict=True):
                own.copy_(source)
            window.starts.copy_(on_device(rows.lengths, window.starts.device))
            window.replay()
            logits, states = window.result.clone().tensor_split([self._shape.vocab_size], dim=-1)
        return logits, states if states.shape[-1] else None

    def _window(
        self,
        rows: CacheRows,
        inputs: Sequence[torch.Tensor],
        compute: Compute,
        options: tuple[Any, ...],
    ) -> _Window | None:
        windows = self._caches.get(rows.cache)
        if windows is None or windows.version != rows.cache.version:
            windows = self._caches[rows.cache] = _Windows(rows.cache.version)
        key = (rows.indices[0], len(rows.indices), *(tensor.shape for tensor in inputs), options)
        if key in windows.captured:
            return windows.captured[key]
        if key not in windows.used_once or windows.full:
            windows.used_once.add(key)
            return None
        try:
            window = self._captured(rows, inputs, compute, options)
        except torch.OutOfMemoryError:  # the next cache may have enough memory
            windows.full = True
            return None
        except RuntimeError as error:
            _log.warning(
                "CUDA graphs are not used, so decoding is slower: %s",
                one_line(error),
            )
            self._works = False
            self._caches.clear()
            return None
        if len(windows.captured) >= MAX_GRAPHS:
            windows.captured.clear()
        windows.captured[key] = window
        return window

    def _captured(
        self,
        rows: CacheRows,
        inputs: Sequence[torch.Tensor],
        compute: Compute,
        options: tuple[Any, ...],
    ) -> _Window:
        """Capture a forward that reads and writes the rows of the cache's buffers, from a
        position of each on."""
        own, device, capacity = (
            [tensor.clone() for tensor in inputs],
            inputs[0].device,
            rows.cache.capacity,
        )
        starts, tables = on_device(rows.lengths, device), self._rotary.up_to(capacity)
        covered = slice(rows.indices[0], rows.indices[-1] + 1)
        numbers = torch.arange(covered.start, covered.stop, device=device)[:, None]
        offsets = torch.arange(inputs[0].shape[1], device=device)
        buffers, windows = (
            [tuple(state) for state in rows.cache.buffers()],
            set(self._shape.windows),
        )

        def whole() -> torch.Tensor:
            positions = starts[:, None] + offsets
            keys = torch.arange(capacity, device=positions.device)
            masks = {window: causal_mask(positions, keys, window) for window in windows}

            def write(
                layer: int, keys: torch.Tensor, values: torch.Tensor
            ) -> tuple[torch.Tensor, torch.Tensor]:
                for buffer, new in zip(buffers[layer], (keys, values), strict=True):
                    buffer[numbers, :, positions] = new.transpose(1, 2)
                return buffers[layer][0][covered], buffers[layer][1][covered]

            place = Place(rotation(tables, positions, buffers[0][0].dtype), masks, write)
            return torch.cat(
                [part for part in compute(own, place, *options) if part is not None], dim=-1
            )

        replay, result = self._capture(whole)
        return _Window(own, starts, (tables, numbers, offsets, buffers), replay, result)


class CudaCapture:
    """Captures computations of a CUDA device as graphs that share one memory pool."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None
        self._side_stream: torch.cuda.Stream | None = None

    def __call__(
        self, compute: Callable[[], torch.Tensor]
    ) -> tuple[Callable[[], None], torch.Tensor]:
        """See `Capture`. Raises `RuntimeError` if something in the computation cannot be
        captured."""
        with _CAPTURING, torch.cuda.device(self._device):
            if (
                self._pool is None
            ):  # not in __init__: a server that forks must not initialise CUDA before
                self._pool = torch.cuda.graph_pool_handle()
            if self._side_stream is None:
                # one for all, since the pool's memory belongs to its stream
                self._side_stream = torch.cuda.Stream()
            current, side = torch.cuda.current_stream(), self._side_stream
            side.wait_stream(current)
            try:
                with torch.cuda.stream(side):
                    # the first call lets libraries choose kernels and allocate workspaces
                    compute()
                current.wait_stream(side)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(
                    graph, pool=self._pool, stream=side, capture_error_mode="thread_local"
                ):
                    result = compute()
            finally:
                # after a failed capture torch leaves the side stream current
                torch.cuda.set_stream(current)
        return graph.replay, result
