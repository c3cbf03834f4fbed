"""Speculative decoding: one step of Algorithm 1 of Leviathan et al. 2023 (arXiv 2211.17192), for a batch."""

from collections.abc import Sequence

from naive_speculate.events.record import StepRecord
from naive_speculate.speculate.judge import distributions, draw, judge, uniforms
from naive_speculate.speculate.record import to_host
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.workspace import Workspace


def step(workspace: Workspace, rows: Sequence[SequenceState], records: dict[SequenceState, StepRecord]) -> None:
    """Make one speculative step for every row. Plain autoregressive decoding is the same with γ = 0.

    Args:
        workspace: Where the rows live, prefilled.
        rows: In the order of their places there; each has its own parameters, window and dice.
        records: Gains what happened to each row, one by one: where a step fails, they tell whose is done.
    """
    draft = workspace.propose(rows)  # x₁ … x_γ ~ q₁ … q_γ, each row its own γ
    logits, features = workspace.score(rows, draft)  # the target over x₁ … x_γ, in one forward
    p = distributions(rows, logits, draft)  # p₁ … p_{γ+1}, after temperature, top-p and the rest
    r = uniforms(rows, draft.lengths, p)  # r₁ … r_γ ~ U(0, 1)
    verdict = judge(rows, p, draft, r)  # n = how many stand: rᵢ < pᵢ(xᵢ) / qᵢ(xᵢ);  p' = norm(max(0, p_{n+1} − q_{n+1}))
    next_token_ids = draw(rows, verdict)  # t ~ p', or t ~ p_{γ+1} if all stand

    outcomes = to_host(workspace, rows, draft, logits, p, r, verdict, next_token_ids)  # the one place that waits for the device
    try:
        for row, outcome in zip(rows, outcomes, strict=True):
            records[row] = row.commit(outcome)  # prefix + x₁ … x_n + t, up to where the sequence ends
    finally:
        workspace.commit(rows, records, features)  # caches and drafters back to what is committed
