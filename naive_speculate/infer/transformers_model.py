"""Any causal language model of transformers with rollback-able attention caches, as a `BatchLanguageModel`."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, LinearAttentionCacheLayerMixin

from naive_speculate.infer.protocols import KVCache, KVState
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache

_ATTENTION_KINDS = {"full_attention", "sliding_attention"}


class TransformersLanguageModel:
    """Wraps a `PreTrainedModel`.

    Every forward gets explicit positions and attention masks, so that rows of different lengths go through one forward, and
    layers with a sliding window keep all their keys (the mask applies the window) and can be rolled back.

    Args:
        model: A decoder-only model, on its device, in its dtype.

    Raises:
        ValueError: If the model's state cannot be rolled back (recurrent and hybrid models), or it is not decoder-only.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval()
        self.config = model.config.get_text_config(decoder=True)
        refuse_if_not_rollbackable(model)
        layer_types = set(getattr(self.config, "layer_types", None) or ["full_attention"])
        self._window: int | None = getattr(self.config, "sliding_window", None)
        if getattr(self.config, "use_sliding_window", True) is False:
            self._window = None
        self._mixed_layers = "sliding_attention" in layer_types

    @property
    def eos_token_id(self) -> int:
        """The (first) end-of-sequence token of the configuration.

        Raises:
            ValueError: If the configuration has none.
        """
        ids = self.eos_token_ids
        if not ids:
            raise ValueError(f"eos_token_id: the configuration of {self.name} has none")
        return ids[0]

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """All end-of-sequence tokens of the configuration; empty where it has none."""
        ids = self.config.eos_token_id
        if ids is None:
            ids = self.model.config.eos_token_id
        if ids is None:
            return ()
        return tuple(ids) if isinstance(ids, Sequence) else (ids,)

    @property
    def name(self) -> str:
        """Where the model was loaded from, or its class."""
        return self.model.name_or_path or type(self.model).__name__

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return cast(int, self.config.vocab_size)

    @property
    def max_positions(self) -> int | None:
        """How many tokens a sequence may have; None where the configuration has no limit."""
        return getattr(self.config, "max_position_embeddings", None)

    @property
    def device(self) -> torch.device:
        """Where the model takes its tokens."""
        return self.model.device

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def new_cache(self, batch_size: int) -> RaggedKVCache:
        """An empty cache for `batch_size` rows."""
        return RaggedKVCache(batch_size)

    @torch.no_grad()
    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache, *, num_logits: int | None = None) -> torch.Tensor:
        """Compute logits and extend the cache; see `LanguageModel.forward`.

        Args:
            query_token_ids: int64, shape `[batch_size, num_query_tokens]`.
            kv_cache: A `RaggedKVCache`, a choice of its rows, or any `KVCache`.
            num_logits: Only the last so many positions' logits; None for all.

        Returns:
            torch.Tensor: Shape `[batch_size, num_query_tokens or num_logits, vocab_size]`.

        Raises:
            ValueError: If the query is not of that shape, or its rows are not the cache's.
        """
        check_query(query_token_ids)
        batch_size, num_new = query_token_ids.shape
        store: _Store
        if isinstance(kv_cache, (RaggedKVCache, CacheRows)):
            rows = kv_cache.all_rows() if isinstance(kv_cache, RaggedKVCache) else kv_cache
            if len(rows.indices) != batch_size:
                raise ValueError(f"query_token_ids has {batch_size} rows, kv_cache has {len(rows.indices)}")
            store = _RaggedStore(rows)
        else:
            # A row view over an empty cache serves for positions and masks of equally long rows.
            rows = _equal_rows(batch_size, kv_cache.get_num_tokens())
            store = _AppendStore(kv_cache)
        device = query_token_ids.device
        positions = rows.positions(num_new, device)
        if self.max_positions is not None:
            positions = positions.clamp(max=self.max_positions - 1)  # padding may stand behind the last position
        output = self.model(
            input_ids=query_token_ids,
            position_ids=positions,
            attention_mask=self._masks(rows, num_new, device),
            past_key_values=store,
            use_cache=True,
            logits_to_keep=num_logits or 0,
        )
        store.finish(num_new)
        return cast(torch.Tensor, output.logits)

    def _masks(self, rows: CacheRows, num_new: int, device: torch.device) -> Any:
        if self._mixed_layers:
            return {
                "full_attention": self._additive(rows.mask(num_new, device)),
                "sliding_attention": self._additive(rows.mask(num_new, device, self._window)),
            }
        return self._additive(rows.mask(num_new, device, self._window))

    def _additive(self, allowed: torch.Tensor) -> torch.Tensor:
        lowest = torch.finfo(self.model.dtype).min
        return torch.zeros_like(allowed, dtype=self.model.dtype).masked_fill_(~allowed, lowest)


def check_query(query_token_ids: torch.Tensor) -> None:
    """Refuse a query that is not `[batch_size, num_query_tokens]` with at least one token.

    Raises:
        ValueError: Gives the shape.
    """
    if query_token_ids.dim() != 2 or query_token_ids.shape[1] == 0:
        shape = list(query_token_ids.shape)
        raise ValueError(f"query_token_ids must have shape [batch_size, num_query_tokens > 0], got {shape}")


def refuse_if_not_rollbackable(model: PreTrainedModel) -> None:
    """Refuse models whose state is not a cache of keys and values that can be cut.

    Raises:
        ValueError: Names the model and why.
    """
    config = model.config.get_text_config(decoder=True)
    name = f"{model.name_or_path or type(model).__name__} ({config.model_type})"
    if model.config.is_encoder_decoder:
        raise ValueError(f"model {name} is an encoder-decoder; a decoder-only model is needed")
    kinds = set(getattr(config, "layer_types", None) or []) - _ATTENTION_KINDS
    recurrent = getattr(model, "_is_stateful", False) or any(
        isinstance(layer, LinearAttentionCacheLayerMixin) for layer in DynamicCache(config=config).layers
    )
    if recurrent or kinds:
        layers = f"has {', '.join(sorted(kinds))} layers" if kinds else "is recurrent"
        raise ValueError(f"model {name} {layers}: its state cannot be rolled back after a rejection")


class _Store(Cache):
    """What transformers' attention layers write to; subclasses say where it goes."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    @abstractmethod
    def finish(self, num_new: int) -> None:
        """Called once after each forward."""


class _RaggedStore(_Store):
    """Writes in place, at each row's own end."""

    def __init__(self, rows: CacheRows) -> None:
        super().__init__()
        self.rows = rows

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):  # type: ignore[no-untyped-def]
        return self.rows.write(layer_idx, key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.rows.get_num_tokens()

    def finish(self, num_new: int) -> None:
        self.rows.advance(num_new)


class _AppendStore(_Store):
    """Shows each layer the cached and the new states together, and appends the new ones after the forward."""

    def __init__(self, kv_cache: KVCache) -> None:
        super().__init__()
        self.kv_cache = kv_cache
        self.past = kv_cache.get_kv_states()
        self.new: list[KVState] = []

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.new.append(KVState(key_states, value_states))
        if not self.past:
            return key_states, value_states
        past = self.past[layer_idx]
        return torch.cat([past.keys, key_states], dim=2), torch.cat([past.values, value_states], dim=2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.kv_cache.get_num_tokens()

    def finish(self, num_new: int) -> None:
        self.kv_cache.update(self.new)


def _equal_rows(batch_size: int, length: int) -> CacheRows:
    cache = RaggedKVCache(batch_size)
    cache.lengths = [length] * batch_size
    return cache.all_rows()
