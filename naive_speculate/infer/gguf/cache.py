"""Rows of one llama.cpp context, each a sequence of its unified cache; rolling back removes positions."""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from naive_speculate.infer.gguf.library import Context, llama_cpp
from naive_speculate.infer.rows import BatchCache

_FIRST_CELLS = 512


class GgufCache(BatchCache):
    """A cache whose keys and values are stored by llama.cpp, in a context that `new_context` makes for a number of
    tokens. Raises `ValueError` if there are more rows than llama.cpp has sequences."""

    def __init__(self, new_context: Callable[[int], Context], batch_size: int, vocab_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.lengths: list[int] = []
        self.add_rows(batch_size)
        self._new_context = new_context
        self._vocab_size = vocab_size
        self._library = llama_cpp()
        self._batch = _Batch(Context.MAX_TOKENS)
        self._context = new_context(_FIRST_CELLS)
        self._lock = threading.Lock()

    def add_rows(self, count: int) -> None:
        """Add `count` rows; a `ValueError` if there are more than llama.cpp has sequences."""
        total = len(self.lengths) + count
        if total > Context.MAX_ROWS:
            raise ValueError(f"batch_size may be {Context.MAX_ROWS} in llama.cpp, got {total}")
        self.lengths += [0] * count

    def copy_row(self, source: int, destination: int) -> None:
        """Replace the tokens of `destination` by those of `source`; both share the stored states."""
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

    def empty(self) -> None:
        """Remove all tokens, so that the cache can be used again."""
        self.lengths = [0]
        self._library.llama_memory_clear(self._context.memory, False)

    @property
    def num_cells(self) -> int:
        """Capacity in tokens."""
        return self._context.num_cells

    def decode(self, rows: Sequence[int], query: Sequence[Sequence[int]], num_logits: int) -> torch.Tensor:
        """Compute and store tokens that follow the rows' own, the same number for each of these distinct rows. Returns the
        logits of the last `num_logits` tokens, float32, shape `[rows * num_logits, vocab_size]`. Raises `MemoryError` if memory
        is insufficient (the rows are unchanged), `RuntimeError` if llama.cpp fails."""
        num_new = len(query[0])
        first_wanted = num_new - num_logits
        with self._lock:
            needed = sum(self.lengths) + len(rows) * num_new
            if needed > self._context.num_cells:
                self._move(max(needed, self._context.num_cells * 3 // 2))
            if len(rows) * num_new <= Context.MAX_TOKENS:
                batch = self._batch
                for index, row in enumerate(rows):
                    batch.put(index * num_new, query[index], row, self.lengths[row], first_wanted)
                logits = self._compute(rows, len(rows) * num_new, len(rows) * num_logits)
            else:
                found = [self._row(rows, row, tokens, first_wanted) for row, tokens in zip(rows, query, strict=True)]
                logits = torch.cat(found)
            for row in rows:
                self.lengths[row] += num_new
        return logits

    def _row(self, rows: Sequence[int], row: int, tokens: Sequence[int], first_wanted: int) -> torch.Tensor:
        """The tokens of one row, in several calls if needed."""
        found = []
        for begin in range(0, len(tokens), Context.MAX_TOKENS):
            part = tokens[begin : begin + Context.MAX_TOKENS]
            self._batch.put(0, part, row, self.lengths[row] + begin, first_wanted - begin)
            found.append(self._compute(rows, len(part), min(len(part), max(0, begin + len(part) - first_wanted))))
        return torch.cat(found)

    def _compute(self, rows: Sequence[int], num_tokens: int, num_outputs: int) -> torch.Tensor:
        library, handle = self._library, self._context.handle
        status = library.llama_decode(handle, self._batch.of(num_tokens))
        if status != 0:
            for row in rows:
                library.llama_memory_seq_rm(self._context.memory, row, self.lengths[row], -1)
            raise RuntimeError(f"llama.cpp could not compute {num_tokens} tokens: llama_decode returned {status}")
        if num_outputs == 0:
            return torch.empty(0, self._vocab_size)
        logits = library.llama_get_logits(handle)
        return torch.from_numpy(np.ctypeslib.as_array(logits, (num_outputs, self._vocab_size))).clone()

    def _move(self, num_cells: int) -> None:
        """Move all rows into a context of another size; nothing changes if memory is insufficient."""
        context, library = self._new_context(num_cells), self._library
        for row, length in enumerate(self.lengths):
            if not length:
                continue
            size = library.llama_state_seq_get_size(self._context.handle, row)
            state = (ctypes.c_uint8 * size)()
            library.llama_state_seq_get_data(self._context.handle, state, size, row)
            if library.llama_state_seq_set_data(context.handle, state, size, row) == 0:
                raise MemoryError(f"llama.cpp could not move {length} tokens into a cache of {num_cells}")
        self._context = context


class _Batch:
    """A `llama_batch` that is filled for every call."""

    def __init__(self, size: int) -> None:
        self._tokens, self._positions, self._rows, self._ones = (np.ones(size, np.int32) for _ in range(4))
        self._wanted = np.zeros(size, np.int8)
        each = range(self._rows.ctypes.data, self._rows.ctypes.data + self._rows.nbytes, self._rows.itemsize)
        self._row_pointers = (ctypes.c_void_p * size)(*each)
        self._batch = llama_cpp().llama_batch()
        for name, values in (("token", self._tokens), ("pos", self._positions), ("n_seq_id", self._ones)):
            setattr(self._batch, name, values.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)))
        self._batch.seq_id = ctypes.cast(self._row_pointers, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)))
        self._batch.logits = self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))
        self._counting = np.arange(size, dtype=np.int32)

    def put(self, begin: int, tokens: Sequence[int], row: int, position: int, first_wanted: int) -> None:
        """Write a row's tokens from index `begin` on; logits are computed from token `first_wanted` on."""
        end = begin + len(tokens)
        self._tokens[begin:end] = tokens
        self._positions[begin:end] = self._counting[: len(tokens)] + position
        self._rows[begin:end] = row
        self._wanted[begin:end] = 0
        self._wanted[begin + max(0, first_wanted) : end] = 1

    def of(self, num_tokens: int) -> Any:
        """The first `num_tokens` tokens, in the form of `llama_decode`."""
        self._batch.n_tokens = num_tokens
        return self._batch
