"""CUDA graphs for the windows of decoding.

On a GPU the forward of a few tokens takes longer to launch, kernel by kernel, than to compute. A CUDA graph launches all
kernels at once, but always the same ones on the same addresses. So lengths are numbers on the device, and attention covers the
cache's whole buffers under a mask.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from naive_speculate.infer.device import on_device
from naive_speculate.infer.llama.torch import TorchLlama
from naive_speculate.infer.llama.weights import RotaryTable
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache, causal_mask

MAX_TOKENS = 32  # of a query; longer ones are prompts, or long copies for a head to read, and seldom occur twice
CAPACITY_STEP = 512  # positions by which caches grow: graphs are captured again after that
MAX_SPARE = 2  # most caches that are kept
MAX_GRAPHS = 64  # most graphs of one cache; at the limit all are dropped and captured again on use
Capture = Callable[[Callable[[], torch.Tensor]], tuple[Callable[[], None], torch.Tensor]]
"""Turns a computation into a function that repeats it, and the tensor that then holds the result."""
_Key = tuple[Any, ...]  # first row, rows, tokens, and what else a forward depends on
_CAPTURING = threading.Lock()  # held during a capture: a process can capture one graph at a time
_log = logging.getLogger(__name__)


class Place:
    """Where a captured forward reads and writes: consecutive rows of a cache's buffers, from a position of each on."""

    def __init__(self, rows: CacheRows, num_new: int, rotary: RotaryTable, device: torch.device) -> None:
        self.starts = on_device(rows.lengths, device)
        self.tables = rotary.up_to(rows.cache.capacity)
        self._buffers = [(state.keys, state.values) for state in rows.cache.buffers()]
        self._covered = slice(rows.indices[0], rows.indices[0] + len(rows.indices))
        self._numbers = torch.arange(self._covered.start, self._covered.stop, device=device)[:, None]
        self._offsets = torch.arange(num_new, device=device)
        self.begin()

    def begin(self) -> None:
        """Compute the positions of the new tokens, `[rows, num_new]`; a captured forward begins with this."""
        self.positions = self.starts[:, None] + self._offsets

    def masks(self, windows: Iterable[int | None]) -> dict[int | None, torch.Tensor | None]:
        """Attention masks by sliding window."""
        capacity = self._buffers[0][0].shape[2]
        return {window: causal_mask(self.positions, capacity, window) for window in set(windows)}

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As `CacheRows.write`; returns the whole buffers of the rows."""
        for buffer, new in zip(self._buffers[layer], (keys, values), strict=True):
            buffer[self._numbers, :, self.positions] = new.transpose(1, 2)
        return self._buffers[layer][0][self._covered], self._buffers[layer][1][self._covered]


Compute = Callable[[Sequence[torch.Tensor], Place], torch.Tensor]
"""A forward from its inputs and its place, with no work on the host."""


@dataclass
class _Window:
    """A captured forward: write inputs and lengths, replay, read the result."""

    inputs: list[torch.Tensor]
    place: Place
    replay: Callable[[], None]
    result: torch.Tensor


@dataclass
class _Windows:
    """The captured forwards over one cache, valid until its buffers are replaced."""

    version: int
    seen: set[_Key] = field(default_factory=set)
    captured: dict[_Key, _Window] = field(default_factory=dict)
    full: bool = False  # memory was insufficient for another one


class Graphs:
    """Forwards as CUDA graphs, or what `capture` makes, for every window width that occurs a second time.

    Up to `MAX_SPARE` small caches of one row that are no longer used are kept for later sequences, since graphs were captured
    for their buffers.
    """

    def __init__(self, device: torch.device, rotary: RotaryTable, capture: Capture | None = None) -> None:
        self.device = device
        self._rotary = rotary
        self._capture = capture or CudaCapture(device)
        self._works = True
        self._caches: WeakKeyDictionary[RaggedKVCache, _Windows] = WeakKeyDictionary()
        self._spare: list[RaggedKVCache] = []
        # Captured forwards share memory, so writing inputs and reading results must not be interrupted.
        self._lock = threading.Lock()

    def new_cache(self, batch_size: int) -> RaggedKVCache:
        """An empty cache for `batch_size` rows."""
        with suppress(IndexError):  # another thread may take the last one
            if batch_size == 1:
                spare = self._spare.pop()
                spare.empty()
                return spare
        return RaggedKVCache(batch_size, CAPACITY_STEP)

    def recycle(self, cache: RaggedKVCache, num_layers: int) -> None:
        """Take back an unused cache; large ones, and those whose buffers could not all be allocated, are dropped."""
        small, complete = cache.capacity <= 2 * CAPACITY_STEP, cache.num_layers == num_layers
        if len(cache.lengths) == 1 and small and complete and len(self._spare) < MAX_SPARE:
            self._spare.append(cache)

    def run(
        self, rows: CacheRows, kind: tuple[Any, ...], inputs: Sequence[torch.Tensor], compute: Compute
    ) -> torch.Tensor | None:
        """The result of a captured forward; reserves room in the cache.

        `kind`: what `compute` depends on; `inputs`: the new tokens `[rows, num_new]`, and others. None if the forward is the
        first of its kind or is not captured: compute it as usual.
        """
        num_new = inputs[0].shape[1]
        if num_new > MAX_TOKENS or not rows.contiguous or rows.branches:
            return None
        rows.cache.reserve(rows.get_num_tokens() + num_new)
        with self._lock:
            if not self._works or (window := self._window(rows, (num_new, *kind), inputs, compute)) is None:
                return None
            for own, given in zip(window.inputs, inputs, strict=True):
                own.copy_(given)
            window.place.starts.copy_(on_device(rows.lengths, self.device))
            window.replay()
            return window.result.clone()

    def _window(
        self, rows: CacheRows, kind: tuple[Any, ...], inputs: Sequence[torch.Tensor], compute: Compute
    ) -> _Window | None:
        windows = self._caches.get(rows.cache)
        if windows is None or windows.version != rows.cache.version:
            windows = self._caches[rows.cache] = _Windows(rows.cache.version)
        key = (rows.indices[0], len(rows.indices), *kind)
        if key in windows.captured:
            return windows.captured[key]
        if key not in windows.seen or windows.full:
            windows.seen.add(key)
            return None
        own, place = [given.clone() for given in inputs], Place(rows, inputs[0].shape[1], self._rotary, self.device)

        def whole() -> torch.Tensor:
            place.begin()
            return compute(own, place)

        try:
            replay, result = self._capture(whole)
        except torch.OutOfMemoryError:  # the next cache may have enough memory
            windows.full = True
            return None
        except RuntimeError as error:
            _log.warning("CUDA graphs are not used, so decoding is slower: %s", " ".join(str(error).split())[:300])
            self._works = False
            self._caches.clear()
            return None
        if len(windows.captured) >= MAX_GRAPHS:
            windows.captured.clear()
        windows.captured[key] = _Window(own, place, replay, result)
        return windows.captured[key]


class GraphLlama(Graphs):
    """`TorchLlama` with CUDA graphs."""

    def __init__(self, lean: TorchLlama, capture: Capture | None = None) -> None:
        super().__init__(lean.device, lean.rotary, capture)
        self.shape, self.dtype, self.lean = lean.shape, lean.dtype, lean

    @torch.inference_mode()
    def forward(
        self, token_ids: torch.Tensor, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `TorchLlama.forward`; with `layers` only forwards with the logits of every position are captured."""
        lean = self.lean

        def compute(inputs: Sequence[torch.Tensor], place: Place) -> torch.Tensor:
            masks = place.masks(self.shape.windows)
            logits, features = lean.compute(inputs[0], place.positions, place.tables, masks, place.write, num_logits, layers)
            return logits if features is None else torch.cat([logits, features], dim=-1)

        captured = not layers or num_logits == token_ids.shape[1]
        found = self.run(rows, (num_logits, *layers), [token_ids], compute) if captured else None
        if found is None:
            return lean.forward(token_ids, rows, num_logits, layers)
        logits, features = found[..., : self.shape.vocab_size], found[..., self.shape.vocab_size :]
        return logits, features if layers else None


class CudaCapture:
    """Captures computations of a CUDA device as graphs that share one memory pool."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None
        self._side_stream: torch.cuda.Stream | None = None

    def __call__(self, compute: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """See `Capture`. Raises `RuntimeError` if something in the computation cannot be captured."""
        with _CAPTURING, torch.cuda.device(self._device):
            if self._pool is None:  # not in __init__: a server that forks must not initialise CUDA before
                self._pool = torch.cuda.graph_pool_handle()
            if self._side_stream is None:
                self._side_stream = torch.cuda.Stream()  # one for all, since the pool's memory belongs to its stream
            current, side = torch.cuda.current_stream(), self._side_stream
            side.wait_stream(current)
            try:
                with torch.cuda.stream(side):
                    compute()  # the first call lets libraries choose kernels and allocate workspaces
                current.wait_stream(side)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=self._pool, stream=side, capture_error_mode="thread_local"):
                    result = compute()
            finally:
                torch.cuda.set_stream(current)  # after a failed capture torch leaves the side stream current
        return graph.replay, result
