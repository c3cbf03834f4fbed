"""Tokens on disk (uint16, memory-mapped) and the order in which training reads them."""

import json
import random
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm

from train.config import END_OF_TEXT_ID

TokenArray = np.ndarray[tuple[int], np.dtype[np.uint16]]


def encode(passages: Iterable[str], tokenizer: Tokenizer) -> list[TokenArray]:
    """One token array for each passage, each ending with the end-of-text token."""
    arrays: list[TokenArray] = []
    rest = iter(tqdm(passages, desc="encode", unit=" passages"))
    while batch := list(islice(rest, 256)):
        found = tokenizer.encode_batch(batch, add_special_tokens=False)
        arrays += (np.array([*encoding.ids, END_OF_TEXT_ID], dtype=np.uint16) for encoding in found)
    return arrays


def write_tokens(arrays: Sequence[TokenArray], path: Path, seed: int) -> int:
    """Shuffle the passages, write them one after another, and return the number of tokens."""
    order = list(range(len(arrays)))
    random.Random(seed).shuffle(order)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        for index in order:
            arrays[index].tofile(file)
    partial.replace(path)
    return sum(len(array) for array in arrays)


def open_tokens(path: Path) -> TokenArray:
    return np.memmap(path, dtype=np.uint16, mode="r")


def save_json(value: object, path: Path) -> None:
    """Write whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


class TokenStream:
    """Endless windows over a token array, each epoch in a new random order.

    The place in the stream is one number, ``position`` (tokens read so far): the order of an epoch depends only on
    the seed, the epoch and the window length, so that a resumed run reads on where the interrupted one stopped.
    """

    def __init__(self, tokens: TokenArray, seed: int, position: int = 0) -> None:
        self.tokens = tokens
        self.seed = seed
        self.position = position
        self._order_key: tuple[int, int] | None = None
        self._order: np.ndarray = np.empty(0, dtype=np.int64)

    def next_start(self, length: int) -> int:
        """Where the next window begins."""
        count = (len(self.tokens) - 1) // length
        if count < 1:
            raise ValueError(f"{len(self.tokens)} tokens are too few for a window of {length} + 1")
        epoch, index = divmod(self.position // length, count)
        if self._order_key != (epoch, length):
            self._order_key = (epoch, length)
            self._order = np.random.default_rng((self.seed, epoch, length)).permutation(count)
        self.position += length
        return int(self._order[index]) * length

    def next_window(self, length: int) -> TokenArray:
        """The next ``length + 1`` tokens: inputs and, shifted by one, what is to be predicted."""
        start = self.next_start(length)
        return self.tokens[start : start + length + 1]

    def next_batch(self, rows: int, length: int, device: torch.device) -> Tensor:
        """``(rows, length + 1)`` int64 token ids."""
        windows = np.stack([self.next_window(length) for _ in range(rows)])
        return torch.from_numpy(windows.astype(np.int64)).to(device)
