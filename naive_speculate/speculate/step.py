"""Speculative decoding: one step of Algorithm 1 of Leviathan et al. 2023 (arXiv 2211.17192), for a batch."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.judge import Distributions, distributions, draw, judge, uniforms
from naive_speculate.speculate.rules import Verdict
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.tree import Tree


class Models(Protocol):
    """The models of a step; a `Batch` has them."""

    def propose(self, rows: Sequence[SequenceState]) -> Proposal:
        """See `Batch.propose`."""
        ...

    def score(self, rows: Sequence[SequenceState], draft: Proposal) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `Batch.score`."""
        ...


class JudgedTree(NamedTuple):
    """A tree of draft tokens after its verification; see `tree_step`."""

    tree: Tree
    path: list[int]  # the accepted nodes
    verdicts: dict[int, tuple[float, float]]  # of each judged node, its acceptance probability and the draw
    # the target's distributions after the text and after each node, shape `[1 + num_nodes, vocab_size]`; None where unneeded
    probs: torch.Tensor | None


class Step(NamedTuple):
    """What happened in a step, still on the device. `observe` derives everything else from it."""

    draft: Proposal  # the draft windows
    logits: torch.Tensor  # the target's, shape `[batch_size, k + 1, vocab_size]`
    features: torch.Tensor | None  # hidden states of the target at the same tokens; see `Batch.score`
    p: Distributions  # the target's distributions
    r: torch.Tensor  # the uniform draws, float64, shape `[batch_size, k]`
    verdict: Verdict  # what the verifiers decided
    next_token_ids: torch.Tensor  # the token after each row's accepted drafts, int64, shape `[batch_size]`
    tree: JudgedTree | None = None  # of a single row that drafts trees; its window is the path that was followed


def step(models: Models, rows: Sequence[SequenceState]) -> Step:
    """Make one speculative step for every row, each with its own parameters, window and random source; the models have
    prefilled them. Plain autoregressive decoding is the same with γ = 0."""
    draft = models.propose(rows)  # x₁ … x_γ ~ q₁ … q_γ, each row its own γ
    logits, features = models.score(rows, draft)  # the target over x₁ … x_γ, in one forward
    p = distributions(rows, logits, draft)  # p₁ … p_{γ+1}, after temperature, top-p and the rest
    r = uniforms(rows, draft)  # r₁ … r_γ ~ U(0, 1)
    verdict = judge(rows, p, draft, r)  # n accepted: rᵢ < pᵢ(xᵢ) / qᵢ(xᵢ);  p' = norm(max(0, p_{n+1} − q_{n+1}))
    next_token_ids = draw(rows, verdict)  # t ~ p', or t ~ p_{γ+1} if all are accepted
    return Step(draft, logits, features, p, r, verdict, next_token_ids)
