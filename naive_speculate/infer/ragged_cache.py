"""Caches, and views of some of their rows, so that sequences are decoded as one batch.

New keys are written at each row's end, and a mask hides everything after it. So rolling back
only lowers a length: later keys are never attended to and are overwritten. (Zeroing rejected
keys is not enough: a zero key still gets softmax weight.)

- `KVState` is the keys and values of one layer, and `KVCache` the interface of a cache of them.
- `BatchCache` is the interface of a cache that sequences share, each with a row of its own.
- `Rows` is a view of some rows of any such cache, for the forwards of a step.
- `RaggedKVCache` holds keys and values of rows of different lengths, in one buffer per layer.
- `CacheRows` is a view of some of its rows, and a `KVCache`; also of a copy of another one.
- `TreeRows` is a view of one of its rows whose new tokens are the nodes of a tree.
- `DynamicKVCache` is a `KVCache` with equally long rows, as many as the first update has.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch

from naive_speculate.infer.device import Array, on_device

_STEP, _GROWTH = 64, 8  # attention reads the whole buffer, so that little of it may be spare
C = TypeVar("C", bound="BatchCache")
A = TypeVar("A", torch.Tensor, Array)


class KVState(NamedTuple):
    """Keys and values of one transformer layer.

    Attributes:
        keys, values: Shape `[batch_size, num_attention_heads, num_tokens, head_dim]`.
    """

    keys: torch.Tensor
    values: torch.Tensor


@runtime_checkable
class KVCache(Protocol):
    """Stores the keys and values of every layer, for the tokens that a model has processed."""

    def update(self, kv_states: Sequence[KVState]) -> None:
        """Append the keys and values of new tokens, one entry per layer; all tensors have the
        same shape."""

    def get_kv_states(self) -> list[KVState]:
        """The stored keys and values, one entry per layer; `[]` before the first update."""

    def get_num_tokens(self) -> int:
        """Number of tokens stored."""

    def crop(self, num_tokens_crop: int) -> None:
        """Remove the last `num_tokens_crop` tokens. Raises `ValueError` if it is negative or
        exceeds the number of stored tokens."""


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
        return list(map(self.cache.lengths.__getitem__, self.indices))

    def get_num_tokens(self) -> int:
        """Number of tokens of the longest row."""
        return max(self.lengths)

    def crop(self, num_tokens_crop: int | Sequence[int]) -> None:
        """Remove the last tokens; one number for all rows, or one per row (see `KVCache`)."""
        lengths, counts = self.lengths, num_tokens_crop
        if isinstance(counts, int):
            counts = [counts] * len(lengths)
        for length, count in zip(lengths, counts, strict=True):
            if count < 0:
                raise ValueError(f"num_tokens_crop must not be negative, got {count}")
            if count > length:
                raise ValueError(
                    f"num_tokens_crop is {count}, but the cache holds only {length} tokens"
                )
        for row, length, count in zip(self.indices, lengths, counts, strict=True):
            self.cache.keep(row, length - count)


def causal_mask(positions: A, keys: A, window: int | None = None) -> A:
    """Which keys, at positions `[num_keys]`, tokens at positions `[rows, num_new]` may attend to:
    bool, shape `[rows, 1, num_new, num_keys]`. All are tensors, or all are arrays. `window`:
    sliding window in tokens, the token itself included; None for full attention."""
    positions = positions[:, None, :, None]
    allowed = keys <= positions
    return allowed & (keys > positions - window) if window else allowed


class RaggedKVCache(BatchCache):
    """Keys and values of `batch_size` rows, each with its own length, in one buffer per layer.

    Buffers have shape `[batch_size, num_heads, capacity, head_dim]`; they are made by the first
    forward and grow when full. Values can be in parts: see `split_values`. `rows()` is a view of
    some rows.

    Args:
        batch_size: Number of rows.
        step: Initial capacity in tokens, and the least growth.
    """

    def __init__(self, batch_size: int, step: int = _STEP) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self.lengths: list[int] = [0] * batch_size
        self._step = step
        self.capacity = step
        self.value_parts = 1  # how many parts each value has in the buffers
        self.version = 0  # counts replacements of buffers, for users of their addresses
        self.checked_for: Any = None  # whose forward the buffers are known to fit

    def rows(self, rows: Sequence[int]) -> "CacheRows":
        return CacheRows(self, rows)

    def add_rows(self, count: int) -> None:
        """Add `count` empty rows, and trim."""
        self._replace(len(self.lengths) + count, self._trimmed)
        self.lengths.extend([0] * count)

    def copy_row(self, source: int, destination: int) -> None:
        length = self.lengths[source]
        for buffer in (*self._keys, *self._values):
            buffer[destination, :, :length] = buffer[source, :, :length]
        self.lengths[destination] = length

    def keep(self, row: int, num_tokens: int) -> None:
        self.lengths[row] = min(self.lengths[row], max(0, num_tokens))

    def keep_path(self, row: int, start: int, path: Sequence[int]) -> None:
        """Roll a row back to its first `start` tokens and those at the slots `path`, in
        ascending order."""
        if list(path) != list(range(start, start + len(path))):
            for buffer in (*self._keys, *self._values):
                buffer[row, :, start : start + len(path)] = buffer[row, :, list(path)]
        self.lengths[row] = start + len(path)

    def reserve(self, num_tokens: int) -> None:
        """Make the buffers at least `num_tokens` long."""
        if num_tokens > self.capacity:
            more = max(self._step, self.capacity // _GROWTH)
            self._replace(len(self.lengths), max(num_tokens, self.capacity + more))

    def trim(self) -> None:
        """Shrink the buffers if the rows need less than half of them."""
        if self._trimmed < self.capacity:
            self._replace(len(self.lengths), self._trimmed)

    @property
    def _trimmed(self) -> int:
        needed = max(self.lengths) + self._step
        return needed if self.capacity > 2 * needed else self.capacity

    def empty(self) -> None:
        """Remove all tokens and zero the buffers: masked attention would spread a number that is
        not finite."""
        self.lengths = [0] * len(self.lengths)
        for buffer in (*self._keys, *self._values):
            buffer.zero_()

    @torch.inference_mode(
        mode=False
    )  # buffers made in inference mode could not be written outside of it
    def _replace(self, num_rows: int, capacity: int) -> None:
        """Replace the buffers by ones of another size with the same tokens; unchanged if memory
        is insufficient."""
        replaced: list[list[torch.Tensor]] = []
        for buffers in (self._keys, self._values):
            replaced.append([])
            for old in buffers:
                new = torch.zeros(
                    num_rows,
                    old.shape[1],
                    capacity,
                    old.shape[3],
                    dtype=old.dtype,
                    device=old.device,
                )
                length = min(capacity, old.shape[2])
                new[: old.shape[0], :, :length] = old[:, :, :length]
                replaced[-1].append(new)
        self._keys, self._values = replaced
        self.capacity = capacity
        self.version += 1

    def split_values(self, parts: int) -> None:
        """Store each value as so many parts, as if each were of a head of its own: `[batch_size,
        num_heads * parts, capacity, head_dim / parts]`: threads share many products more evenly
        than few."""
        if parts != self.value_parts:
            with torch.inference_mode(mode=False):  # see `_replace`
                whole = [_join(values, self.value_parts) for values in self._values]
                self._values = [_split(values, parts).contiguous() for values in whole]
            self.value_parts = parts
            self.version += 1

    def layer(
        self, index: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The buffers of layer `index`, made on first use for states of shape `[rows, num_heads,
        num_tokens, head_dim]`."""
        if len(self._keys) <= index:
            with torch.inference_mode(mode=False):
                while len(self._keys) <= index:
                    of_values = _split(values, self.value_parts)
                    for buffers, like in ((self._keys, keys), (self._values, of_values)):
                        shape = (len(self.lengths), like.shape[1], self.capacity, like.shape[3])
                        buffers.append(torch.zeros(shape, dtype=like.dtype, device=like.device))
        return self._keys[index], self._values[index]

    def require(self, shape: Any, dtype: torch.dtype, device: torch.device) -> None:
        """Make the buffers for a model of this `LlamaShape`, if there are none. Raises
        `ValueError` if they belong to a model of another shape, dtype or device."""
        if not self._keys:
            like = torch.empty(
                len(self.lengths), shape.num_kv_heads, 0, shape.head_dim, dtype=dtype, device=device
            )
            self.layer(shape.num_layers - 1, like, like)
        keys = self._keys[0]
        own = (self.num_layers, keys.shape[1], keys.shape[3], keys.dtype, keys.device.type)
        of_model = (shape.num_layers, shape.num_kv_heads, shape.head_dim, dtype, device.type)
        if own != of_model:
            names = "layers, key heads, head width, dtype, device"
            raise ValueError(
                f"kv_cache belongs to another model: its {names} are {own}, this model's are"
                f" {of_model}"
            )

    def buffers(self) -> list[KVState]:
        """The whole buffers, one entry per layer."""
        return [KVState(*pair) for pair in zip(self._keys, self._values, strict=True)]

    @property
    def num_layers(self) -> int:
        """Number of layers with buffers."""
        return len(self._values)

    def update(self, kv_states: Sequence[KVState]) -> None:
        """Append new tokens to every row (see `KVCache`)."""
        self.all_rows().update(kv_states)

    def get_kv_states(self) -> list[KVState]:
        """All rows' keys and values, up to the longest row (see `KVCache`)."""
        return self.all_rows().get_kv_states()


