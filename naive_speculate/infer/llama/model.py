"""The fast language model for the Llama family: Llama, Qwen2, Qwen3, Mistral."""

import importlib.metadata
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

import torch
from packaging.version import Version

from naive_speculate.infer.arrays import Numbers, as_tensor
from naive_speculate.infer.device import Tokens, num_new, tokens_on
from naive_speculate.infer.forward import check_layers, check_query
from naive_speculate.infer.llama.cuda_graphs import GraphLlama
from naive_speculate.infer.llama.stored import StoredLlama
from naive_speculate.infer.llama.torch import TorchLlama
from naive_speculate.infer.llama.weights import LlamaShape, LlamaWeights, RotaryTable, rotary_of, shape_of, weights_of
from naive_speculate.infer.protocols import KVCache, KVState
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache
from naive_speculate.infer.threads import computes_beside_torch, one_torch_thread

if TYPE_CHECKING:  # its import takes longer than loading a small model
    from transformers import PreTrainedModel

Executor = Literal["auto", "onnx", "torch"]

# The graph's operators work in these versions; earlier ones lack some or were not tried.
_ONNXRUNTIME, _ONNX = "1.31", "1.19"

_GRAPH_STEP = 512
"""Graphs are captured anew when a cache grows, so that it grows by much at a time."""
_MAX_SPARE = 2
_SPARE_BYTES = 2**25


