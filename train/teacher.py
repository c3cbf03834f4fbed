"""The target's distributions over a text, written to disk once. Where the target's forward is most of what distillation costs,
a draft can so go over the same text several times for little more than the price of one.

Of every distribution the ``LIKELIEST`` tokens are kept, in half precision, and all others are one bin: but for rounding, total
variation and divergence over these bins are at most the true ones. A token takes 512 bytes on disk.
"""

import json
import shutil
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


def write_text(own: TokenArray, books: TokenArray, path: Path) -> None:
    """The target's own text and as much of the books, one after the other."""
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_bytes(own.tobytes() + books[: len(own)].tobytes())
        partial.replace(path)


@torch.no_grad()
def keep_distributions(shop: Workshop, target: LlamaForCausalLM, path: Path) -> None:
    """Write, beside the text in ``path``, what ``target`` says of each of its windows; goes on where it was interrupted."""
    tokens, length = open_tokens(path), shop.recipe.sequence_length
    windows, kept = (len(tokens) - 1) // length, min(LIKELIEST, shop.recipe.vocab_size - 1)
    progress, shape = path.with_suffix(DONE), (windows, length, kept)
    needed = 4 * windows * length * kept
    done = json.loads(progress.read_text(encoding="utf-8")) if progress.exists() else 0
    if not done and needed > (free := shutil.disk_usage(path.parent).free):  # else a full disk would end the process unsaid
        raise TrainingError(f"{path.parent} has room for {free / 1e9:.1f} GB; what the target says takes {needed / 1e9:.1f} GB")
    mode: Literal["r+", "w+"] = "r+" if done else "w+"
    ids = np.memmap(path.with_suffix(IDS), np.uint16, mode, shape=shape)
    probs = np.memmap(path.with_suffix(PROBS), np.float16, mode, shape=shape)
    rows = max(1, shop.recipe.micro_tokens // length)
    for number, first in enumerate(tqdm(range(done, windows, rows), desc="teacher", unit=f"×{rows * length} tok"), 1):
        last = min(first + rows, windows)
        batch = torch.from_numpy(tokens[first * length : last * length].astype(np.int64)).view(-1, length)
        with half_precision(shop.device):
            logits = model_logits(target, batch.to(shop.device))
        values, indices = torch.softmax(logits.float(), -1).topk(kept, -1)
        ids[first:last], probs[first:last] = indices.cpu().numpy(), values.cpu().numpy()
        if last == windows or number % SAVE_EVERY == 0:
            ids.flush()
            probs.flush()
            save_json(last, progress)


class Lessons(TokenStream):
    """Endless windows over a text with what the target says of them, each epoch in a new random order."""

    def __init__(self, path: Path, length: int, seed: int) -> None:
        super().__init__(open_tokens(path), seed)
        self.length = length
        windows = (len(self.tokens) - 1) // length
        self.ids = np.memmap(path.with_suffix(IDS), np.uint16, "r").reshape(windows, length, -1)
        self.probs = np.memmap(path.with_suffix(PROBS), np.float16, "r").reshape(windows, length, -1)

    def next_batch(self, rows: int, length: int, device: torch.device) -> Lesson:  # type: ignore[override]
        if length != self.length:
            raise ValueError(f"the target was asked about windows of {self.length} tokens, not of {length}")
        starts = [self.next_start(length) for _ in range(rows)]
        tokens = np.stack([self.tokens[start : start + length] for start in starts]).astype(np.int64)
        windows = [start // length for start in starts]
        ids, probs = self.ids[windows].astype(np.int64), self.probs[windows].astype(np.float32)
        return Lesson(*(torch.from_numpy(array).to(device) for array in (tokens, ids, probs)))
