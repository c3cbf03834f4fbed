"""Proposals: where a step's draft tokens come from. A new way to draft is one class here and a line in the registry."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import NamedTuple, Protocol

import torch

from naive_speculate.infer.inferencer import BasicInferencer
from naive_speculate.infer.slots import Slot, SlotPool, joint_view
from naive_speculate.infer.transfer import on_device
from naive_speculate.sampling.argmax import argmax
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.speculate.drafter import Drafter
from naive_speculate.speculate.rules import pick
from naive_speculate.speculate.sequence import Sequence


class Proposal(NamedTuple):
    """Draft windows of a batch.

    Attributes:
        token_ids: int64, shape `[batch_size, k]`; padded behind a row's length.
        probs: What they were drawn from, shape `[batch_size, k, vocab_size]`; one-hot where they are certain. None only where
            no sequence needs it (`Sequence.needs_probs`).
        lengths: Drafts in each row, 0 to k.
    """

    token_ids: torch.Tensor
    probs: torch.Tensor | None
    lengths: list[int]


class Proposer(Protocol):
    """Drafts for sequences."""

    def prefill(self, sequences: Seq[Sequence]) -> None:
        """Take in a chunk of what is long behind, the prompt above all, before a step is timed."""
        ...

    def ready(self, sequence: Sequence) -> bool:
        """Whether nothing is long behind."""
        ...

    def propose(self, sequences: Seq[Sequence], limits: list[int]) -> Proposal:
        """Draft at most `limits[row]` tokens for each sequence; every limit is positive."""
        ...


class ModelProposer:
    """Drafts with a draft model, in one batch.

    Args:
        pool: The draft model's slots.
        vocab_size: Number of token ids that target and draft share.
    """

    def __init__(self, pool: SlotPool, vocab_size: int) -> None:
        self.pool = pool
        self.vocab_size = vocab_size
        self._drafter = Drafter(BasicInferencer(pool.model))

    def prefill(self, sequences: Seq[Sequence]) -> None:
        """See `Proposer.prefill`."""
        behind = [s for s in sequences if not self.ready(s)]
        self.pool.feed([_draft_slot(s) for s in behind], [s.token_ids for s in behind])

    def ready(self, sequence: Sequence) -> bool:
        """See `Proposer.ready`."""
        return len(sequence.token_ids) - _draft_slot(sequence).num_tokens <= 2

    def propose(self, sequences: Seq[Sequence], limits: list[int]) -> Proposal:
        """See `Proposer.propose`."""
        if not self.pool.batched and len(sequences) > 1:
            parts = [self.propose([s], [limit]) for s, limit in zip(sequences, limits, strict=True)]
            return merge(parts, [[row] for row in range(len(parts))], self.vocab_size)
        slots = [_draft_slot(sequence) for sequence in sequences]
        query = self._queries(slots, sequences)
        sampler = _WindowSampler(sequences, limits, self.vocab_size)
        out = self._drafter.draft(query, joint_view(slots), max(limits), sampler)
        return Proposal(out.token_ids, sampler.stacked_probs(), sampler.lengths(out.token_ids))

    def _queries(self, slots: list[Slot], sequences: Seq[Sequence]) -> torch.Tensor:
        """The tokens that the draft model has not seen; as many for every row, so that all end in the same column."""
        behind = [len(s.token_ids) - slot.num_tokens for slot, s in zip(slots, sequences, strict=True)]
        widest = max((count for count in behind if count <= 2), default=1)
        if any(count > 2 or len(s.token_ids) < widest for count, s in zip(behind, sequences, strict=True)):
            widest = 1
        self.pool.catch_up(
            [slot for slot, count in zip(slots, behind, strict=True) if count > widest],
            [s.token_ids for s, count in zip(sequences, behind, strict=True) if count > widest],
        )
        for slot, sequence in zip(slots, sequences, strict=True):
            slot.keep(len(sequence.token_ids) - widest)  # a row that is further ahead sees one token again
        device = getattr(self.pool.model, "device", None)
        return on_device([s.token_ids[len(s.token_ids) - widest :] for s in sequences], device)


class PromptLookupProposer:
    """Drafts what followed the latest n-gram when it last occurred in prompt or output (prompt lookup, Saxena 2023).

    The proposal is a point mass, so verification stays lossless. Longest n-grams are tried first; without a match nothing
    is drafted.

    Args:
        vocab_size: Width of the probabilities.
        device: Where they are needed.
        max_ngram: Length of the longest n-gram.
    """

    def __init__(self, vocab_size: int, device: torch.device, max_ngram: int = 3) -> None:
        self.vocab_size = vocab_size
        self.device = device
        self.max_ngram = max_ngram

    def prefill(self, sequences: Seq[Sequence]) -> None:
        """Nothing to take in."""

    def ready(self, sequence: Sequence) -> bool:
        """Always."""
        return True

    def propose(self, sequences: Seq[Sequence], limits: list[int]) -> Proposal:
        """See `Proposer.propose`."""
        drafts = [_cut(self._look_up(s.token_ids)[:limit], s) for s, limit in zip(sequences, limits, strict=True)]
        width = max(map(len, drafts))
        token_ids = on_device([d + [0] * (width - len(d)) for d in drafts], self.device, torch.int64)
        probs = torch.nn.functional.one_hot(token_ids, self.vocab_size).float()
        return Proposal(token_ids, probs, [len(d) for d in drafts])

    def _look_up(self, token_ids: list[int]) -> list[int]:
        for size in range(min(self.max_ngram, len(token_ids) - 1), 0, -1):
            ngram = token_ids[-size:]
            for start in range(len(token_ids) - size - 1, -1, -1):
                if token_ids[start : start + size] == ngram:
                    return [t for t in token_ids[start + size :] if t < self.vocab_size]
        return []


DRAFTERS: dict[str, Callable[[SlotPool | None, int, torch.device], Proposer | None]] = {
    "model": lambda pool, vocab_size, device: None if pool is None else ModelProposer(pool, vocab_size),
    "prompt_lookup": lambda pool, vocab_size, device: PromptLookupProposer(vocab_size, device),
}
"""Drafters by name, made from the draft model's slots (if the pair has one), the vocabulary size and the device."""


