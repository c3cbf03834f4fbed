"""A view of some rows of a cache that several sequences share."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from naive_speculate.infer.dynamic_cache import check_crop
from naive_speculate.infer.protocols import BatchCache

C = TypeVar("C", bound=BatchCache)


class Rows(Generic[C]):
    """Distinct rows, in that order. `cache`: the whole cache; `indices`: the rows' numbers in it."""

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
        counts = [num_tokens_crop] * len(self.indices) if isinstance(num_tokens_crop, int) else num_tokens_crop
        lengths = self.lengths
        for length, count in zip(lengths, counts, strict=True):
            check_crop(count, length)
        for row, length, count in zip(self.indices, lengths, counts, strict=True):
            self.cache.keep(row, length - count)


class SharedCache:
    """What all caches with rows have in common; a subclass defines `rows` and `lengths` (see `BatchCache`)."""

    def all_rows(self: Any) -> Any:
        """All rows."""
        return self.rows(range(len(self.lengths)))

    def get_num_tokens(self: Any) -> int:
        """Number of tokens of the longest row."""
        return max(self.lengths)

    def crop(self, num_tokens_crop: int | Sequence[int]) -> None:
        """Remove the last tokens of every row; one number, or one per row (see `KVCache`)."""
        self.all_rows().crop(num_tokens_crop)
