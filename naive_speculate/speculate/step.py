"""Speculative decoding: one step of Algorithm 1 of Leviathan et al. 2023 (arXiv 2211.17192), for
a batch.

`step` is the algorithm; the functions after it are its lines, for rows of different parameters.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import torch

from naive_speculate.infer.device import on_device
from naive_speculate.sampling.pipeline import batch_probabilities, batch_scores
from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.rules import Verdict, Verifier, best, count_leading
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.tree import JudgedTree

Propose = Callable[[Sequence[SequenceState]], Proposal]  # see `Runner.propose`
# see `Runner.score`
Score = Callable[[Sequence[SequenceState], Proposal], tuple[torch.Tensor, torch.Tensor | None]]


class Distributions(NamedTuple):
    """The target's distributions at every index of the windows."""

    scores: torch.Tensor  # before temperature, shape `[batch_size, k + 1, vocab_size]`
    probs: torch.Tensor | None  # same shape; None where only the order of the scores is needed
    # int64, shape `[batch_size]`: the leading indices that have a distribution. Only these are
    # judged. If all of them are accepted, no distribution is left for the next token, and the row
    # ends with an error
    num_usable: torch.Tensor

    @property
    def best_known(self) -> torch.Tensor:
        """Probabilities where there are any, else scores."""
        return self.scores if self.probs is None else self.probs

    def judged_lengths(self, draft: Proposal) -> torch.Tensor:
        """How many drafts of each row can be judged, int64, shape `[batch_size]`."""
        return torch.minimum(on_device(draft.lengths, self.scores.device), self.num_usable)


class Step(NamedTuple):
    """The result of a step, still on the device. `outcomes_of` derives everything else from it."""

    draft: Proposal  # the draft windows
    logits: torch.Tensor  # the target's, shape `[batch_size, k + 1, vocab_size]`
    # hidden states of the target at the same tokens; see `Runner.score`
    features: torch.Tensor | None
    p: Distributions  # the target's distributions
    r: torch.Tensor  # the uniform draws, float64, shape `[batch_size, k]`
    verdict: Verdict  # what the verifiers decided
    # the token after each row's accepted drafts, int64, shape `[batch_size]`
    next_token_ids: torch.Tensor
    # of a single row that drafts trees; its window is the path that was followed
    tree: JudgedTree | None = None


def step(rows: Sequence[SequenceState], propose: Propose, score: Score) -> Step:
    """Make one speculative step for every row, each with its own parameters, window and random
    source; the models have prefilled them. Plain autoregressive decoding is the same with γ = 0."""
    draft = propose(rows)  # x₁ … x_γ ~ q₁ … q_γ, each row its own γ
    logits, features = score(rows, draft)  # the target over x₁ … x_γ, in one forward
    p = distributions(rows, logits, draft)  # p₁ … p_{γ+1}, after temperature, top-p and the rest
    r = uniforms(rows, draft, p)  # r₁ … r_γ ~ U(0, 1)
    # n accepted: rᵢ < pᵢ(xᵢ) / qᵢ(xᵢ);  p' = norm(max(0, p_{n+1} − q_{n+1}))
    verdict = judge(rows, p, draft, r)
    next_token_ids = draw_next(rows, verdict)  # t ~ p', or t ~ p_{γ+1} if all are accepted
    return Step(draft, logits, features, p, r, verdict, next_token_ids)


def distributions(
    rows: Sequence[SequenceState], logits: torch.Tensor, draft: Proposal
) -> Distributions:
    """The target's distributions under each row's parameters; logits `[batch_size, k + 1,
    vocab_size]`."""
    pipelines = [row.pipeline for row in rows]
    windows = draft.windows() if any(pipeline.needs_history for pipeline in pipelines) else None
    scores = batch_scores(pipelines, logits, [row.output_token_ids for row in rows], windows)
    if any(row.needs_probs for row in rows):
        probs, usable = batch_probabilities(pipelines, scores)
    else:
        probs, usable = None, scores.amax(dim=-1).isfinite()
    return Distributions(scores, probs, count_leading(usable))