class _WindowSampler:
    """The `TokenSampler` that drafts for a batch: each row by its own parameters, history and random source."""

    def __init__(self, sequences: Seq[Sequence], limits: list[int], vocab_size: int) -> None:
        self.sequences = sequences
        self.limits = limits
        self.vocab_size = vocab_size
        self.needs_probs = any(sequence.needs_probs for sequence in sequences)
        self.probs: list[torch.Tensor] = []
        self._pipelines = [sequence.pipeline for sequence in sequences]
        self._plain = all(pipeline.plain for pipeline in self._pipelines)
        self._greedy = all(sequence.greedy for sequence in sequences)
        self._adaptive = any(sequence.window.adaptive for sequence in sequences)
        self._needs_history = any(pipeline.needs_history for pipeline in self._pipelines)
        self._histories = [s.output_token_ids if s.pipeline.needs_history else [] for s in sequences]
        self._drafted: list[list[int]] = [[] for _ in sequences]
        self._ends: list[int | None] = [None] * len(sequences)

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """Draw one token a row; see `TokenSampler.sample`."""
        if logits.shape[-1] != self.vocab_size:
            logits = logits[:, : self.vocab_size]
        if self._plain:
            scores = in_float(logits)
        else:
            histories = [past + new for past, new in zip(self._histories, self._drafted, strict=True)]
            scores = batch_scores(self._pipelines, logits[:, None], histories)[:, 0]
        if not self.needs_probs:
            return argmax(scores)
        probs = usable_probabilities(self._pipelines, scores[:, None])[0][:, 0]
        self.probs.append(probs)
        if self._greedy:
            return argmax(scores)
        return torch.stack([self._draw(row, scores[row], probs[row]) for row in range(len(self.sequences))])

    def _draw(self, row: int, scores: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
        """One row's token. A row whose window has ended must not draw: its batch would change its later draws."""
        if self.sequences[row].greedy or self._ends[row] is not None or len(self.probs) > self.limits[row]:
            return argmax(scores)
        return self.sequences[row].random.categorical(probs)

    def is_done(self, token_ids: torch.Tensor) -> bool:
        """Whether every row's window has ended; see `TokenSampler.is_done`."""
        if token_ids.is_cuda and not self._adaptive and not self._needs_history:
            return False  # looking at the tokens would wait for the device; a window past a stop token is merely cut later
        confidences = pick(self.probs[-1], token_ids).tolist() if self._adaptive else [1.0] * len(token_ids)
        for row, (token, confidence) in enumerate(zip(token_ids.tolist(), confidences, strict=True)):
            self._drafted[row].append(token)
            if self._ends[row] is not None:
                continue
            sequence, count = self.sequences[row], len(self._drafted[row])
            if token in sequence.stop_token_ids or count >= self.limits[row] or not sequence.window.go_on(confidence):
                self._ends[row] = count
        return all(end is not None for end in self._ends)

    def stacked_probs(self) -> torch.Tensor | None:
        """All rows' distributions, shape `[batch_size, k, vocab_size]`."""
        return torch.stack(self.probs, dim=1) if self.needs_probs else None

    def lengths(self, token_ids: torch.Tensor) -> list[int]:
        """Drafts in each row."""
        width = token_ids.shape[1]
        return [
            min(width, limit) if end is None else min(end, limit) for end, limit in zip(self._ends, self.limits, strict=True)
        ]


def in_float(logits: torch.Tensor) -> torch.Tensor:
    """Logits in float32, or in float64 if they are."""
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


def batch_scores(
    pipelines: Seq[LogitsPipeline],
    logits: torch.Tensor,
    histories: Seq[list[int]],
    windows: Seq[list[int]] | None = None,
) -> torch.Tensor:
    """Each row's logits through its own pipeline, up to temperature; shape `[batch_size, places, vocab_size]` in and out."""
    logits = in_float(logits)
    if all(pipeline.plain for pipeline in pipelines):
        return logits
    windows = windows or [[] for _ in pipelines]
    rows = zip(pipelines, logits, histories, windows, strict=True)
    return torch.stack([p.scores(row, past, window) for p, row, past, window in rows])


def batch_probabilities(pipelines: Seq[LogitsPipeline], scores: torch.Tensor) -> torch.Tensor:
    """Each row's scores to probabilities; shape `[batch_size, places, vocab_size]` in and out."""
    first = pipelines[0]
    if all(pipeline.warp_key == first.warp_key for pipeline in pipelines):
        return first.probabilities(scores.flatten(0, 1)).view_as(scores)
    return torch.stack([pipeline.probabilities(row) for pipeline, row in zip(pipelines, scores, strict=True)])


def usable_probabilities(pipelines: Seq[LogitsPipeline], scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same where every place must have a distribution: one that has none, since every token is banned or a score is NaN or
    infinite, gets the uniform one. A draft may be drawn from that; of a target's place the second result says that it must not.

    Returns:
        tuple: The probabilities, and which places have their own: bool, shape `[batch_size, places]`.
    """
    probs = batch_probabilities(pipelines, scores)
    usable = ~probs[..., 0].isnan()
    return probs.nan_to_num_(nan=1 / probs.shape[-1]), usable


def merge(parts: Seq[Proposal], rows: Seq[list[int]], vocab_size: int) -> Proposal:
    """Put the proposals of groups of a batch together.

    Args:
        parts: One proposal a group.
        rows: The group's rows in the batch; together all of them.
        vocab_size: Width of the probabilities.
    """
    total = sum(map(len, rows))
    width = max(part.token_ids.shape[1] for part in parts)
    some = parts[0].token_ids
    token_ids = some.new_zeros(total, width)
    known = next((part.probs for part in parts if part.probs is not None), None)
    probs = None if known is None else known.new_zeros(total, width, vocab_size)
    lengths = [0] * total
    for part, members in zip(parts, rows, strict=True):
        k = part.token_ids.shape[1]
        token_ids[members, :k] = part.token_ids
        if probs is not None and part.probs is not None:
            probs[members, :k] = part.probs.to(probs.dtype)
        for member, length in zip(members, part.lengths, strict=True):
            lengths[member] = length
    return Proposal(token_ids, probs, lengths)


def check_proposal(name: str, proposal: Proposal, sequences: Seq[Sequence], limits: list[int], vocab_size: int) -> None:
    """Refuse what a drafter must not propose: always where its distributions are missing, for these cannot be made up; the rest
    once a sequence, since it waits for the device.

    Args:
        name: The drafter's.
        proposal: What it proposed for `sequences` within `limits`.
        vocab_size: Width of the probabilities.

    Raises:
        ValueError: Naming the drafter and what is wrong.
    """
    token_ids, probs, lengths = proposal
    if probs is None and any(length > 0 and not s.greedy for length, s in zip(lengths, sequences, strict=False)):
        raise ValueError(f"drafter {name!r} proposed with probs=None, which only greedy decoding can do without")
    if all(s.trusted for s in sequences):
        return
    batch_size, k = len(sequences), token_ids.shape[-1]
    _expect(name, "token_ids", token_ids, (batch_size, k), token_ids.dtype == torch.int64, "int64")
    if len(lengths) != batch_size or not all(0 <= n <= min(k, limit) for n, limit in zip(lengths, limits, strict=True)):
        raise ValueError(f"drafter {name!r} proposed lengths {lengths!r:.80} of k={k} within the limits {limits!r:.80}")
    if token_ids.numel() and not 0 <= int(token_ids.min()) <= int(token_ids.max()) < vocab_size:
        raise ValueError(
            f"drafter {name!r} proposed token {int(token_ids.max() if token_ids.min() >= 0 else token_ids.min())}, "
            f"outside the vocabulary of {vocab_size}"
        )
    if probs is not None:
        _expect(name, "probs", probs, (batch_size, k, vocab_size), probs.is_floating_point(), "floating point")
        for row, length in enumerate(lengths):
            sums = probs[row, :length].double().sum(dim=-1)
            rounding = max(1e-3, 2 * torch.finfo(probs.dtype).eps)
            if not bool(((sums - 1).abs() < rounding).all()) or bool((probs[row, :length] < 0).any()):
                raise ValueError(
                    f"drafter {name!r} proposed probs that are not probabilities: they sum to {sums.tolist()!r:.80}"
                )
            if not bool((pick(probs[row, :length], token_ids[row, :length]) > 0).all()):
                raise ValueError(f"drafter {name!r} proposed a token to which its own probs give 0")
    for sequence, length in zip(sequences, lengths, strict=True):
        sequence.trusted = sequence.trusted or length > 0


def _expect(name: str, field: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype_fits: bool, dtype: str) -> None:
    if tuple(tensor.shape) != shape or not dtype_fits:
        got = f"{list(tensor.shape)} of {tensor.dtype}"
        raise ValueError(f"drafter {name!r} must propose {field} of shape {list(shape)}, {dtype}, got {got}")


def _draft_slot(sequence: Sequence) -> Slot:
    assert sequence.draft_slot is not None
    return sequence.draft_slot


def _cut(draft: list[int], sequence: Sequence) -> list[int]:
    """The draft up to a stop token, or to where an adaptive window ends."""
    for place, token in enumerate(draft):
        if token in sequence.stop_token_ids or not sequence.window.go_on(1.0):
            return draft[: place + 1]
    return draft
