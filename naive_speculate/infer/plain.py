"""Makes a plain `LanguageModel`, which has two members and decodes one sequence at a time, a batch one."""

from collections.abc import Sequence
from typing import cast

import torch

from naive_speculate.infer.dynamic_cache import DynamicKVCache
from naive_speculate.infer.forward import forward
from naive_speculate.infer.protocols import BatchLanguageModel, LanguageModel
from naive_speculate.infer.rows import Rows


class PlainCache:
    """A `BatchCache`: a `DynamicKVCache` for each row."""

    def __init__(self, batch_size: int) -> None:
        self.caches = [DynamicKVCache() for _ in range(batch_size)]

    @property
    def lengths(self) -> list[int]:
        return [cache.get_num_tokens() for cache in self.caches]

    def rows(self, rows: Sequence[int]) -> "Rows[PlainCache]":
        return Rows(self, rows)

    def add_rows(self, count: int) -> None:
        self.caches += [DynamicKVCache() for _ in range(count)]

    def copy_row(self, source: int, destination: int) -> None:
        self.clear_row(destination)
        if states := self.caches[source].get_kv_states():
            self.caches[destination].update(states)

    def clear_row(self, row: int) -> None:
        self.caches[row] = DynamicKVCache()

    def keep(self, row: int, num_tokens: int) -> None:
        self.caches[row].crop(max(0, self.caches[row].get_num_tokens() - num_tokens))

    def trim(self) -> None:
        """Nothing is kept beyond the tokens."""


class PlainModel:
    """A `BatchLanguageModel` that calls a plain one row by row.

    Args:
        model: Anything with `forward(query_token_ids, kv_cache)`; its `device`, `vocab_size` and `max_positions` are used where
            it has them.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.device: torch.device = getattr(model, "device", torch.device("cpu"))
        self.max_positions: int | None = getattr(model, "max_positions", None)

    @property
    def eos_token_id(self) -> int:
        """As the model's."""
        return self.model.eos_token_id

    @property
    def vocab_size(self) -> int:
        """Width of the logits; found out by a forward where the model does not say it."""
        known = getattr(self.model, "vocab_size", None)
        if known is None:
            known = forward(self.model, torch.zeros(1, 1, dtype=torch.int64, device=self.device), DynamicKVCache()).shape[-1]
        return int(known)

    def new_cache(self, batch_size: int) -> PlainCache:
        """A cache of its own for each row."""
        return PlainCache(batch_size)

    def forward(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: Rows[PlainCache],
        *,
        num_logits: int | None = None,
        layers: Sequence[int] = (),
        lengths: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """See `BatchLanguageModel.forward`; only so many tokens of each row are more than padding, which the model never sees.

        Raises:
            ValueError: If hidden states are asked for, which a plain model does not return.
        """
        if layers:
            name = type(self.model).__name__
            raise ValueError(f"layers: {name} is a plain LanguageModel and returns no hidden states, got {list(layers)}")
        batch_size, num_new = query_token_ids.shape
        found: dict[int, torch.Tensor] = {}
        for place, length in enumerate(lengths or [num_new] * batch_size):
            if length:
                cache = kv_cache.cache.caches[kv_cache.indices[place]]
                found[place] = forward(self.model, query_token_ids[place, None, :length], cache)[0]
        some = next(iter(found.values()))
        logits = some.new_zeros(batch_size, num_new, some.shape[-1])
        for place, own in found.items():
            logits[place, : len(own)] = own
        return logits if num_logits is None else logits[:, -num_logits:]


def as_batch_model(model: LanguageModel) -> BatchLanguageModel:
    """The model itself if it decodes batches, else an adapter around it."""
    return cast(BatchLanguageModel, model if hasattr(model, "new_cache") else PlainModel(model))
