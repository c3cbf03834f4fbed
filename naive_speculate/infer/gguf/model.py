"""A language model from a GGUF file, computed by llama.cpp: on the CPU, Metal, Vulkan or CUDA,
as it was built."""

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from naive_speculate.infer.end_tokens import HasEndTokens
from naive_speculate.infer.forward import check_query, checked_num_logits, keeps_contract
from naive_speculate.infer.gguf.cache import GgufCache
from naive_speculate.infer.gguf.library import Context, ModelFile, llama_cpp
from naive_speculate.infer.protocols import KVCache, KVState
from naive_speculate.infer.ragged_cache import DynamicKVCache, RaggedKVCache, Rows
from naive_speculate.infer.threads import num_threads
from naive_speculate.text import num_shared

CACHE_TYPES = {
    "float32": 0,
    "float16": 1,
    "bfloat16": 30,
}  # types of keys and values, with ggml's numbers
_GPUS = ("cuda", "metal", "vulkan")
_ALL_FLOAT32 = "0"
_FLASH_NEVER, _FLASH_AUTO = 0, -1


class GgufLanguageModel(HasEndTokens):
    """A `BatchLanguageModel` computed by llama.cpp; its logits are on the CPU, whatever device
    llama.cpp uses.

    Args:
        path: The file.
        device: "auto" uses all devices that llama.cpp was built for, "cpu" the CPU alone;
            "cuda", "metal" and "vulkan" need a llama.cpp built for GPUs.
        dtype: Type of keys and values; "auto": float32 where all weights are, else float16. The
            weights keep the file's type.

    Raises:
        ValueError: If the file cannot be loaded, llama-cpp-python is missing, the device or
            dtype is not available, or the model's state cannot be rolled back.
    """

    executor = "gguf"
    takes_lengths, takes_trees = True, False
    device = torch.device("cpu")

    def __init__(self, path: str | Path, device: str = "auto", dtype: str = "auto") -> None:
        library = llama_cpp()
        if device not in ("auto", "cpu", *_GPUS):
            raise ValueError(
                f"device must be auto, cpu, {', '.join(_GPUS)} for GGUF models, without a number,"
                f" got {device!r:.80}"
            )
        check_rollback(path)
        offloads = bool(library.llama_supports_gpu_offload())
        if device not in ("auto", "cpu") and not offloads:
            raise ValueError(
                f"device={device!r} is not available: this llama.cpp was built for the CPU alone"
            )
        if dtype not in ("auto", *CACHE_TYPES):
            raise ValueError(
                f"dtype must be 'auto' or one of {', '.join(CACHE_TYPES)} for GGUF models, got"
                f" {dtype!r}"
            )
        by_gpu = offloads and device != "cpu"
        self._file = ModelFile(path, n_gpu_layers=-1 if by_gpu else 0)
        if dtype == "auto":
            dtype = (
                "float32" if self._file.value("general.file_type") == _ALL_FLOAT32 else "float16"
            )
        kind = CACHE_TYPES[dtype]
        # llama.cpp's flash attention rounds keys and values to half precision.
        flash = _FLASH_NEVER if dtype == "float32" else _FLASH_AUTO
        self._options = {
            "type_k": kind,
            "type_v": kind,
            "flash_attn_type": flash,
            "offload_kqv": by_gpu,
            "op_offload": by_gpu,
        }
        handle, vocabulary = self._file.handle, self._file.vocabulary
        self.name = str(path)
        self.vocab_size = int(library.llama_vocab_n_tokens(vocabulary))
        self.max_positions = int(library.llama_model_n_ctx_train(handle))
        self.num_parameters = int(library.llama_model_n_params(handle))
        self.eos_token_ids = _ends(self._file, self.vocab_size)
        # for plain caches: the rows that stand for one, and their tokens
        self._replays: weakref.WeakKeyDictionary[Any, tuple[GgufCache, list[list[int]]]] = (
            weakref.WeakKeyDictionary()
        )

    def new_cache(self, batch_size: int) -> GgufCache:
        """An empty cache for `batch_size` rows."""
        return GgufCache(self._context, batch_size, self.vocab_size)

    def recycle(self, cache: GgufCache) -> None:
        """See `MakesCaches.recycle`; its contexts are freed."""

    def _context(self, num_cells: int) -> Context:
        return Context(self._file, num_cells, num_threads(), self._options)

    @keeps_contract
    def forward(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: Any,
        *,
        num_logits: int | None = None,
        layers: Sequence[int] = (),
        lengths: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """See `BatchLanguageModel.forward`; the logits are float32, and `layers` are not
        supported. `lengths` are the tokens per row without padding, whose logits are zeros.

        A `KVCache` that is not from `new_cache` stores token ids; keys and values are recomputed
        from them where llama.cpp no longer has them. Raises `ValueError` if the query has
        another shape or other rows than the cache, a token is not in the vocabulary, a row
        exceeds `max_positions`, or `layers` are given; `MemoryError` if memory is insufficient
        for longer sequences.
        """
        check_query(query_token_ids)
        if layers:
            raise ValueError(
                f"layers: llama.cpp returns no hidden states of {self.name}, got {list(layers)}"
            )
        batch_size, num_new = query_token_ids.shape
        num_logits = checked_num_logits(num_logits, num_new)
        counts = lengths or [num_new] * batch_size
        query = [
            tokens[:count] for tokens, count in zip(query_token_ids.tolist(), counts, strict=True)
        ]
        if not all(0 <= token < self.vocab_size for tokens in query for token in tokens):
            raise ValueError(
                f"query_token_ids must be between 0 and {self.vocab_size - 1}, got {query!r:.80}"
            )
        view = kv_cache.all_rows() if isinstance(kv_cache, GgufCache) else kv_cache
        own = isinstance(view, Rows) and isinstance(view.cache, GgufCache)
        rows: Any = view if own else self._replayed(view, batch_size)
        if len(rows.indices) != batch_size:
            raise ValueError(
                f"query_token_ids has {batch_size} rows, kv_cache has {len(rows.indices)}"
            )
        reached = max(length + count for length, count in zip(rows.lengths, counts, strict=True))
        if reached > self.max_positions:
            raise ValueError(
                f"query_token_ids reaches {reached} tokens, {self.name} can take"
                f" {self.max_positions}"
            )
        found = rows.cache.decode(rows.indices, query, num_new - num_logits)
        logits = found.new_zeros(batch_size, num_logits, self.vocab_size)
        logits[torch.arange(num_new - num_logits, num_new) < torch.tensor(counts)[:, None]] = found
        if not own:
            ids = query_token_ids[:, None, :, None]
            view.update([KVState(ids, ids)])
            cache, held = self._replays[view]
            self._replays[view] = (
                cache,
                [before + tokens for before, tokens in zip(held, query, strict=True)],
            )
        return logits

    def _replayed(self, kv_cache: Any, batch_size: int) -> Rows[GgufCache]:
        """Rows with the tokens of a plain cache that this model filled; states that were not
        cropped are reused."""
        plain = isinstance(kv_cache, DynamicKVCache) or not isinstance(
            kv_cache, RaggedKVCache | Rows
        )
        if not plain or not isinstance(kv_cache, KVCache):
            raise ValueError(
                "kv_cache must be of this model's new_cache or a plain KVCache, got"
                f" {type(kv_cache).__name__}"
            )
        states = kv_cache.get_kv_states()
        if states and (
            len(states) != 1
            or states[0].keys.dtype != torch.int64
            or states[0].keys.shape[0] != batch_size
        ):
            raise ValueError(
                f"kv_cache belongs to another model, or does not have {batch_size} rows"
            )
        history = states[0].keys[:, 0, :, 0].tolist() if states else [[] for _ in range(batch_size)]
        cache, held = self._replays.get(kv_cache) or (self.new_cache(batch_size), [[]] * batch_size)
        for row, (before, tokens) in enumerate(zip(held, history, strict=True)):
            shared = num_shared(before, tokens)
            cache.keep(row, shared)
            if tokens[shared:]:
                cache.decode([row], [tokens[shared:]], len(tokens) - shared)
        self._replays[kv_cache] = cache, history
        return cache.all_rows()


def _ends(file: ModelFile, vocab_size: int) -> tuple[int, ...]:
    """All tokens that end a sequence, the file's end-of-sequence token first."""
    library, eos = llama_cpp(), file.special_token("eos")
    assumed = library.llama_vocab_eos(file.vocabulary) if eos is None else None
    others = [
        token
        for token in range(vocab_size)
        if library.llama_vocab_is_eog(file.vocabulary, token) and token != assumed
    ]
    return tuple(dict.fromkeys(others if eos is None else [eos, *others]))


def check_rollback(path: str | Path) -> None:
    """Raise a `ValueError` if the model's state cannot be rolled back; reads the header only."""
    library = llama_cpp()
    header = ModelFile(path, vocab_only=True)
    kind = header.value("general.architecture")
    stays = "its state cannot be rolled back after a rejection"
    for check, why in (
        (library.llama_model_is_recurrent, f"is recurrent: {stays}"),
        (library.llama_model_is_hybrid, f"has recurrent and attention layers: {stays}"),
        (library.llama_model_has_encoder, "has an encoder; a decoder-only model is needed"),
        (
            library.llama_model_is_diffusion,
            "is a diffusion model; one that predicts the next token is needed",
        ),
    ):
        if check(header.handle):
            raise ValueError(f"the model ({kind}) {why}")
