"""Batches of conversations from the parts that `data.py` wrote, and what drafters learn from a
batch."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from train.data import parts

HELD_OUT = 25  # every 25th part, or conversation of texts, is held out, to measure
HELD_OUT_BATCHES = 12
VARIATION = 0.5  # weight of the total variation in the loss
STEP_DECAY = 0.8  # weight of a simulated step's loss, relative to the step before
POOL = 4  # parts whose conversations are mixed before they are sorted by length


@dataclass
class Batch:
    """Conversations side by side."""

    tokens: Tensor  # int64 `[rows, length]`, zeros after a conversation's end
    states: Tensor  # the target's hidden states at the tokens, float32 `[rows, length, layers * d]`
    # rows, positions: where the head predicts an answer's token: at `positions[n]` of `rows[n]`,
    # from the state there and the next token's embedding
    rows: Tensor
    positions: Tensor
    # top_ids, top_probs: the target's likeliest tokens for what is predicted there,
    # `[num_positions, likeliest]`
    top_ids: Tensor
    top_probs: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        return Batch(*(tensor.to(device) for tensor in vars(self).values()))

    def at(self, indices: Tensor) -> "Batch":
        """The same with some of its positions only."""
        chosen = (
            tensor[indices] for tensor in (self.rows, self.positions, self.top_ids, self.top_probs)
        )
        return Batch(self.tokens, self.states, *chosen)


def token_loss(logits: Tensor, batch: Batch, index_of: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy with the target's distribution, plus `VARIATION` times the total variation
    distance.

    A draft token is accepted with probability Σ min(p, q) (Leviathan et al. 2023, arXiv
    2211.17192, corollary 3.6), which is one minus that distance; cross-entropy learns faster at
    first.

    Args:
        logits: The drafter's, over the tokens that it can draft, `[num_positions, known]`.
        batch: The target's likeliest tokens at the same positions.
        index_of: Index among the known tokens of each of the target's, int64 `[vocab_size]`; -1
            for unknown ones.

    Returns:
        tuple: The mean loss; and the mean shares of drafts accepted at temperature 1 and at
            temperature 0, shape `[2]`.
    """
    index = index_of[batch.top_ids]
    log_q = torch.log_softmax(logits.float(), -1)
    known_log_q = log_q.gather(-1, index.clamp_min(0)).masked_fill(index < 0, 0.0)
    p = batch.top_probs.masked_fill(index < 0, 0.0)
    overlap = torch.minimum(p, known_log_q.exp()).sum(-1)
    loss = -(p * known_log_q).sum(-1) + VARIATION * (1 - overlap)
    greedy = logits.detach().argmax(-1) == index[:, 0]
    return loss.mean(), torch.stack([overlap.detach().mean(), greedy.float().mean()])


def loss_over_steps(losses: Mapping[int, Tensor]) -> Tensor:
    """The weighted mean of the losses of simulated steps, by the steps' numbers."""
    weights = {step: STEP_DECAY**step for step in losses}
    total = torch.stack([weights[step] * loss for step, loss in losses.items()]).sum()
    return total / sum(weights.values())


def indices_of(known: Tensor, vocab_size: int) -> Tensor:
    """The index among the `known` tokens of each of the target's, int64 `[vocab_size]`; -1 for
    unknown ones."""
    index = torch.full((vocab_size,), -1, dtype=torch.int64)
    return index.index_copy_(0, known, torch.arange(len(known)))


class Data(Protocol):
    """Conversations to train on and others to measure with."""

    def training(self, batch_tokens: int, seed: int) -> Iterator[Batch]:
        """All conversations to train on once, in random order, in batches of about so many
        tokens."""

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
    part, samples, at, top_at = load_file(path), [], 0, 0
    for length, start in zip(part["lengths"].tolist(), part["answer_starts"].tolist(), strict=True):
        num_tops = length - start + 1
        tops = slice(top_at, top_at + num_tops)
        piece = slice(at, at + length)
        samples.append(
            _Kept(
                part["tokens"][piece],
                part["states"][piece],
                start,
                part["top_ids"][tops],
                part["top_log_probs"][tops],
            )
        )
        at, top_at = at + length, top_at + num_tops
    return samples


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
    """The indices of conversations of these lengths, in groups of similar lengths, at most so
    many tokens with padding."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not groups or (len(groups[-1]) + 1) * lengths[index] > batch_tokens:
            groups.append([])
        groups[-1].append(index)
    return groups


def _joined(group: Sequence[_Kept]) -> Batch:
    tokens = pad_sequence([c.tokens.long() for c in group], batch_first=True)
    states = pad_sequence([c.states.float() for c in group], batch_first=True)
    rows, positions, ids, log_probs = [], [], [], []
    for row, c in enumerate(group):
        # At position i the head predicts token i + 2, for which the target's distribution is that
        # at i + 1.
        first = max(0, c.answer_start - 2)
        count = len(c.tokens) - 1 - first
        skipped = first + 1 - (c.answer_start - 1)
        rows.append(torch.full((count,), row))
        positions.append(torch.arange(first, first + count))
        ids.append(c.top_ids[skipped : skipped + count])
        log_probs.append(c.top_log_probs[skipped : skipped + count])
    joined = (
        torch.cat(rows),
        torch.cat(positions),
        torch.cat(ids).long(),
        torch.cat(log_probs).float().exp(),
    )
    return Batch(tokens, states, *joined)


class PartData(Data):
    """Data of a work folder's parts, which may grow."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def training(self, batch_tokens: int, seed: int) -> Iterator[Batch]:
        return batches(split(parts(self.work))[0], batch_tokens, seed)

    def held_out(self, batch_tokens: int) -> Iterator[Batch]:
        return islice(batches(split(parts(self.work))[1], batch_tokens, 0), HELD_OUT_BATCHES)

    def frequencies(self, vocab_size: int) -> Tensor:
        """The sums of the probabilities that the target gave each token."""
        counts = torch.zeros(vocab_size)
        for path in split(parts(self.work))[0]:
            part = load_file(path)
            counts.index_add_(
                0, part["top_ids"].flatten().long(), part["top_log_probs"].float().exp().flatten()
            )
        return counts

    def prompts(self) -> list[list[int]]:
        return [
            c.tokens[: c.answer_start].tolist()
            for path in split(parts(self.work))[1]
            for c in read_part(path)
        ]
