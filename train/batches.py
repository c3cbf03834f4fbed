"""Batches of conversations from the parts that `data.py` wrote."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file
from torch import Tensor

from train.data import parts

HELD_OUT = 25  # every 25th part, or conversation of texts, is held out, to measure
HELD_OUT_BATCHES = 12
POOL = 4  # parts whose conversations are mixed before they are sorted by length


@dataclass
class Batch:
    """Conversations side by side."""

    tokens: Tensor  # int64 `[rows, length]`, zeros after a conversation's end
    states: Tensor  # the target's hidden states at the tokens, float32 `[rows, length, layers * d]`
    # rows, positions: where the head predicts an answer's token: at `positions[n]` of `rows[n]`, from the state there and the
    # next token's embedding
    rows: Tensor
    positions: Tensor
    # top_ids, top_probs: the target's likeliest tokens for what is predicted there, `[num_positions, likeliest]`
    top_ids: Tensor
    top_probs: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        return Batch(*(tensor.to(device) for tensor in vars(self).values()))

    def at(self, indices: Tensor) -> "Batch":
        """The same with some of its positions only."""
        chosen = (tensor[indices] for tensor in (self.rows, self.positions, self.top_ids, self.top_probs))
        return Batch(self.tokens, self.states, *chosen)


class Data(Protocol):
    """Conversations to train on and others to measure with."""

    def training(self, batch_tokens: int, seed: int) -> Iterator[Batch]:
        """All conversations to train on once, in random order, in batches of about so many tokens."""

    def held_out(self, batch_tokens: int) -> Iterator[Batch]:
        """Some conversations that are not trained on, always the same ones."""

    def frequencies(self, vocab_size: int) -> Tensor:
        """How much each token occurs in the answers, `[vocab_size]`."""

    def prompts(self) -> list[list[int]]:
        """Held-out conversations up to their answers."""


@dataclass
class _Kept:
    tokens: Tensor
    states: Tensor
    answer_start: int
    top_ids: Tensor
    top_log_probs: Tensor


def split(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Parts to train on, and parts to measure on."""
    held_out = list(paths[HELD_OUT - 1 :: HELD_OUT]) or list(paths[-1:])
    return [path for path in paths if path not in held_out] or list(paths), held_out


def read_part(path: Path) -> list[_Kept]:
    """A part's conversations."""
    part, found, at, top_at = load_file(path), [], 0, 0
    for length, start in zip(part["lengths"].tolist(), part["answer_starts"].tolist(), strict=True):
        num_tops = length - start + 1
        tops = slice(top_at, top_at + num_tops)
        piece = slice(at, at + length)
        found.append(
            _Kept(part["tokens"][piece], part["states"][piece], start, part["top_ids"][tops], part["top_log_probs"][tops])
        )
        at, top_at = at + length, top_at + num_tops
    return found


def batches(paths: Sequence[Path], batch_tokens: int, seed: int | None) -> Iterator[Batch]:
    """All conversations once, in batches of similar lengths; in random order with a seed."""
    order = list(paths)
    chooser = random.Random(seed)
    if seed is not None:
        chooser.shuffle(order)
    for at in range(0, len(order), POOL):
        kept = [conversation for path in order[at : at + POOL] for conversation in read_part(path)]
        groups = grouped([len(conversation.tokens) for conversation in kept], batch_tokens)
        if seed is not None:
            chooser.shuffle(groups)
        yield from (_joined([kept[index] for index in group]) for group in groups)


def grouped(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """The indices of conversations of these lengths, in groups of similar lengths, at most so many tokens with padding."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not groups or (len(groups[-1]) + 1) * lengths[index] > batch_tokens:
            groups.append([])
        groups[-1].append(index)
    return groups


def _joined(group: Sequence[_Kept]) -> Batch:
    length = max(len(c.tokens) for c in group)
    tokens = torch.zeros(len(group), length, dtype=torch.int64)
    states = torch.zeros(len(group), length, group[0].states.shape[1])
    rows, positions, ids, log_probs = [], [], [], []
    for row, c in enumerate(group):
        tokens[row, : len(c.tokens)] = c.tokens
        states[row, : len(c.tokens)] = c.states
        # At position i the head predicts token i + 2, for which the target's distribution is that at i + 1.
        first = max(0, c.answer_start - 2)
        count = len(c.tokens) - 1 - first
        skipped = first + 1 - (c.answer_start - 1)
        rows.append(torch.full((count,), row))
        positions.append(torch.arange(first, first + count))
        ids.append(c.top_ids[skipped : skipped + count])
        log_probs.append(c.top_log_probs[skipped : skipped + count])
    joined = torch.cat(rows), torch.cat(positions), torch.cat(ids).long(), torch.cat(log_probs).float().exp()
    return Batch(tokens, states, *joined)


class PartData:
    """Data of a work folder's parts, which may grow; see `Data`."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def training(self, batch_tokens: int, seed: int) -> Iterator[Batch]:
        """See `Data`."""
        return batches(split(parts(self.work))[0], batch_tokens, seed)

    def held_out(self, batch_tokens: int) -> Iterator[Batch]:
        """See `Data`."""
        return islice(batches(split(parts(self.work))[1], batch_tokens, 0), HELD_OUT_BATCHES)

    def frequencies(self, vocab_size: int) -> Tensor:
        """See `Data`: the probabilities that the target gave each token."""
        found = torch.zeros(vocab_size)
        for path in split(parts(self.work))[0]:
            part = load_file(path)
            found.index_add_(0, part["top_ids"].flatten().long(), part["top_log_probs"].float().exp().flatten())
        return found

    def prompts(self) -> list[list[int]]:
        """See `Data`."""
        return [c.tokens[: c.answer_start].tolist() for path in split(parts(self.work))[1] for c in read_part(path)]
