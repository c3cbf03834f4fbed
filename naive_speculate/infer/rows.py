"""Caches whose rows have different lengths, and views of some of their rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch.nn.functional import pad

C = TypeVar("C", bound="BatchCache")


class BatchCache(ABC):
    """A cache that sequences share, each with a row of its own length."""

    lengths: list[int]
    """Number of tokens of each row."""

    def rows(self, rows: Sequence[int]) -> "Rows[Any]":
        """Some rows, in that order, for the model's `forward`."""
        return Rows(self, rows)

    def all_rows(self) -> Any:
        """All rows."""
        return self.rows(range(len(self.lengths)))

    @abstractmethod
    def add_rows(self, count: int) -> None:
        """Add `count` empty rows."""

    @abstractmethod
    def copy_row(self, source: int, destination: int) -> None:
        """Replace the tokens of `destination` by those of `source`."""

    @abstractmethod
    def keep(self, row: int, num_tokens: int) -> None:
        """Roll a row back to at most `num_tokens` tokens."""

    def clear_row(self, row: int) -> None:
        """Remove a row's tokens."""
        self.keep(row, 0)

    def trim(self) -> None:  # noqa: B027 - a cache that never keeps spare memory has nothing to do
        """Free memory that the rows do not need."""

    def get_num_tokens(self) -> int:
        """Number of tokens of the longest row."""
        return max(self.lengths)

    def crop(self, num_tokens_crop: int | Sequence[int]) -> None:
        """Remove the last tokens of every row; one number, or one per row (see `KVCache`)."""
        self.all_rows().crop(num_tokens_crop)


class Rows(Generic[C]):
    """Distinct rows of a cache, by their numbers (`indices`), in that order."""

    def __init__(self, cache: C, rows: Sequence[int]) -> None:
        if not rows or len(set(rows)) != len(rows):
            raise ValueError(f"rows must be distinct and at least one, got {list(rows)}")
        self.cache = cache
        self.indices = list(rows)

    @property
    def lengths(self) -> list[int]:
        """Number of tokens of each row."""
        return [self.cache.lengths[row] for row in self.indices]

    def get_num_tokens(self) -> int:
        """Number of tokens of the longest row."""
        return max(self.lengths)

    def crop(self, num_tokens_crop: int | Sequence[int]) -> None:
        """Remove the last tokens; one number for all rows, or one per row (see `KVCache`)."""
        counts = (
            [num_tokens_crop] * len(self.indices)
            if isinstance(num_tokens_crop, int)
            else num_tokens_crop
        )
        lengths = self.lengths
        for length, count in zip(lengths, counts, strict=True):
            if count < 0:
                raise ValueError(f"num_tokens_crop must not be negative, got {count}")
            if count > length:
                raise ValueError(
                    f"num_tokens_crop is {count}, but the cache holds only {length} tokens"
                )
        for row, length, count in zip(self.indices, lengths, counts, strict=True):
            self.cache.keep(row, length - count)


def forward_each_row(
    query_token_ids: torch.Tensor,
    lengths: Sequence[int],
    num_logits: int | None,
    forward: Callable[[int, torch.Tensor], tuple[torch.Tensor, torch.Tensor | None]],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One forward per row of a query `[batch_size, num_new]`, over its first `lengths[index]`
    tokens; the others are padding, which gives zeros. `forward` takes a row's index and tokens,
    and returns logits of the last or all of them, `[num_tokens, vocab_size]`, and features or
    None; the result is stacked."""
    (batch_size, num_new), features = query_token_ids.shape, None
    wanted = num_new if num_logits is None else num_logits
    found = {
        index: forward(index, query_token_ids[index, :length])
        for index, length in enumerate(lengths)
        if length
    }
    own, states = next(iter(found.values()))
    logits = own.new_zeros(batch_size, wanted, own.shape[-1])
    if states is not None:
        features = states.new_zeros(batch_size, num_new, states.shape[-1])
    for index, (own, states) in found.items():
        padded = pad(own, (0, 0, 0, num_new - lengths[index]))[-wanted:]
        logits[index, wanted - len(padded) :] = padded
        if features is not None and states is not None:
            features[index, : len(states)] = states
    return logits, features