class CacheRows(Rows["RaggedKVCache"]):
    """Some rows of a `RaggedKVCache`, as a `KVCache`.

    A model's forward over n query tokens uses `positions(n)`, calls `write(layer, keys, values)`
    for each layer, attends to the result under `mask(n)`, and calls `advance(n)`.
    """

    branches = False  # whether tokens do not attend to all before them: see `TreeRows`
    copied: KVCache | None = None  # whose states these rows have

    @staticmethod
    def of(kv_cache: Any, batch_size: int) -> "CacheRows":
        """The rows of a cache, for a forward. The states of a `KVCache` of another class are
        copied, and `advance` gives it the new ones. Raises `ValueError` if it is no cache, or has
        another number of rows."""
        if isinstance(kv_cache, CacheRows):
            rows = kv_cache
        elif isinstance(kv_cache, DynamicKVCache):
            rows = kv_cache.all_rows(batch_size)
        elif isinstance(kv_cache, RaggedKVCache):
            rows = kv_cache.all_rows()
        elif isinstance(kv_cache, KVCache):
            rows = CacheRows._copy(kv_cache, batch_size)
        else:
            raise ValueError(f"kv_cache must be a KVCache, got {type(kv_cache).__name__}")
        if len(rows.indices) != batch_size:
            raise ValueError(
                f"query_token_ids has {batch_size} rows, kv_cache has {len(rows.indices)}"
            )
        return rows

    @staticmethod
    def _copy(kv_cache: KVCache, batch_size: int) -> "CacheRows":
        states = kv_cache.get_kv_states()
        rows = RaggedKVCache(len(states[0].keys) if states else batch_size).all_rows()
        if states:
            rows.update(states)
        rows.copied = kv_cache
        return rows

    @property
    def contiguous(self) -> bool:
        """Whether the rows' numbers are consecutive, so that they are a slice of the buffers."""
        first, count = self.indices[0], len(self.indices)
        return count == 1 or self.indices == list(range(first, first + count))

    def positions(self, num_new: int, device: torch.device | None = None) -> torch.Tensor:
        """Positions of the next `num_new` tokens, int64, shape `[rows, num_new]`."""
        lengths = list(map(self.cache.lengths.__getitem__, self.indices))
        starts = torch.tensor(lengths) if device is None else on_device(lengths, device)
        return starts[:, None] + torch.arange(num_new, device=device)

    def mask(
        self, num_new: int, device: torch.device | None = None, window: int | None = None
    ) -> torch.Tensor:
        """The stored tokens that each new one may attend to, once all are written: bool, shape
        `[rows, 1, num_new, longest + num_new]`; see `causal_mask`."""
        lengths = self.cache.lengths
        longest = max(map(lengths.__getitem__, self.indices))
        keys = torch.arange(longest + num_new, device=device)
        return causal_mask(self.positions(num_new, device), keys, window)

    def host_layout(
        self, num_new: int, num_keys: int, windows: Sequence[int | None]
    ) -> tuple[Array, list[Array]]:
        """`positions`, and for each window a `mask` of so many keys, as arrays: on the CPU they
        take less than half of the time that tensors take."""
        positions = np.array(self.lengths)[:, None] + np.arange(num_new)
        keys = np.arange(num_keys)
        return positions, [causal_mask(positions, keys, window) for window in windows]

    def write(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store a layer's new keys and values, `[rows, num_heads, num_new, head_dim]`, after
        each row's end; the end does not move. Returns all to attend to, `[rows, num_heads,
        longest + num_new, head_dim]`; where the rows are consecutive, keys and unsplit values are
        views of the buffers."""
        lengths, num_new, parts = self.lengths, keys.shape[2], self.cache.value_parts
        end = max(lengths) + num_new
        self.cache.reserve(end)
        first, last = self.indices[0], self.indices[-1] + 1
        out = []
        buffers = self.cache.layer(layer, keys, values)
        for buffer, new in zip(buffers, (keys, _split(values, parts)), strict=True):
            rows = slice(first, last) if self.contiguous else on_device(self.indices, new.device)
            if self.contiguous and min(lengths) == max(lengths):
                buffer[rows, :, lengths[0] : end] = new
            else:
                at = on_device(self.indices, new.device)[:, None]
                buffer[at, :, self.positions(num_new, new.device)] = new.transpose(1, 2)
            out.append(buffer[rows, :, :end])
        return out[0], _join(out[1], parts)

    def advance(self, num_new: int) -> None:
        """Move every row's end past the tokens just written."""
        for row in self.indices:
            self.cache.lengths[row] += num_new
        if self.copied is not None:
            self.give(num_new)

    def give(self, num_new: int) -> None:
        """Give the last tokens to the cache whose states were copied, if there is one."""
        if self.copied is not None:
            new = [[part[:, :, -num_new:] for part in state] for state in self.get_kv_states()]
            self.copied.update([KVState(*parts) for parts in new])

    def update(self, kv_states: Sequence[KVState]) -> None:
        """Append new tokens to every row (see `KVCache`)."""
        num_new = _count_new(kv_states, self.cache.num_layers)
        for layer, (keys, values) in enumerate(kv_states):
            self.write(layer, keys, values)
        self.advance(num_new)

    def get_kv_states(self, layers: Sequence[int] | None = None) -> list[KVState]:
        """The rows' keys and values up to the longest row, of these layers or all; values after
        a shorter row's end are undefined."""
        end, rows, buffers = self.get_num_tokens(), self.indices, self.cache.buffers()
        at: Any = slice(rows[0], rows[0] + len(rows)) if self.contiguous else rows
        chosen = buffers if layers is None else [buffers[layer] for layer in layers]
        parts = self.cache.value_parts
        return [
            KVState(keys[at, :, :end], _join(values[at, :, :end], parts)) for keys, values in chosen
        ]


class TreeRows(CacheRows):
    """One row, a text with the nodes of a tree after it: a node attends to the text, its
    ancestors and itself, and has the position of its own continuation.

    Args:
        cache: The cache.
        row: The row's number.
        trunk: Number of tokens of the text.
        parents: For each node its parent's index, which is lower; -1 for the text.
    """

    branches = True

    def __init__(self, cache: RaggedKVCache, row: int, trunk: int, parents: Sequence[int]) -> None:
        super().__init__(cache, [row])
        self._trunk = trunk
        self._depths: list[int] = []
        self._visible = np.eye(len(parents), dtype=bool)
        for node, parent in enumerate(parents):
            self._depths.append(0 if parent < 0 else self._depths[parent] + 1)
            if parent >= 0:
                self._visible[node] |= self._visible[parent]

    def positions(self, num_new: int, device: torch.device | None = None) -> torch.Tensor:
        """See `CacheRows.positions`."""
        positions, _ = self.host_layout(num_new, self.lengths[0] + num_new, [])
        return on_device(positions.tolist(), device)

    def mask(
        self, num_new: int, device: torch.device | None = None, window: int | None = None
    ) -> torch.Tensor:
        """See `CacheRows.mask`."""
        _, masks = self.host_layout(num_new, self.lengths[0] + num_new, [window])
        return torch.from_numpy(masks[0]).to(device or torch.device("cpu"))

    def host_layout(
        self, num_new: int, num_keys: int, windows: Sequence[int | None]
    ) -> tuple[Array, list[Array]]:
        """See `CacheRows.host_layout`."""
        first = self.lengths[0] - self._trunk
        end, depths = first + num_new, np.array(self._depths)
        positions = self._trunk + depths[first:end]
        visible = np.zeros((1, 1, num_new, num_keys), bool)
        visible[..., : self._trunk] = True
        visible[..., self._trunk : self._trunk + end] = self._visible[first:end, :end]
        keys = np.arange(num_keys)
        keys[self._trunk : self._trunk + end] = self._trunk + depths[:end]
        near = [
            True if window is None else keys > positions[:, None] - window for window in windows
        ]
        return positions[None], [visible & each for each in near]


class DynamicKVCache(RaggedKVCache):
    """Keys and values of equally long rows, as many as the first update has."""

    def __init__(self) -> None:
        super().__init__(1)

    def all_rows(self, batch_size: int | None = None) -> CacheRows:
        """All rows; an empty cache first takes their number, `batch_size`."""
        if (
            batch_size is not None and not self.get_num_tokens()
        ):  # new, rolled back, or its first forward has failed
            self.lengths, self._keys, self._values = [0] * batch_size, [], []
            self.value_parts = 1
            self.version += 1
            self.checked_for = None
        return super().all_rows()

    def update(self, kv_states: Sequence[KVState]) -> None:
        """Append the keys and values of new tokens, one `KVState` per layer. Raises `ValueError`
        if the number of layers or rows differs from earlier updates, or shapes differ between
        layers."""
        _count_new(kv_states, 0)
        rows, batch_size = self.all_rows(len(kv_states[0].keys)), len(kv_states[0].keys)
        if len(rows.indices) != batch_size:
            raise ValueError(f"kv_states has {batch_size} rows, the cache has {len(rows.indices)}")
        rows.update(kv_states)


def _split(values: torch.Tensor, parts: int) -> torch.Tensor:
    """See `RaggedKVCache.split_values`."""
    if parts == 1:
        return values
    return values.unflatten(-1, (parts, -1)).movedim(-2, 2).flatten(1, 2)


def _join(values: torch.Tensor, parts: int) -> torch.Tensor:
    """The values `[batch_size, num_heads, num_tokens, head_dim]`, of their parts."""
    if parts == 1:
        return values
    return values.unflatten(1, (-1, parts)).movedim(2, -2).flatten(-2)


def _count_new(kv_states: Sequence[KVState], num_layers: int) -> int:
    """Number of tokens of an update. Raises `ValueError` if its number of layers differs from
    the cache's (`num_layers`, 0 if new), or layers differ in length."""
    if not kv_states:
        raise ValueError("kv_states is empty, expected one entry per layer")
    if num_layers and len(kv_states) != num_layers:
        raise ValueError(f"kv_states has {len(kv_states)} layers, the cache has {num_layers}")
    counts = {tensor.shape[2] for state in kv_states for tensor in state}
    if len(counts) != 1:
        raise ValueError(
            f"kv_states must have the same number of tokens in every layer, got {sorted(counts)}"
        )
    return counts.pop()