def uniforms(rows: Sequence[SequenceState], draft: Proposal, p: Distributions) -> torch.Tensor:
    """What decides about each draft, else 0: a uniform draw below 1, or the target's own draw;
    float64, on MPS float32, `[batch_size, k]`."""
    k, device = draft.token_ids.shape[1], draft.token_ids.device
    dtype = torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64
    most = 1 - (2**-24 if dtype == torch.float32 else 2**-53)  # more would round to 1
    draws = [
        [min(row.random.uniform(), most) for _ in range(length)]
        if row.verifier.needs_uniforms
        else own_draws(index, row, draft, p)
        for index, (row, length) in enumerate(zip(rows, draft.lengths, strict=True))
    ]
    return on_device([row + [0.0] * (k - len(row)) for row in draws], device, dtype)


def own_draws(index: int, row: SequenceState, draft: Proposal, p: Distributions) -> list[float]:
    """The target's own draws, if the row's verifier compares drafts with them. They end at the
    first that differs, where plain decoding would continue with the same random source."""
    found: list[float] = []
    if row.verifier.matches_draws and draft.lengths[index]:
        length = int(p.judged_lengths(draft)[index])
        for token, probs in zip(draft.token_ids[index, :length], p.best_known[index], strict=False):
            found.append(int(row.random.categorical(probs)))
            if found[-1] != token:
                break
    return found


def by_verifier(
    rows: Sequence[SequenceState], device: torch.device
) -> list[tuple[Verifier, torch.Tensor | slice]]:
    """Each verifier of the rows, with its rows' indices in the batch, on the device; a slice
    where it judges all of them."""
    groups: dict[Verifier, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(row.verifier, []).append(index)
    if len(groups) == 1:
        return [(rows[0].verifier, slice(None))]
    return [(verifier, on_device(members, device)) for verifier, members in groups.items()]


def judge(
    rows: Sequence[SequenceState], p: Distributions, draft: Proposal, r: torch.Tensor
) -> Verdict:
    """The verdict of each row's verifier about its window."""
    k = draft.token_ids.shape[1]
    if k == 0:
        return _without_drafts(rows, p)
    q = p.best_known[:, :k] if draft.probs is None else draft.probs
    lengths, groups = p.judged_lengths(draft), by_verifier(rows, p.scores.device)
    verdicts: dict[Verifier, Verdict] = {}
    for verifier, members in groups:
        given = (p.scores if verifier.greedy else p.best_known, q, draft.token_ids, r, lengths)
        verdicts[verifier] = verifier.judge(*(tensor[members] for tensor in given))
    if len(groups) == 1:
        return verdicts[rows[0].verifier]
    merged = _merge(list(verdicts.values()), [members for _, members in groups], len(rows))
    drawn = {  # in the order of each verifier's rows
        verifier: iter(own.drawn or repeat(own.next_probs is not None))
        for verifier, own in verdicts.items()
    }
    return merged._replace(drawn=[next(drawn[row.verifier]) for row in rows])


def draw_next(rows: Sequence[SequenceState], verdict: Verdict) -> torch.Tensor:
    """The token after each row's accepted drafts, int64, shape `[batch_size]`."""
    known, probs = verdict.next_token_ids, verdict.next_probs
    if probs is None:
        assert known is not None
        return known
    drawn = verdict.drawn or [True] * len(rows)
    return torch.stack(
        [
            known[index]
            if known is not None and not drawn[index]
            else row.random.categorical(probs[index])
            for index, row in enumerate(rows)
        ]
    )


def _without_drafts(rows: Sequence[SequenceState], p: Distributions) -> Verdict:
    """There is nothing to judge: the next token is the target's."""
    drawn = [not row.verifier.greedy for row in rows]
    wanted = None if all(drawn) else best(p.scores[:, 0])
    nothing = torch.zeros_like(p.num_usable)
    return Verdict(
        nothing,
        p.best_known[:, 0] if any(drawn) else None,
        wanted,
        p.scores.new_zeros(len(rows), 0),
        None,
        drawn,
    )


def _merge(
    verdicts: Sequence[Verdict], groups: Sequence[torch.Tensor | slice], total: int
) -> Verdict:
    """One verdict, without `drawn`, from those of groups of a batch of `total` rows; a field is
    None where all have None."""
    merged: list[Any] = []
    for values in zip(*(verdict[:-1] for verdict in verdicts), strict=True):
        known = next((value for value in values if value is not None), None)
        column = None if known is None else known.new_zeros(total, *known.shape[1:])
        for members, value in zip(groups, values, strict=True):
            if column is not None and value is not None:
                column[members] = value.to(column.dtype)
        merged.append(column)
    return Verdict(*merged)
