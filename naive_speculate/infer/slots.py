"""Assigns rows of a model's cache to sequences, and runs forwards over any of them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from naive_speculate.infer.device import on_device
from naive_speculate.infer.forward import forward_of
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.infer.protocols import LanguageModel, MakesCaches
from naive_speculate.infer.ragged_cache import BatchCache, Rows

# prompt tokens of a row per forward, so that a long prompt can be cancelled and needs bounded
# memory
PREFILL_CHUNK = 256
# chunks per forward on an accelerator; one on a processor, whose time grows with every token
CHUNKS_AT_ONCE = 32


@dataclass(slots=True, eq=False)
class Slot:
    """The row of one sequence in a shared cache."""

    cache: BatchCache
    row: int

    @property
    def num_tokens(self) -> int:
        """Number of cached tokens."""
        return self.cache.lengths[self.row]

    def keep(self, num_tokens: int) -> None:
        """Roll back to at most `num_tokens` tokens."""
        self.cache.keep(self.row, num_tokens)

    def copy_from(self, other: "Slot") -> None:
        """Replace the tokens by those of another slot of the same pool."""
        self.cache.copy_row(other.row, self.row)


class Chunk(NamedTuple):
    """The tokens that one forward added to sequences."""

    indices: list[int]  # which of the sequences
    starts: list[int]  # position of each sequence's first added token
    # hidden states at each sequence's added tokens, shape `[num_tokens, len(layers) *
    # hidden_size]`; empty without layers
    features: list[torch.Tensor]


class SlotPool:
    """Allocates the rows of one model's cache; a language model becomes a `BatchLanguageModel`."""

    def __init__(self, model: LanguageModel | MakesCaches) -> None:
        self.model: Any = model if isinstance(model, MakesCaches) else as_batch_model(model)
        self._cache: BatchCache | None = None
        self._free: list[int] = []

    @cached_property
    def forward(self) -> Callable[..., Any]:
        """The language model's `forward`; see `forward_of`."""
        return forward_of(self.model)

    def allocate(self) -> Slot:
        """An empty slot; rows are added when none is free."""
        if self._cache is None:
            self._cache = self.model.new_cache(1)
            self._free = [0]
        if not self._free:
            count = len(self._cache.lengths)
            self._cache.add_rows(count)
            self._free = list(range(count, 2 * count))
        row = min(self._free)  # low rows first, so that a batch is a slice of the buffers
        self._free.remove(row)
        return Slot(self._cache, row)

    def free(self, slot: Slot) -> None:
        """Free a slot for another sequence; freeing the last one frees the cache."""
        if self._cache is None:
            return
        self._cache.clear_row(slot.row)
        self._free.append(slot.row)
        if len(self._free) == len(self._cache.lengths):
            self.model.recycle(self._cache)
            self._cache = None
        else:
            # If memory is insufficient, a later call trims; a lost device fails at the next
            # forward.
            with suppress(MemoryError, RuntimeError):
                self._cache.trim()

    def pack(self, slots: Sequence[Slot]) -> None:
        """Move slots into free rows between them, so that a batch is one slice of the buffers."""
        if self._cache is None or len(slots) == 1:
            return
        by_row = sorted(slots, key=lambda slot: slot.row)
        while True:
            first, last = by_row[0].row, by_row[-1].row
            holes = [row for row in self._free if first < row < last]
            if last - first == len(by_row) - 1 or not holes:
                return
            hole = min(holes)
            self._cache.copy_row(last, hole)
            self._cache.clear_row(last)
            self._free.remove(hole)
            self._free.append(last)
            by_row[-1].row = hole
            by_row.sort(key=lambda slot: slot.row)

    def view(self, slots: Sequence[Slot]) -> Rows[Any]:
        """Some slots' rows, as the cache of a forward."""
        rows = [slot.row for slot in slots] if len(slots) > 1 else [slots[0].row]
        return slots[0].cache.rows(rows)

    def feed(
        self, slots: Sequence[Slot], token_ids: Sequence[list[int]], layers: Sequence[int] = ()
    ) -> Chunk | None:
        """Add the next chunk of its sequence's tokens, without the last token, to each slot that
        lacks some. Returns the added tokens, with the hidden states of `layers`; None if no slot
        lacked any."""
        indices = [
            index
            for index, tokens in enumerate(token_ids)
            if slots[index].num_tokens < len(tokens) - 1
        ]
        if not indices:
            return None
        short = [slots[index] for index in indices]
        starts = [slot.num_tokens for slot in short]
        chunks = [
            token_ids[index][start:-1][:PREFILL_CHUNK]
            for index, start in zip(indices, starts, strict=True)
        ]
        lengths = list(map(len, chunks))
        width = max(lengths)
        query = on_device(
            [chunk + [0] * (width - len(chunk)) for chunk in chunks], self.model.device
        )
        result = self.forward(query, self.view(short), num_logits=1, layers=layers, lengths=lengths)
        for slot, start, length in zip(short, starts, lengths, strict=True):
            slot.keep(start + length)
        states = [
            row[:length] for row, length in zip(result[1] if layers else (), lengths, strict=False)
        ]
        return Chunk(indices, starts, states)
