"""CUDA graphs for the windows of decoding.

On a GPU the forward of a few tokens takes longer to launch, kernel by kernel, than to compute. A CUDA graph launches all
kernels at once, but always the same ones on the same addresses. So lengths are numbers on the device, and attention covers the
cache's whole buffers under a mask.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from naive_speculate.infer.device import on_device
from naive_speculate.infer.llama.torch import TorchLlama
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache, causal_mask

MAX_TOKENS = 32  # longer queries are prompts, which occur once
MAX_GRAPHS = 64  # most graphs of one cache; at the limit all are dropped and captured again on use
Capture = Callable[[Callable[[], torch.Tensor]], tuple[Callable[[], None], torch.Tensor]]
"""Turns a computation into a function that repeats it, and the tensor that then holds the result."""
_Key = tuple[int, int, int, int, tuple[int, ...]]  # first row, rows, tokens, logits, layers
_CAPTURING = threading.Lock()  # held during a capture: a process can capture one graph at a time
_log = logging.getLogger(__name__)


@dataclass
class _Window:
    """A captured forward: write tokens and lengths, replay, read logits and hidden states."""

    token_ids: torch.Tensor
    starts: torch.Tensor
    replay: Callable[[], None]
    result: torch.Tensor
    compute: Callable[[], torch.Tensor]  # keeps the tensors alive whose addresses the graph uses


@dataclass
class _Windows:
    """The captured forwards over one cache, valid until its buffers are replaced."""

    version: int
    seen: set[_Key] = field(default_factory=set)
    captured: dict[_Key, _Window] = field(default_factory=dict)
    full: bool = False  # memory was insufficient for another one


class GraphLlama:
    """`TorchLlama` with a CUDA graph, or what `capture` makes, for every window width that occurs a second time."""

    def __init__(self, lean: TorchLlama, capture: Capture | None = None) -> None:
        self.shape, self.dtype, self.device = lean.shape, lean.dtype, lean.device
        self.lean = lean
        self._capture = capture or CudaCapture(lean.device)
        self._works = True
        self._caches: WeakKeyDictionary[RaggedKVCache, _Windows] = WeakKeyDictionary()
        # Captured forwards share memory, so writing inputs and reading results must not be interrupted.
        self._lock = threading.Lock()

    @torch.inference_mode()
    def forward(
        self, token_ids: torch.Tensor, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `TorchLlama.forward`; with `layers` only forwards with the logits of every position are captured."""
        num_new = token_ids.shape[1]
        if num_new > MAX_TOKENS or not rows.contiguous or rows.branches or (layers and num_logits < num_new):
            return self.lean.forward(token_ids, rows, num_logits, layers)
        rows.cache.reserve(rows.get_num_tokens() + num_new)
        with self._lock:
            window = self._window(token_ids, rows, num_logits, tuple(layers)) if self._works else None
            if window is None:
                return self.lean.forward(token_ids, rows, num_logits, layers)
            window.token_ids.copy_(token_ids)
            window.starts.copy_(on_device(rows.lengths, self.device))
            window.replay()
            found = window.result.clone()
        logits, features = found[..., : self.shape.vocab_size], found[..., self.shape.vocab_size :]
        return logits, features if layers else None

    def _window(self, token_ids: torch.Tensor, rows: CacheRows, num_logits: int, layers: tuple[int, ...]) -> _Window | None:
        """The captured forward for a query; None if it is the first of its kind or cannot be captured."""
        cache = rows.cache
        windows = self._caches.get(cache)
        if windows is None or windows.version != cache.version:
            windows = self._caches[cache] = _Windows(cache.version)
        key = (rows.indices[0], len(rows.indices), token_ids.shape[1], num_logits, layers)
        if key in windows.captured:
            return windows.captured[key]
        if key not in windows.seen or windows.full:
            windows.seen.add(key)
            return None
        token_ids, starts = token_ids.clone(), on_device(rows.lengths, self.device)
        tables = self.lean.rotary.up_to(cache.capacity)
        buffers = [(state.keys, state.values) for state in cache.buffers()]
        count, num_new = token_ids.shape
        covered = slice(rows.indices[0], rows.indices[0] + count)

        def compute() -> torch.Tensor:
            positions = starts[:, None] + torch.arange(num_new, device=self.device)
            numbers = torch.arange(covered.start, covered.stop, device=self.device)[:, None]
            capacity = buffers[0][0].shape[2]
            masks = {window: causal_mask(positions, capacity, window) for window in set(self.shape.windows)}

            def write(layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                for buffer, new in zip(buffers[layer], (keys, values), strict=True):
                    buffer[numbers, :, positions] = new.transpose(1, 2)
                return buffers[layer][0][covered], buffers[layer][1][covered]

            logits, features = self.lean.compute(token_ids, positions, tables, masks, write, num_logits, layers)
            return logits if features is None else torch.cat([logits, features], dim=-1)

        try:
            replay, result = self._capture(compute)
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
        windows.captured[key] = _Window(token_ids, starts, replay, result, compute)
        return windows.captured[key]


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
