"""Conversations of which only tokens are kept: what a drafter reads and learns is computed by
the target while training."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from train.batches import HELD_OUT, HELD_OUT_BATCHES, Batch, Data, grouped
from train.data import likeliest

MIN_ANSWER = 8  # fewest answer tokens of a conversation
POOL = 32_768  # conversations that are sorted by length together


@dataclass
class Texts:
    """Conversations one after another: int32 `tokens`, whether each is an answer's, and where
    the conversations begin."""

    tokens: Tensor
    answers: Tensor
    starts: Tensor
    lengths: Tensor

    @classmethod
    def load(cls, path: Path) -> "Texts":
        """Read a file with these tensors."""
        try:
            return cls(**load_file(path))
        except (SafetensorError, TypeError) as error:
            raise ValueError(
                f"{path} is damaged: {error}; remove it to write conversations again"
            ) from None

    def conversation(self, number: int) -> tuple[Tensor, Tensor]:
        """Tokens of one conversation, and which are the answer's."""
        part = slice(start := int(self.starts[number]), start + int(self.lengths[number]))
        return self.tokens[part], self.answers[part]

    def prompt(self, number: int) -> list[int]:
        """The tokens of one conversation up to its answer."""
        tokens, answers = self.conversation(number)
        prompt: list[int] = tokens[: int(answers.int().argmax())].tolist()
        return prompt

    def chosen(self, numbers: Tensor) -> "Texts":
        """Some of the conversations."""
        lengths = self.lengths[numbers]
        starts = lengths.cumsum(0) - lengths
        first = torch.repeat_interleave(self.starts[numbers] - starts, lengths)
        index = first + torch.arange(len(first))
        return Texts(self.tokens[index], self.answers[index], starts, lengths)


def whole_conversations(tokens: Tensor, answers: Tensor, first: Tensor) -> Texts:
    """The conversations in rows, `[rows, steps]` each, that begin and end there and have an
    answer. `first`: first tokens."""
    steps, begins = tokens.shape[1], first.clone()
    begins[:, 0] = True  # the end of an earlier conversation, unless it is a first token
    at = begins.flatten().nonzero()[:, 0]
    lengths = torch.diff(at, append=torch.tensor([tokens.numel()]))
    counts = torch.cat([torch.zeros(1, dtype=torch.int64), answers.flatten().cumsum(0)])
    ended = (at + lengths) % steps != 0  # the row goes on with another one
    kept = first.flatten()[at] & ended & (counts[at + lengths] - counts[at] >= MIN_ANSWER)
    at, lengths = at[kept], lengths[kept]
    starts = lengths.cumsum(0) - lengths
    index = torch.repeat_interleave(at - starts, lengths) + torch.arange(int(lengths.sum()))
    return Texts(tokens.flatten()[index], answers.flatten()[index], starts, lengths)


def joined(texts: Sequence[Texts]) -> Texts:
    """All of them."""
    shifts = torch.tensor([0, *(len(each.tokens) for each in texts)]).cumsum(0)
    starts = torch.cat(
        [each.starts + int(shift) for each, shift in zip(texts, shifts, strict=False)]
    )
    parts = [
        torch.cat([getattr(each, name) for each in texts])
        for name in ("tokens", "answers", "lengths")
    ]
    return Texts(parts[0], parts[1], starts, parts[2])


class TextData(Data):
    """Data of texts. `layers`: the states of the target that are read."""

    def __init__(self, texts: Texts, target: Any, layers: Sequence[int]) -> None:
        self.texts, self.target, self.layers = texts, target, list(layers)
        self.device = target.device
        self.tokens, self.answers, self.starts = (
            x.to(self.device) for x in (texts.tokens, texts.answers, texts.starts)
        )
        # Conversations with the same prompt are all held out, or none is.
        numbers = torch.arange(len(texts.lengths))
        held_out = torch.tensor(
            [
                zlib.crc32(bytes(str(self.texts.prompt(n)), "ascii")) % HELD_OUT == 0
                for n in numbers.tolist()
            ]
        )
        if held_out.all() or not held_out.any():
            held_out = numbers == len(numbers) - 1
        self.for_training, self.kept_out = numbers[~held_out], numbers[held_out]

    def training(self, batch_tokens: int, seed: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed)
        order = self.for_training[torch.randperm(len(self.for_training), generator=generator)]
        groups = [group for pool in order.split(POOL) for group in self._groups(pool, batch_tokens)]
        for index in torch.randperm(len(groups), generator=generator).tolist():
            yield self._batch(groups[index])

    def held_out(self, batch_tokens: int) -> Iterator[Batch]:
        groups = self._groups(self.kept_out, batch_tokens)
        order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0))
        yield from (self._batch(groups[index]) for index in order[:HELD_OUT_BATCHES].tolist())

    def frequencies(self, vocab_size: int) -> Tensor:
        of_training = torch.ones(len(self.texts.lengths), dtype=torch.bool).index_fill_(
            0, self.kept_out, False
        )
        counted = self.texts.answers & of_training.repeat_interleave(self.texts.lengths)
        return torch.bincount(self.texts.tokens[counted].long(), minlength=vocab_size).float()

    def prompts(self) -> list[list[int]]:
        return [self.texts.prompt(number) for number in self.kept_out.tolist()]

    def _groups(self, numbers: Tensor, batch_tokens: int) -> list[Tensor]:
        return [
            numbers[group] for group in grouped(self.texts.lengths[numbers].tolist(), batch_tokens)
        ]

    def _batch(self, numbers: Tensor) -> Batch:
        lengths = self.texts.lengths[numbers].to(self.device)
        places = torch.arange(int(lengths.max()), device=self.device)
        real = places < lengths[:, None]
        index = torch.where(real, self.starts[numbers.to(self.device)][:, None] + places, 0)
        tokens = torch.where(real, self.tokens[index].long(), 0)
        # At position i a head predicts token i + 2, for which the target's distribution is that at
        # i + 1.
        rows, positions = (self.answers[index] & real)[:, 2:].nonzero(as_tuple=True)
        cache = self.target.new_cache(len(tokens))
        logits, states = self.target.forward(tokens, cache.all_rows(), layers=self.layers)
        top = self._likeliest(logits, rows, positions + 1)
        return Batch(tokens, states.float().clone(), rows, positions, *top)

    def _likeliest(self, logits: Tensor, rows: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and probabilities of the likeliest tokens at some places, some thousand at a time."""
        ids, probs = [], []
        for some, places in zip(rows.split(4096), positions.split(4096), strict=True):
            log_probs, best = likeliest(logits[some, places])
            ids.append(best)
            probs.append(log_probs.exp())
        return torch.cat(ids).clone(), torch.cat(probs).clone()