class _Forward(Protocol):
    shape: LlamaShape
    dtype: torch.dtype
    device: torch.device

    def forward(
        self, token_ids: Any, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[Numbers, Numbers | None]: ...


class LlamaLanguageModel:
    """A `BatchLanguageModel` that computes with ONNX Runtime (`OnnxLlama`) or lean torch operations (`TorchLlama`), which on
    CUDA are captured as graphs (`GraphLlama`).

    Made with `from_transformers`. Its logits are those of transformers up to rounding.

    Attributes:
        eos_token_ids: All end-of-sequence tokens, see `end_tokens`; empty where there are none.
        name: Where the model was loaded from, or its class.
        vocab_size: Width of the logits.
        max_positions: How many tokens a sequence may have; None where the configuration has no limit.
        num_parameters: Number of parameters.
        executor: "onnx" or "torch".
        num_layers, hidden_size: How deep and how wide it is.
        input_embeddings: Its embedding table, shape `[vocab_size, hidden_size]`.
    """

    def __init__(self, reference: Any, forward: _Forward, executor: str) -> None:
        self.eos_token_ids = reference.eos_token_ids
        self.name = reference.name
        self.vocab_size = reference.vocab_size
        self.max_positions = reference.max_positions
        self.num_parameters = reference.num_parameters
        self.executor = executor
        self.num_layers, self.hidden_size = reference.num_layers, reference.hidden_size
        self.input_embeddings = getattr(forward, "table", reference.input_embeddings)
        self._forward = forward
        self._spare: list[RaggedKVCache] = []

    @classmethod
    def from_transformers(cls, model: "PreTrainedModel", executor: Executor = "auto") -> "LlamaLanguageModel":
        """Take the weights of a loaded model. No reference to the model is kept: drop it to have the weights once only.

        Args:
            model: A model of the Llama family, on its device, in its dtype.
            executor: "onnx" needs onnxruntime, the CPU and float32; "auto" takes it where it can, and "torch" elsewhere.

        Raises:
            ValueError: If the model is not supported, with the reason, or the executor cannot run it.
        """
        from naive_speculate.infer.transformers_model import TransformersLanguageModel

        shape = shape_of(model)
        chosen = _choose(executor, model.device, model.dtype)
        reference = TransformersLanguageModel(model)
        return cls(reference, _forward_of(chosen, shape, weights_of(model), rotary_of(model)), chosen)

    @classmethod
    def from_stored(cls, stored: StoredLlama, executor: Executor = "auto") -> "LlamaLanguageModel":
        """The same of weights that were read from a folder.

        Raises:
            ValueError: If the executor cannot run it.
        """
        chosen = _choose(executor, stored.input_embeddings.device, stored.input_embeddings.dtype)
        return cls(stored, _forward_of(chosen, stored.shape, stored.weights, stored.rotary), chosen)

    @property
    def eos_token_id(self) -> int:
        """The (first) end-of-sequence token.

        Raises:
            ValueError: If there is none.
        """
        if not self.eos_token_ids:
            raise ValueError(f"eos_token_id: the configuration of {self.name} has none")
        return self.eos_token_ids[0]

    @property
    def device(self) -> torch.device:
        """Where the logits are."""
        return self._forward.device

    def new_cache(self, batch_size: int) -> RaggedKVCache:
        """An empty cache for `batch_size` rows."""
        with suppress(IndexError):  # somebody else may take the last one
            if batch_size == 1:
                spare = self._spare.pop()
                # Several threads of torch would spin on where the first forward's own want to compute.
                with one_torch_thread() if computes_beside_torch(self) else nullcontext():
                    spare.empty()
                return spare
        return RaggedKVCache(batch_size, _GRAPH_STEP) if self._captures else RaggedKVCache(batch_size)

    def recycle(self, cache: RaggedKVCache) -> None:
        """Take back a cache that nobody will use again: what was captured for its buffers, or bound to them, serves the next
        run too, and their memory need not be asked for anew.

        A large one is let go, with its memory, and so is one that was never whole.
        """
        if self._captures:
            small = cache.capacity <= 2 * _GRAPH_STEP
        else:
            small = cache.capacity <= _GRAPH_STEP and cache.num_bytes <= _SPARE_BYTES
        whole = cache.filled_by is self._forward
        if len(cache.lengths) == 1 and small and whole and len(self._spare) < _MAX_SPARE:
            self._spare.append(cache)

    @property
    def _captures(self) -> bool:
        return isinstance(self._forward, GraphLlama)

    @overload
    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache, *, num_logits: int | None = None) -> torch.Tensor: ...

    @overload
    def forward(
        self, query_token_ids: torch.Tensor, kv_cache: KVCache, *, num_logits: int | None = None, layers: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]: ...

    def forward(
        self, query_token_ids: torch.Tensor, kv_cache: KVCache, *, num_logits: int | None = None, layers: Sequence[int] = ()
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """See `BatchLanguageModel.forward`. The states of a `KVCache` that is not ragged are copied at every call.

        Raises:
            ValueError: If the query is not of that shape, its rows are not the cache's, a token is not in the vocabulary,
                there is no such layer, or the cache belongs to a model of another shape.
        """
        check_query(query_token_ids)
        batch_size, count = query_token_ids.shape
        if num_logits is None:
            num_logits = count
        elif not 1 <= num_logits <= count:
            raise ValueError(f"num_logits must be between 1 and the query's {count} tokens, got {num_logits}")
        rows = kv_cache if isinstance(kv_cache, CacheRows) else _rows_of(kv_cache, batch_size)
        if len(rows.indices) != batch_size:
            raise ValueError(f"query_token_ids has {batch_size} rows, kv_cache has {len(rows.indices)}")
        if query_token_ids.device != self.device:
            query_token_ids = query_token_ids.to(self.device)
        found, features = self.compute(query_token_ids, rows, num_logits, layers)
        if not isinstance(kv_cache, (RaggedKVCache, CacheRows)):
            states = rows.get_kv_states()
            kv_cache.update([KVState(s.keys[:, :, -count:], s.values[:, :, -count:]) for s in states])
        logits = as_tensor(found)
        return logits if features is None else (logits, as_tensor(features))

    def compute(
        self, query: Tokens, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[Numbers, Numbers | None]:
        """`forward` for those who keep to its rules, with numbers as the executor has them: NumPy arrays from ONNX Runtime.

        Args:
            query: On the model's device, or lists.
            rows, num_logits, layers: As for `forward`.

        Returns:
            tuple: Logits, and the hidden states; None where there are no layers.

        Raises:
            ValueError: If a token is not in the vocabulary, or there is no such layer.
        """
        forward = self._forward
        if layers:
            check_layers(layers, forward.shape.num_layers)
        if rows.cache.filled_by is not forward:
            shape = forward.shape
            rows.cache.require(shape.num_layers, shape.num_kv_heads, shape.head_dim, forward.dtype, forward.device)
            rows.cache.filled_by = forward
        if self.executor != "onnx":
            query = tokens_on(forward.device, query)
        found = forward.forward(query, rows, num_logits, layers)
        rows.advance(num_new(query))
        return found

    @property
    def drafts_windows(self) -> bool:
        """Whether `draft_window` works for this model."""
        return bool(getattr(self._forward, "drafts_windows", False))

    def draft_window(
        self,
        query: Tokens,
        rows: CacheRows,
        k: int,
        vocab_size: int,
        race: tuple[torch.Tensor, torch.Tensor] | None = None,
        with_probs: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Choose k tokens, one after the other, in one call, as far as the executor can; see `OnnxLlama.draft`.

        Returns:
            tuple: See there; None where it cannot, and nothing has been done.
        """
        forward = self._forward
        if not isinstance(rows, CacheRows) or not self.drafts_windows:
            return None
        if rows.cache.filled_by is not forward:  # nothing of this model is in there yet
            return None
        drafts, probs = forward.draft(query, rows, k, vocab_size, race, with_probs)  # type: ignore[attr-defined]
        rows.advance(num_new(query) + k - 1)
        return as_tensor(drafts), None if probs is None else as_tensor(probs)


def _choose(executor: str, device: torch.device, dtype: torch.dtype) -> str:
    """What runs a model: as asked for, or the fastest that can."""
    obstacle = _onnx_obstacle(device, dtype)
    if executor == "auto":
        return "onnx" if obstacle is None else "torch"
    if executor not in ("onnx", "torch"):
        raise ValueError(f'executor must be "auto", "onnx" or "torch", got {executor!r}')
    if executor == "onnx" and obstacle is not None:
        raise ValueError(f'executor "onnx" {obstacle}')
    return executor


def _forward_of(executor: str, shape: LlamaShape, weights: LlamaWeights, rotary: RotaryTable) -> _Forward:
    if executor == "torch":
        lean = TorchLlama(shape, weights, rotary)
        return GraphLlama(lean) if lean.device.type == "cuda" else lean
    from naive_speculate.infer.llama.onnx import OnnxLlama  # onnxruntime is optional

    return OnnxLlama(shape, weights, rotary)


def _onnx_obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    if not _is_installed("onnxruntime", _ONNXRUNTIME) or not _is_installed("onnx", _ONNX):
        return f"needs the packages onnx>={_ONNX} and onnxruntime>={_ONNXRUNTIME}: pip install 'naive-speculate[onnx]'"
    if device.type != "cpu" or dtype != torch.float32:
        return f"runs float32 on the CPU; the model is {dtype} on {device}"
    return None


def _is_installed(package: str, at_least: str) -> bool:
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return Version(found) >= Version(at_least)


def _rows_of(kv_cache: KVCache, batch_size: int) -> CacheRows:
    """The cache's rows, or those of a ragged copy of a plain cache.

    Raises:
        ValueError: If it is no cache.
    """
    if isinstance(kv_cache, RaggedKVCache):
        return kv_cache.all_rows()
    if not isinstance(kv_cache, KVCache):
        raise ValueError(f"kv_cache must be a KVCache, got {type(kv_cache).__name__}")
    states = kv_cache.get_kv_states()
    if states and states[0].keys.shape[0] != batch_size:
        raise ValueError(f"query_token_ids has {batch_size} rows, kv_cache has {states[0].keys.shape[0]}")
    rows = RaggedKVCache(batch_size).all_rows()
    if states:
        rows.update(states)
    return rows
