"""A growing cache: the plain implementation of `KVCache`."""

from collections.abc import Sequence

import torch

from naive_speculate.infer.protocols import KVState


def check_crop(num_tokens_crop: int, num_tokens: int) -> None:
    """Raise a `ValueError` for a crop that is negative or larger than the cache."""
    if num_tokens_crop < 0:
        raise ValueError(f"num_tokens_crop must not be negative, got {num_tokens_crop}")
    if num_tokens_crop > num_tokens:
        raise ValueError(f"num_tokens_crop is {num_tokens_crop}, but the cache holds only {num_tokens} tokens")


def count_new(kv_states: Sequence[KVState], num_layers: int) -> int:
    """Number of tokens of an update. Raises `ValueError` if its number of layers differs from the cache's (`num_layers`, 0 if
    new), or layers differ in length."""
    if not kv_states:
        raise ValueError("kv_states is empty, expected one entry per layer")
    if num_layers and len(kv_states) != num_layers:
        raise ValueError(f"kv_states has {len(kv_states)} layers, the cache has {num_layers}")
    counts = {tensor.shape[2] for state in kv_states for tensor in state}
    if len(counts) != 1:
        raise ValueError(f"kv_states must have the same number of tokens in every layer, got {sorted(counts)}")
    return counts.pop()


class DynamicKVCache:
    """Keys and values of equally long rows, in buffers that double when full.

    `crop` only moves the end back, so rolling back is free; the next `update` overwrites the cropped states.
    """

    def __init__(self) -> None:
        self._buffers: list[list[torch.Tensor]] = []  # keys and values of each layer
        self._num_tokens = 0

    def update(self, kv_states: Sequence[KVState]) -> None:
        """Append the keys and values of new tokens, one `KVState` per layer. Raises `ValueError` if the number of layers
        differs from earlier updates, or shapes differ between layers."""
        total = self._num_tokens + count_new(kv_states, len(self._buffers))
        if not self._buffers:
            self._buffers = [[_buffer_like(new, total) for new in state] for state in kv_states]
        for buffers, state in zip(self._buffers, kv_states, strict=True):
            for index, new in enumerate(state):
                buffers[index] = _grown(buffers[index], self._num_tokens, total)
                buffers[index][:, :, self._num_tokens : total] = new
        self._num_tokens = total

    def get_kv_states(self) -> list[KVState]:
        """The stored keys and values (views), one entry per layer; `[]` before the first update."""
        return [KVState(*(buffer[:, :, : self._num_tokens] for buffer in buffers)) for buffers in self._buffers]

    def get_num_tokens(self) -> int:
        """Number of tokens stored."""
        return self._num_tokens

    def crop(self, num_tokens_crop: int) -> None:
        """Remove the last `num_tokens_crop` tokens; a `ValueError` if there are fewer."""
        check_crop(num_tokens_crop, self._num_tokens)
        self._num_tokens -= num_tokens_crop


def _buffer_like(states: torch.Tensor, num_tokens: int) -> torch.Tensor:
    batch_size, num_heads, _, head_dim = states.shape
    return states.new_empty(batch_size, num_heads, max(2 * num_tokens, 64), head_dim)


def _grown(buffer: torch.Tensor, used: int, needed: int) -> torch.Tensor:
    if needed <= buffer.shape[2]:
        return buffer
    grown = _buffer_like(buffer, needed)
    grown[:, :, :used] = buffer[:, :, :used]
    return grown
