"""Rows of one llama.cpp context, each a sequence of its unified cache; rolling back removes
positions."""

import ctypes
import threading
from collections.abc import Callable, Sequence

import numpy as np
import torch

from naive_speculate.infer.gguf.library import Context, llama_cpp
from naive_speculate.infer.ragged_cache import BatchCache

_FIRST_CELLS = 512
_Entry = tuple[
    int, int, int, bool
]  # a token, its position, its row, and whether its logits are wanted


class GgufCache(BatchCache):
    """A cache whose keys and values are stored by llama.cpp, in a context that `new_context`
    makes for a number of tokens. Raises `ValueError` if there are more rows than llama.cpp has
    sequences."""

    def __init__(
        self, new_context: Callable[[int], Context], batch_size: int, vocab_size: int
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.lengths: list[int] = []
        self.add_rows(batch_size)
        self._new_context = new_context
        self._vocab_size = vocab_size
        self._library = llama_cpp()
        self._context = new_context(_FIRST_CELLS)
        self._lock = threading.Lock()

    def add_rows(self, count: int) -> None:
        """Add `count` rows; a `ValueError` if there are more than llama.cpp has sequences."""
        total = len(self.lengths) + count
        if total > Context.MAX_ROWS:
            raise ValueError(f"batch_size may be {Context.MAX_ROWS} in llama.cpp, got {total}")
        self.lengths += [0] * count

    def copy_row(self, source: int, destination: int) -> None:
        """Replace the tokens of `destination` by those of `source`; both share the stored
        states."""
        self.clear_row(destination)
        self._library.llama_memory_seq_cp(self._context.memory, source, destination, -1, -1)
        self.lengths[destination] = self.lengths[source]

    def keep(self, row: int, num_tokens: int) -> None:
        length = max(0, num_tokens)
        if length < self.lengths[row]:
            self._library.llama_memory_seq_rm(self._context.memory, row, length, -1)
            self.lengths[row] = length

    def trim(self) -> None:
        """Free memory if the rows need less than half of it."""
        wanted = sum(self.lengths) + _FIRST_CELLS
        if self._context.num_cells > 2 * wanted:
            self._move(wanted)

    def decode(
        self, rows: Sequence[int], query: Sequence[Sequence[int]], first: int
    ) -> torch.Tensor:
        """Compute and store tokens that follow those of these distinct rows. Returns the logits
        of each row's tokens from index `first` on, row after row, float32, shape `[num_logits,
        vocab_size]`. Raises `MemoryError` if memory is insufficient (the rows are unchanged),
        `RuntimeError` if llama.cpp fails."""
        entries: list[_Entry] = []
        for row, tokens in zip(rows, query, strict=True):
            start = self.lengths[row]
            entries += [
                (token, start + index, row, index >= first) for index, token in enumerate(tokens)
            ]
        with self._lock:
            needed = sum(self.lengths) + len(entries)
            if needed > self._context.num_cells:
                self._move(max(needed, self._context.num_cells * 3 // 2))
            begins = range(0, len(entries), Context.MAX_TOKENS)
            found = [
                self._compute(rows, entries[begin : begin + Context.MAX_TOKENS]) for begin in begins
            ]
            for row, tokens in zip(rows, query, strict=True):
                self.lengths[row] += len(tokens)
        return torch.cat(found)

    def _compute(self, rows: Sequence[int], entries: Sequence[_Entry]) -> torch.Tensor:
        """The logits of one call."""
        library, handle, count = self._library, self._context.handle, len(entries)
        tokens, positions, numbers, wanted = zip(*entries, strict=True)
        integers, pointers = ctypes.c_int32 * count, ctypes.POINTER(ctypes.c_int32) * count
        batch = library.llama_batch(
            n_tokens=count,
            token=integers(*tokens),
            pos=integers(*positions),
            n_seq_id=integers(*[1] * count),
            seq_id=pointers(*(ctypes.pointer(ctypes.c_int32(row)) for row in numbers)),
            logits=(ctypes.c_int8 * count)(*wanted),
        )
        status = library.llama_decode(handle, batch)
        if status != 0:
            for row in rows:
                library.llama_memory_seq_rm(self._context.memory, row, self.lengths[row], -1)
            raise RuntimeError(
                f"llama.cpp could not compute {count} tokens: llama_decode returned {status}"
            )
        if not any(wanted):
            return torch.empty(0, self._vocab_size)
        logits = library.llama_get_logits(handle)
        return torch.from_numpy(
            np.ctypeslib.as_array(logits, (sum(wanted), self._vocab_size))
        ).clone()

    def _move(self, num_cells: int) -> None:
        """Move all rows into a context of another size; nothing changes if memory is
        insufficient."""
        context, library = self._new_context(num_cells), self._library
        for row, length in enumerate(self.lengths):
            if not length:
                continue
            size = library.llama_state_seq_get_size(self._context.handle, row)
            state = (ctypes.c_uint8 * size)()
            library.llama_state_seq_get_data(self._context.handle, state, size, row)
            if library.llama_state_seq_set_data(context.handle, state, size, row) == 0:
                raise MemoryError(
                    f"llama.cpp could not move {length} tokens into a cache of {num_cells}"
                )
        self._context = context
