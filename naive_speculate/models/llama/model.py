"""The fast language model for the Llama family: Llama, Qwen2, Qwen3, Mistral."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch

from naive_speculate.infer.device import is_installed
from naive_speculate.infer.end_tokens import HasEndTokens
from naive_speculate.infer.forward import (
    check_layers,
    check_query,
    checked_num_logits,
    keeps_contract,
)
from naive_speculate.infer.protocols import KVCache
from naive_speculate.infer.ragged_cache import CacheRows
from naive_speculate.models.llama.cuda_graphs import CudaCapture, Graphs, MakesRaggedCaches
from naive_speculate.models.llama.rounded import Rounding
from naive_speculate.models.llama.stored import StoredLlama
from naive_speculate.models.llama.torch import TorchLlama
from naive_speculate.models.llama.weights import LlamaShape
from naive_speculate.models.memory import on_disk

if TYPE_CHECKING:  # slow to import
    from transformers import PreTrainedModel

Executor = Literal["auto", "onnx", "torch"]

_ONNXRUNTIME, _ONNX = "1.31", "1.19"  # the least versions with all operators of the graphs


class _Forward(Protocol):
    shape: LlamaShape
    dtype: torch.dtype
    device: torch.device
    table: torch.Tensor  # the embedding table
    graphs: Graphs | None  # None where nothing is captured

    def forward(
        self, token_ids: torch.Tensor, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]: ...


class LlamaLanguageModel(HasEndTokens, MakesRaggedCaches):
    """A `BatchLanguageModel` computed by ONNX Runtime (`OnnxLlama`) or torch (`TorchLlama`), on
    CUDA as graphs (`Graphs`).

    Its logits equal transformers' up to rounding. `eos_token_ids` (see `end_tokens`) may be
    empty, `max_positions` is None where the configuration has no limit, `executor` is "onnx" or
    "torch", and `input_embeddings` is the embedding table, shape `[vocab_size, hidden_size]`, or
    rounded (see `rounded`); `output_embeddings` is the matrix before the logits, likewise, the
    same tensor where they are tied. `stored`: its weights. `executor`: "onnx" needs onnxruntime,
    the CPU, and weights in float32 or rounded, which "torch" cannot compute;
    "auto" takes it where possible, else "torch". `forward`: an executor of one's own. Raises
    `ValueError` if the executor cannot run the model.
    """

    def __init__(
        self, stored: StoredLlama, executor: Executor = "auto", forward: _Forward | None = None
    ) -> None:
        weights, shape = stored.weights, stored.shape
        # norms are floating-point numbers in any case
        self.executor = choose_executor(executor, weights.norm.device, weights.norm.dtype)
        # ONNX Runtime has threads of its own
        self.computes_beside_torch = self.executor == "onnx"
        self._forward = forward or _forward_of(self.executor, stored)
        self.name, self.eos_token_ids, self.num_parameters = (
            stored.name,
            stored.eos_token_ids,
            stored.num_parameters,
        )
        self.vocab_size, self.max_positions = shape.vocab_size, stored.max_positions
        self.num_layers, self.hidden_size = shape.num_layers, shape.hidden_size
        self.input_embeddings = self._forward.table
        self.output_embeddings = self.input_embeddings
        output = weights.head if weights.output is None else weights.output
        if output.data_ptr() != weights.embedding.data_ptr():  # ONNX Runtime has a copy
            self.output_embeddings = on_disk(output) if self.executor == "onnx" else output

    @classmethod
    def from_transformers(
        cls, model: "PreTrainedModel", executor: Executor = "auto", rounding: Rounding | None = None
    ) -> "LlamaLanguageModel":
        """Take the weights of a loaded model, rounded or not; no reference to the model
        remains, so dropping it frees its copy. Raises `ValueError` if the model is not
        supported, or the executor cannot run it."""
        return cls(StoredLlama.of(model, rounding), executor)

    @property
    def device(self) -> torch.device:
        """Where the logits are."""
        return self._forward.device

    takes_lengths, takes_trees = False, True

    @keeps_contract
    def forward(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: KVCache,
        *,
        num_logits: int | None = None,
        layers: Sequence[int] = (),
        lengths: Sequence[int] | None = None,
    ) -> Any:
        """See `BatchLanguageModel.forward`; padding is computed and stored. The states of a
        `KVCache` of another package are copied at every call. Raises `ValueError` if the query
        has another shape or other rows than the cache, a token is not in the vocabulary, a layer
        does not exist, or the cache belongs to a model of another shape."""
        if query_token_ids.dim() != 2 or not query_token_ids.shape[1]:
            check_query(query_token_ids)
        (batch_size, count), executor = query_token_ids.shape, self._forward
        if num_logits is not None and not 1 <= num_logits <= count:
            checked_num_logits(num_logits, count)
        if layers:
            check_layers(layers, executor.shape.num_layers)
        rows: Any = kv_cache
        if not isinstance(rows, CacheRows) or len(rows.indices) != batch_size:
            rows = CacheRows.of(kv_cache, batch_size)
        if rows.cache.checked_for is not executor:
            rows.cache.require(executor.shape, executor.dtype, executor.device)
            rows.cache.checked_for = executor
        logits, features = executor.forward(
            query_token_ids.to(executor.device), rows, num_logits or count, layers
        )
        rows.advance(count)
        return logits if features is None else (logits, features)


def choose_executor(executor: str, device: torch.device, dtype: torch.dtype) -> str:
    """The requested executor, or the fastest one that can run the model."""
    obstacle = _onnx_obstacle(device, dtype)
    if executor == "auto":
        return "onnx" if obstacle is None else "torch"
    if executor not in ("onnx", "torch"):
        raise ValueError(f'executor must be "auto", "onnx" or "torch", got {executor!r}')
    if executor == "onnx" and obstacle is not None:
        raise ValueError(f'executor "onnx" {obstacle}')
    return executor


def _forward_of(executor: str, stored: StoredLlama) -> _Forward:
    if executor == "torch":
        device = stored.weights.embedding.device
        graphs = (
            Graphs(stored.shape, stored.rotary, CudaCapture(device))
            if device.type == "cuda"
            else None
        )
        return TorchLlama(stored.shape, stored.weights, stored.rotary, graphs)
    from naive_speculate.models.llama.onnx_session import OnnxLlama  # onnxruntime is optional

    return OnnxLlama(stored.shape, stored.weights, stored.rotary)


def _onnx_obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cpu" or dtype != torch.float32:
        return f"runs float32 on the CPU; the model is {dtype} on {device}"
    if not is_installed("onnxruntime", _ONNXRUNTIME) or not is_installed("onnx", _ONNX):
        return (
            f"needs the packages onnx>={_ONNX} and onnxruntime>={_ONNXRUNTIME}: pip install"
            " '.[onnx]' in the repository"
        )
    return None
