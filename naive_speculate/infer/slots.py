"""Places in a model's cache for sequences that come and go, and forwards over any choice of them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from naive_speculate.infer.arrays import as_tensor
from naive_speculate.infer.device import Tokens, num_new, tokens_on
from naive_speculate.infer.forward import forward, forward_with_features
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.infer.plain import PlainModel, as_batch_model
from naive_speculate.infer.protocols import BatchCache, LanguageModel

PREFILL_CHUNK = 512
"""Prompt tokens a forward, so that a long prompt can be cancelled and needs bounded memory."""


@dataclass(slots=True, eq=False)
class Slot:
    """One sequence's place: a row of a cache that others share."""

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
        """Hold the same tokens as another slot of the same pool, and no others."""
        self.cache.copy_row(other.row, self.row)


class Chunk(NamedTuple):
    """What a forward has taken in of sequences that were short of tokens.

    Attributes:
        places: Which of the sequences these are.
        starts: Position of the first token that each was fed.
        features: Hidden states at the tokens that each was fed, shape `[num_tokens, len(layers) * hidden_size]`; empty where no
            layers were asked for.
    """

    places: list[int]
    starts: list[int]
    features: list[torch.Tensor]


class SlotPool:
    """Lends out the rows of one model's cache.

    Attributes:
        model: The model, as one that decodes batches.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = as_batch_model(model)
        # Ours keeps to what it promises, unless somebody has put a `forward` of their own before its own.
        self._ours = type(model) is LlamaLanguageModel and "forward" not in vars(model)
        self._cache: BatchCache | None = None
        self._free: list[int] = []

    def allocate(self) -> Slot:
        """An empty slot; rows are added when none is free."""
        if self._cache is None:
            self._cache = self.model.new_cache(1)
            self._free = [0]
        if not self._free:
            count = len(self._cache.lengths)
            self._cache.add_rows(count)
            self._free = list(range(count, 2 * count))
        row = min(self._free)  # low rows stay together, so that a batch is a slice of the buffers
        self._free.remove(row)
        return Slot(self._cache, row)

    def free(self, slot: Slot) -> None:
        """Make a slot free for another sequence; the last one to come back frees the cache."""
        if self._cache is None:
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
        if self._cache is None:
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

    def view(self, slots: Sequence[Slot]) -> Any:
        """Some slots' rows, as the cache that a forward over them takes."""
        return slots[0].cache.rows([slot.row for slot in slots])

    def forward(
        self, view: Any, query: Tokens, num_logits: int | None = None, lengths: Sequence[int] | None = None
    ) -> torch.Tensor:
        """One forward; every row of the view gains all tokens of its row of the query.

        Args:
            view: See `view`.
            query: On the model's device, or lists.
            num_logits: Only the last so many positions' logits; None for all.
            lengths: How many tokens of each row of the query are not padding; a plain model computes only these, a batch one
                all of them. None where nothing is padding.

        Returns:
            torch.Tensor: Logits, shape `[rows, num_query_tokens or num_logits, vocab_size]`.

        Raises:
            ValueError: If the model does not keep to what `LanguageModel.forward` promises.
        """
        return self.compute(view, query, (), lengths, num_logits)[0]

    def compute(
        self,
        view: Any,
        query: Tokens,
        layers: Sequence[int],
        lengths: Sequence[int] | None = None,
        num_logits: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As `forward`, and the hidden states of some layers (see `BatchLanguageModel.forward`).

        Returns:
            tuple: Logits of every position or the last `num_logits`, and features, shape `[rows, num_query_tokens,
                len(layers) * hidden_size]`; None where there are no layers.

        Raises:
            ValueError: As `forward`, or if the model cannot return them.
        """
        if self._ours:
            assert isinstance(self.model, LlamaLanguageModel)
            logits, features = self.model.compute(query, view, num_logits or num_new(query), layers)
            return as_tensor(logits), None if features is None else as_tensor(features)
        tokens = tokens_on(self.model.device, query)
        if layers:
            return forward_with_features(self.model, tokens, view, layers, num_logits)
        if isinstance(self.model, PlainModel):
            return self.model.forward(tokens, view, num_logits=num_logits, lengths=lengths), None
        return forward(self.model, tokens, view, num_logits), None

    def catch_up(self, slots: Sequence[Slot], token_ids: Sequence[list[int]]) -> None:
        """Feed every slot all tokens of its sequence but the last."""
        while self.feed(slots, token_ids):
            pass

    def feed(self, slots: Sequence[Slot], token_ids: Sequence[list[int]], layers: Sequence[int] = ()) -> Chunk | None:
        """Feed every slot that is short of them the next chunk of its sequence's tokens, never the last token. Returns what was
        fed, with the hidden states of these layers; None where no slot was short of any."""
        places = [place for place, tokens in enumerate(token_ids) if slots[place].num_tokens < len(tokens) - 1]
        if not places:
            return None
        short = [(slots[place], token_ids[place]) for place in places]
        starts = [slot.num_tokens for slot, _ in short]
        chunks = [tokens[slot.num_tokens : len(tokens) - 1][:PREFILL_CHUNK] for slot, tokens in short]
        lengths = list(map(len, chunks))
        width = max(lengths)
        query = [chunk + [0] * (width - len(chunk)) for chunk in chunks]
        view = self.view([slot for slot, _ in short])
        _, features = self.compute(view, query, layers, lengths, num_logits=1)
        for (slot, _), start, length in zip(short, starts, lengths, strict=True):
            slot.keep(start + length)
        kept = [] if features is None else [states[:length] for states, length in zip(features, lengths, strict=True)]
        return Chunk(places, starts, kept)
