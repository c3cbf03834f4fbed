"""Adapts a model that offers less to `BatchLanguageModel`: a plain `LanguageModel`, which decodes
one sequence at a time, or one with `new_cache` and no more."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from naive_speculate.infer.forward import forward_each_row, forward_of, keeps_contract
from naive_speculate.infer.protocols import (
    BatchLanguageModel,
    KVCache,
    LanguageModel,
    MakesCaches,
)
from naive_speculate.infer.ragged_cache import BatchCache, DynamicKVCache, Rows


class PlainCache(BatchCache):
    """A cache for each row, made by `make`."""

    make: Callable[[], Any] = DynamicKVCache

    def __init__(self, batch_size: int) -> None:
        self.caches = [self.make() for _ in range(batch_size)]

    @property
    def lengths(self) -> list[int]:  # type: ignore[override]
        return [cache.get_num_tokens() for cache in self.caches]

    def add_rows(self, count: int) -> None:
        self.caches += [self.make() for _ in range(count)]

    def copy_row(self, source: int, destination: int) -> None:
        self.clear_row(destination)
        if states := self.caches[source].get_kv_states():
            self.caches[destination].update(states)

    def clear_row(self, row: int) -> None:
        self.caches[row] = self.make()

    def keep(self, row: int, num_tokens: int) -> None:
        self.caches[row].crop(max(0, self.caches[row].get_num_tokens() - num_tokens))


class PlainModel:
    """A `BatchLanguageModel` that calls a plain one row by row; its `device`, `vocab_size` and
    `max_positions` are used if present."""

    takes_lengths, takes_trees = True, False

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.device: torch.device = getattr(model, "device", torch.device("cpu"))
        self.max_positions: int | None = getattr(model, "max_positions", None)

    @property
    def eos_token_id(self) -> int:
        """The model's."""
        return self.model.eos_token_id

    @property
    def vocab_size(self) -> int:
        """Width of the logits; measured by a forward if the model has no `vocab_size`."""
        size = getattr(self.model, "vocab_size", None)
        if size is None:
            token = torch.zeros(1, 1, dtype=torch.int64, device=self.device)
            size = forward_of(self.model)(token, DynamicKVCache()).shape[-1]
        return int(size)

    def new_cache(self, batch_size: int) -> PlainCache:
        """A separate cache for each row."""
        return PlainCache(batch_size)

    def recycle(self, cache: PlainCache) -> None:
        """See `MakesCaches.recycle`; its caches are not kept."""

    @keeps_contract
    def forward(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: Rows[PlainCache],
        *,
        num_logits: int | None = None,
        layers: Sequence[int] = (),
        lengths: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """See `BatchLanguageModel.forward`; `lengths` are the tokens per row without padding,
        which is not computed. Raises `ValueError` if `layers` are given, since a plain model
        returns no hidden states."""
        if layers:
            name = type(self.model).__name__
            raise ValueError(
                f"layers: {name} is a plain LanguageModel and returns no hidden states, got"
                f" {list(layers)}"
            )

        forward = forward_of(self.model)

        def one(index: int, token_ids: torch.Tensor) -> tuple[torch.Tensor, None]:
            own = kv_cache.cache.caches[kv_cache.indices[index]]
            return forward(token_ids[None], own)[0], None

        batch_size, num_new = query_token_ids.shape
        return forward_each_row(
            query_token_ids, lengths or [num_new] * batch_size, num_logits, one
        )[0]


class CompletedModel:
    """A `BatchLanguageModel` that offers what a model with `new_cache` may lack; its `vocab_size`
    and `max_positions` are needed where a batch decodes with it."""

    takes_lengths, takes_trees = False, False

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def recycle(self, cache: BatchCache) -> None:
        """See `MakesCaches.recycle`; its caches are not kept."""


def new_cache(model: LanguageModel) -> KVCache:
    """An empty cache of one sequence for a model's `forward`; a model that makes caches gets one
    of its own kind."""
    if isinstance(model, MakesCaches):
        return cast(KVCache, model.new_cache(1).all_rows())
    return DynamicKVCache()


def as_batch_model(model: LanguageModel) -> BatchLanguageModel:
    """The model itself if it decodes batches, else an adapter."""
    if isinstance(model, MakesCaches):
        return cast(BatchLanguageModel, model)
    return cast(
        BatchLanguageModel,
        CompletedModel(model) if hasattr(model, "new_cache") else PlainModel(model),
    )
