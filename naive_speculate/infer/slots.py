"""Places in a model's cache for sequences that come and go, and forwards over any choice of them.

A model with `new_cache` gets one ragged cache whose rows are lent out, and a true batch a forward; a plain `LanguageModel`
gets a `DynamicKVCache` a sequence and is called one sequence at a time.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from naive_speculate.infer.dynamic_cache import DynamicKVCache
from naive_speculate.infer.forward import forward
from naive_speculate.infer.protocols import KVCache, LanguageModel
from naive_speculate.infer.ragged_cache import RaggedKVCache
from naive_speculate.infer.transfer import on_device

PREFILL_CHUNK = 512
"""Prompt tokens a forward, so that a long prompt can be cancelled and needs bounded memory."""


@dataclass(slots=True, eq=False)
class Slot:
    """One sequence's place in a cache: a row of a shared ragged cache, or a cache of its own (`row` is None)."""

    cache: KVCache
    row: int | None

    @property
    def num_tokens(self) -> int:
        """Number of cached tokens."""
        if self.row is None:
            return self.cache.get_num_tokens()
        assert isinstance(self.cache, RaggedKVCache)
        return self.cache.lengths[self.row]

    def keep(self, num_tokens: int) -> None:
        """Roll back to at most `num_tokens` tokens."""
        surplus = self.num_tokens - num_tokens
        if surplus <= 0:
            return
        if self.row is None:
            self.cache.crop(surplus)
        else:
            assert isinstance(self.cache, RaggedKVCache)
            self.cache.lengths[self.row] = num_tokens

    def view(self) -> KVCache:
        """The sequence's own cache."""
        if self.row is None:
            return self.cache
        assert isinstance(self.cache, RaggedKVCache)
        return self.cache.rows([self.row])

    def copy_from(self, other: "Slot") -> None:
        """Hold the same tokens as another slot of the same pool, and no others."""
        if self.row is None:
            self.keep(0)
            if other.num_tokens:
                self.cache.update(other.cache.get_kv_states())
        else:
            assert isinstance(self.cache, RaggedKVCache)
            assert other.row is not None
            self.cache.copy_row(other.row, self.row)


class SlotPool:
    """Lends out slots of one model's cache.

    Attributes:
        model: The model.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self._cache: RaggedKVCache | None = None
        self._free: list[int] = []

    @property
    def batched(self) -> bool:
        """Whether the model decodes its rows in one forward."""
        return hasattr(self.model, "new_cache")

    def take(self) -> Slot:
        """An empty slot; rows are added when none is free."""
        if not self.batched:
            return Slot(DynamicKVCache(), None)
        if self._cache is None:
            self._cache = self.model.new_cache(1)  # type: ignore[attr-defined]
            self._free = [0]
        if not self._free:
            count = len(self._cache.lengths)
            self._cache.add_rows(count)
            self._free = list(range(count, 2 * count))
        row = min(self._free)  # low rows stay together, so that a batch is a slice of the buffers
        self._free.remove(row)
        return Slot(self._cache, row)

    def give_back(self, slot: Slot) -> None:
        """Make a slot free for another sequence; the last one to come back frees the cache."""
        if slot.row is None or self._cache is None:
            return
        self._cache.clear_row(slot.row)
        self._free.append(slot.row)
        if len(self._free) == len(self._cache.lengths):
            if hasattr(self.model, "recycle"):
                self.model.recycle(self._cache)
            self._cache = None
        else:
            # Where memory does not suffice even for this, a later one trims; a lost device shows at the next forward.
            with suppress(MemoryError, RuntimeError):
                self._cache.trim()

    def pack(self, slots: Sequence[Slot]) -> None:
        """Move slots into free rows between them, so that a batch is one slice of the buffers and runs as one."""
        if not self.batched or self._cache is None:
            return
        by_row = sorted(slots, key=lambda slot: slot.row or 0)
        while True:
            first, last = by_row[0].row or 0, by_row[-1].row or 0
            holes = [row for row in self._free if first < row < last]
            if last - first == len(by_row) - 1 or not holes:
                return
            hole = min(holes)
            self._cache.copy_row(last, hole)
            self._cache.clear_row(last)
            self._free.remove(hole)
            self._free.append(last)
            by_row[-1].row = hole
            by_row.sort(key=lambda slot: slot.row or 0)

    def forward(self, slots: Sequence[Slot], query: torch.Tensor) -> torch.Tensor:
        """One forward over some slots; every slot gains all tokens of its row.

        Args:
            slots: Slots of this pool.
            query: int64, shape `[len(slots), num_query_tokens]`.

        Returns:
            torch.Tensor: Logits, shape `[len(slots), num_query_tokens, vocab_size]`.

        Raises:
            ValueError: If the model does not keep to what `LanguageModel.forward` promises.
        """
        if not self.batched:
            rows = zip(slots, query, strict=True)
            return torch.cat([forward(self.model, row[None], slot.cache) for slot, row in rows])
        return forward(self.model, query, joint_view(slots))

    def catch_up(self, slots: Sequence[Slot], token_ids: Sequence[list[int]]) -> None:
        """Feed every slot all of its tokens but the last.

        Args:
            slots: Slots of this pool.
            token_ids: All tokens of each sequence.
        """
        while self.feed(slots, token_ids):
            pass

    def feed(self, slots: Sequence[Slot], token_ids: Sequence[list[int]]) -> bool:
        """Feed every slot that is behind the next chunk of its tokens, never the last token.

        Args:
            slots: Slots of this pool.
            token_ids: All tokens of each sequence.

        Returns:
            bool: Whether any was behind.
        """
        behind = [(slot, tokens) for slot, tokens in zip(slots, token_ids, strict=True) if slot.num_tokens < len(tokens) - 1]
        if not behind:
            return False
        chunks = [tokens[slot.num_tokens : len(tokens) - 1][:PREFILL_CHUNK] for slot, tokens in behind]
        if self.batched:
            width = max(map(len, chunks))
            query = on_device([chunk + [0] * (width - len(chunk)) for chunk in chunks], _device(self.model))
            forward(self.model, query, joint_view([slot for slot, _ in behind]), num_logits=1)
            for (slot, _), chunk in zip(behind, chunks, strict=True):
                slot.keep(slot.num_tokens - (width - len(chunk)))
        else:
            for (slot, _), chunk in zip(behind, chunks, strict=True):
                forward(self.model, on_device([chunk], _device(self.model)), slot.cache)
        return True


def joint_view(slots: Sequence[Slot]) -> KVCache:
    """The slots' rows of their shared cache as one cache, or the one slot's own cache."""
    cache = slots[0].cache
    if slots[0].row is None:
        return cache
    assert isinstance(cache, RaggedKVCache)
    return cache.rows([slot.row for slot in slots if slot.row is not None])


def _device(model: LanguageModel) -> torch.device:
    return getattr(model, "device", torch.device("cpu"))
