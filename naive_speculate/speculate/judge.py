"""The verify part of a step, for rows of different parameters: distributions, dice, verdict, and the token drawn from it."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from naive_speculate.infer.device import on_device
from naive_speculate.sampling.argmax import argmax
from naive_speculate.sampling.arrays import Numbers, as_tensor
from naive_speculate.sampling.distributions import batch_scores, best_on_host, in_float, usable_probabilities, usable_scores
from naive_speculate.speculate.draft.proposal import Draft
from naive_speculate.speculate.rules import Verdict, count_leading
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.verify import GreedyVerifier, Verifier


class Distributions(NamedTuple):
    """What the target says at every place of the windows.

    Attributes:
        scores: Before temperature, shape `[batch_size, k + 1, vocab_size]`.
        probs: Same shape; None where the order of the scores is all that is asked for.
        num_places: int64, shape `[batch_size]`: how many places, from the first on, have a distribution; None where all have.
            Windows are judged up to there, and a row that keeps as many drafts has nothing to draw its next token from.
    """

    scores: torch.Tensor
    probs: torch.Tensor | None
    num_places: torch.Tensor | None

    @property
    def best_known(self) -> torch.Tensor:
        """Probabilities where there are any, else scores."""
        return self.scores if self.probs is None else self.probs


class Best(NamedTuple):
    """In place of `Distributions` where drafts are compared with the target's most probable tokens, no more is wanted, and the
    host has found them: each place's, `[batch_size][k + 1]`."""

    token_ids: list[list[int]]


class Decided(NamedTuple):
    """In place of a `Verdict`, what comes of such a comparison: how many drafts each row keeps, and the token after them."""

    num_accepted: list[int]
    next_token_ids: list[int]


def distributions(rows: Sequence[SequenceState], logits: Numbers, draft: Draft) -> Distributions | Best:
    """The target's distributions under each row's parameters; logits `[batch_size, k + 1, vocab_size]`."""
    pipelines = [row.pipeline for row in rows]
    scores: Numbers = logits if isinstance(logits, np.ndarray) else in_float(logits)
    if not all(pipeline.plain for pipeline in pipelines):
        windows = [window[:length] for window, length in zip(draft.as_lists(), draft.lengths, strict=True)]
        scores = batch_scores(pipelines, scores, [row.output_token_ids for row in rows], windows)
    if all(type(row.verifier) is GreedyVerifier and not row.needs_probs for row in rows):
        best = best_on_host(scores)
        if best is not None:
            return Best(best)
    scores = as_tensor(scores)
    if any(row.needs_probs for row in rows):
        probs, usable = usable_probabilities(pipelines, scores)
    else:
        probs, usable = None, usable_scores(scores)
    return Distributions(scores, probs, None if usable is None else count_leading(usable))


def uniforms(rows: Sequence[SequenceState], lengths: Sequence[int], p: Distributions | Best) -> list[list[float]]:
    """A uniform draw for each draft whose verifier wants one, by row; 0 elsewhere."""
    if isinstance(p, Best) or (k := p.scores.shape[1] - 1) == 0:
        return [[] for _ in rows]
    drawn = [length if row.verifier.needs_uniforms else 0 for row, length in zip(rows, lengths, strict=True)]
    draws = [[row.random.uniform() for _ in range(count)] for row, count in zip(rows, drawn, strict=True)]
    if p.best_known.dtype != torch.float64:
        draws = [[_rounded_down(draw) for draw in row] for row in draws]
    return [row + [0.0] * (k - len(row)) for row in draws]


def judge(rows: Sequence[SequenceState], p: Distributions | Best, draft: Draft, r: list[list[float]]) -> Verdict | Decided:
    """Each row's verifier on its window."""
    if isinstance(p, Best):
        _, num_accepted, next_token_ids = GreedyVerifier.compare(p.token_ids, draft.as_lists(), draft.lengths)
        return Decided(num_accepted, next_token_ids)
    k, device = draft.token_ids.shape[1], p.scores.device
    if k == 0:
        return _next_tokens(rows, p, draft)
    table, limits = on_device(r, device, p.best_known.dtype), on_device(draft.lengths, device)
    if p.num_places is not None:
        limits = torch.minimum(limits, p.num_places)
    places: dict[Verifier, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.verifier, []).append(place)
    verdicts = []
    for verifier, members in places.items():
        q = p.best_known[:, :k] if draft.probs is None else draft.probs
        given = (p.scores if verifier.greedy else p.best_known, q, draft.token_ids, table, limits)
        verdicts.append(verifier.judge(*(given if len(places) == 1 else [tensor[members] for tensor in given])))
    return verdicts[0] if len(verdicts) == 1 else _merge(verdicts, list(places.values()), p.scores.shape[-1])


def draw(rows: Sequence[SequenceState], verdict: Verdict | Decided) -> torch.Tensor | list[int]:
    """The token after each row's kept drafts, int64, shape `[batch_size]`; a list where the host has decided."""
    if isinstance(verdict, Decided):
        return verdict.next_token_ids
    known = verdict.next_token_ids
    if verdict.next_probs is None:
        assert known is not None
        return known
    drawn = verdict.drawn or [True] * len(rows)
    tokens = [
        row.random.categorical(verdict.next_probs[place]) if drawn[place] or known is None else known[place]
        for place, row in enumerate(rows)
    ]
    on_cpu = verdict.next_probs.device.type == "cpu"  # where a list costs less than `stack`, which nothing else in a step calls
    return on_device([int(token) for token in tokens]) if on_cpu else torch.stack(tokens)


def _next_tokens(rows: Sequence[SequenceState], p: Distributions, draft: Draft) -> Verdict:
    """Where nothing was drafted there is nothing to judge: the next token is the target's."""
    drawn = [not row.verifier.greedy for row in rows]
    best = None if all(drawn) else argmax(p.scores[:, 0])
    nothing = on_device([0] * len(rows), p.scores.device)
    return Verdict(nothing, p.best_known[:, 0] if any(drawn) else None, best, draft.token_ids, None, drawn)


def _rounded_down(draw: float) -> float:
    """A draw in float32, in which it is compared. The number nearest to one just below 1 would be 1, which refuses even a draft
    that is certain; rounded down, every comparison comes out as it would in float64."""
    mantissa, exponent = math.frexp(draw)
    return math.ldexp(math.floor(mantissa * 2**24), exponent - 24)


def _merge(verdicts: Sequence[Verdict], places: Sequence[list[int]], vocab_size: int) -> Verdict:
    """Verdicts of groups of a batch as one."""
    some = verdicts[0]
    total, k = sum(map(len, places)), some.accept_probs.shape[1]
    num_accepted, next_token_ids = some.num_accepted.new_zeros(total), some.num_accepted.new_zeros(total)
    accept_probs, thresholds = some.accept_probs.new_zeros(total, k), some.accept_probs.new_zeros(total, k)
    next_probs = some.accept_probs.new_zeros(total, vocab_size)
    drawn = [True] * total
    for verdict, members in zip(verdicts, places, strict=True):
        num_accepted[members] = verdict.num_accepted
        accept_probs[members] = verdict.accept_probs
        if verdict.next_probs is not None:
            next_probs[members] = verdict.next_probs
        if verdict.next_token_ids is not None:
            next_token_ids[members] = verdict.next_token_ids
        for member in members:
            drawn[member] = verdict.next_probs is not None
        if verdict.thresholds is not None:
            thresholds[members] = verdict.thresholds
    return Verdict(num_accepted, next_probs, next_token_ids, accept_probs, thresholds, drawn)
