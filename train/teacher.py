"""The target's distributions over a text, written to disk once. Where the target's forward is most of what distillation costs,
a draft can so go over the same text several times for little more than the price of one.

Of every distribution the ``LIKELIEST`` tokens are kept, in half precision, and all others are one bin: but for rounding, total
variation and divergence over these bins are at most the true ones. A token takes 512 bytes on disk.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaForCausalLM

from train.data import TokenArray, TokenStream, open_tokens, save_json
from train.errors import TrainingError
from train.loop import model_logits
from train.pipeline import Workshop
from train.precision import half_precision

LIKELIEST = 128
SAVE_EVERY = 16  # batches
IDS, PROBS, DONE = ".ids", ".probs", ".json"


class Lesson(NamedTuple):
    """A batch, and what the target says of it."""

    tokens: Tensor  # (rows, length), int64
    likeliest: Tensor  # (rows, length, kept), int64: what the target holds likeliest to come next, at every place
    probs: Tensor  # (rows, length, kept), float32: their probabilities
    states: Tensor | None = None  # (rows, length, number of layers * hidden), float32, where a head reads them


def write_text(own: TokenArray, books: TokenArray, path: Path) -> None:
    """The target's own text and as much of the books, one after the other."""
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_bytes(own.tobytes() + books[: len(own)].tobytes())
        partial.replace(path)


def keep_distributions(shop: Workshop, target: LlamaForCausalLM, path: Path) -> None:
    """Write, beside the text in ``path``, what ``target`` says of each of its windows; goes on where it was interrupted."""
    kept = min(LIKELIEST, shop.recipe.vocab_size - 1)
    _ask(shop, path, {IDS: (np.uint16, kept), PROBS: (np.float16, kept)}, DONE, lambda batch: likeliest(target, batch))


def likeliest(target: LlamaForCausalLM, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The ``LIKELIEST`` tokens after each place, int64, and their probabilities, float32; ``(rows, length, kept)`` each."""
    probs = torch.softmax(model_logits(target, tokens).float(), -1)
    values, indices = probs.topk(min(LIKELIEST, probs.shape[-1] - 1), -1)
    return indices, values


def keep_states(shop: Workshop, target: LlamaForCausalLM, path: Path, layers: Sequence[int]) -> None:
    """The same with the target's hidden states after these layers, side by side."""
    suffix = states_suffix(layers)
    files = {suffix: (np.float16, len(layers) * target.config.hidden_size)}
    _ask(shop, path, files, suffix + DONE, lambda batch: (hidden_states(target, batch, layers),))


def states_suffix(layers: Sequence[int]) -> str:
    """What the file of the hidden states after these layers ends in."""
    return ".states-" + "-".join(map(str, layers))


def hidden_states(target: LlamaForCausalLM, tokens: Tensor, layers: Sequence[int]) -> Tensor:
    """``(rows, length, number of layers * hidden)``, float32."""
    states = target.model(input_ids=tokens, use_cache=False, output_hidden_states=True).hidden_states
    return torch.cat([states[layer] for layer in layers], -1).float()


@torch.no_grad()
def _ask(
    shop: Workshop,
    path: Path,
    files: Mapping[str, tuple[type[np.generic], int]],
    progress_suffix: str,
    answer: Callable[[Tensor], tuple[Tensor, ...]],
) -> None:
    """Write what ``answer`` gives for every place of the text's windows: a file each, by suffix, of a dtype and width."""
    tokens, length, progress = open_tokens(path), shop.recipe.sequence_length, path.with_suffix(progress_suffix)
    windows = (len(tokens) - 1) // length
    needed = windows * length * sum(np.dtype(dtype).itemsize * width for dtype, width in files.values())
    done = json.loads(progress.read_text(encoding="utf-8")) if progress.exists() else 0
    if not done and needed > (free := shutil.disk_usage(path.parent).free):  # else a full disk would end the process unsaid
        raise TrainingError(f"{path.parent} has room for {free / 1e9:.1f} GB; what the target says takes {needed / 1e9:.1f} GB")
    mode: Literal["r+", "w+"] = "r+" if done else "w+"
    tables = [
        np.memmap(path.with_suffix(suffix), dtype, mode, shape=(windows, length, width))
        for suffix, (dtype, width) in files.items()
    ]
    rows = max(1, shop.recipe.micro_tokens // length)
    for number, first in enumerate(tqdm(range(done, windows, rows), desc="teacher", unit=f"×{rows * length} tok"), 1):
        last = min(first + rows, windows)
        batch = torch.from_numpy(tokens[first * length : last * length].astype(np.int64)).view(-1, length)
        with half_precision(shop.device):
            found = answer(batch.to(shop.device))
        for table, values in zip(tables, found, strict=True):
            table[first:last] = values.cpu().numpy()
        if last == windows or number % SAVE_EVERY == 0:
            for table in tables:
                table.flush()
            save_json(last, progress)


class Lessons(TokenStream):
    """Endless windows over a text with what the target says of them, each epoch in a new random order.

    Args:
        path: The text's.
        length: Of a window.
        layers: After which the target's states come along; for none, without.
    """

    def __init__(self, path: Path, length: int, seed: int, layers: Sequence[int] = ()) -> None:
        tokens = open_tokens(path)
        count = (len(tokens) - 1) // length
        super().__init__(tokens, seed)
        self.length = length
        self.ids = np.memmap(path.with_suffix(IDS), np.uint16, "r").reshape(count, length, -1)
        self.probs = np.memmap(path.with_suffix(PROBS), np.float16, "r").reshape(count, length, -1)
        self.states: np.ndarray | None = None
        if layers:
            states = np.memmap(path.with_suffix(states_suffix(layers)), np.float16, "r")
            self.states = states.reshape(count, length, -1)

    def next_batch(self, rows: int, length: int, device: torch.device) -> Lesson:  # type: ignore[override]
        if length != self.length:
            raise ValueError(f"the target was asked about windows of {self.length} tokens, not of {length}")
        starts = [self.next_start(length) for _ in range(rows)]
        tokens = np.stack([self.tokens[start : start + length] for start in starts]).astype(np.int64)
        windows = [start // length for start in starts]
        arrays = [tokens, self.ids[windows].astype(np.int64), self.probs[windows].astype(np.float32)]
        arrays += [] if self.states is None else [self.states[windows].astype(np.float32)]
        return Lesson(*(torch.from_numpy(array).to(device) for array in arrays))
