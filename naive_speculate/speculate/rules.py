"""What a verifier is, and the draws and arithmetic on batches that verifiers share.

Sources: speculative sampling, Leviathan et al. 2023 (arXiv 2211.17192, Algorithm 1) and Chen et
al. 2023 (arXiv 2302.01318).
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from naive_speculate.infer.device import best as best
from naive_speculate.infer.device import count_leading as count_leading
from naive_speculate.infer.device import inside as inside
from naive_speculate.infer.device import pick as pick
from naive_speculate.sampling.pipeline import entropy as entropy
from naive_speculate.sampling.pipeline import overlap as overlap
from naive_speculate.sampling.pipeline import residual as residual

Generators = (
    Mapping[int, torch.Generator] | None
)  # random generators by row; rows without one use torch's global generator


class Verdict(NamedTuple):
    """What a verifier decides about a batch of draft windows."""

    num_accepted: Tensor  # int64, shape `[batch_size]`: how many drafts are accepted
    # shape `[batch_size, vocab_size]`: the distribution of the next token: the residual after a
    # rejection, the target's after a fully accepted window. None under greedy matching
    next_probs: Tensor | None
    next_token_ids: (
        Tensor | None
    )  # int64, shape `[batch_size]`, where the next token is not drawn; else None
    # shape `[batch_size, k]`: what each uniform draw was compared with; 1 or 0 where the rule is
    # certain
    accept_probs: Tensor
    thresholds: Tensor | None = None  # shape `[batch_size, k]` under typical acceptance; else None
    drawn: list[bool] | None = (
        None  # for each row, whether its next token is drawn, where rows differ in that; else None
    )


class Verifier(Protocol):
    """Decides about a batch of draft windows. A subclass defines `judge` and the attributes that
    differ."""

    # whether tokens are the most probable ones; such a verifier gets scores, of which only the
    # order matters
    greedy: bool = False
    lossy: bool = False  # whether the output distribution differs from the target's
    judges_all: bool = False  # whether drafts after a rejected one are judged too
    needs_uniforms: bool = True  # whether a uniform draw decides about each draft
    # whether each draft is compared with the target's own draw; `judge` then gets these draws
    matches_draws: bool = False
    has_thresholds: bool = False  # whether its verdicts carry thresholds

    def judge(
        self,
        target_probs: Tensor,
        draft_probs: Tensor,
        draft_token_ids: Tensor,
        uniforms: Tensor,
        lengths: Tensor,
    ) -> Verdict:
        """Decide about a batch of windows: a pure function of distributions and draws.

        Args:
            target_probs: Shape `[batch_size, k + 1, vocab_size]`.
            draft_probs: Shape `[batch_size, k, vocab_size]`.
            draft_token_ids: int64, shape `[batch_size, k]`.
            uniforms: Draws from [0, 1), float64, shape `[batch_size, k]`; if `matches_draws`,
                token ids that were drawn from `target_probs`, up to the first that is not the
                draft, then 0.
            lengths: int64, shape `[batch_size]`: drafts in each row; what comes after them is
                padding.
        """

    def expected_accept(
        self, target_probs: Tensor, draft_probs: Tensor, verdict: Verdict
    ) -> Tensor | None:
        """The probability, before each draft was drawn, that it would be accepted, `[batch_size,
        k]`, from the distributions of target and draft, `[batch_size, k, vocab_size]`, and what
        `judge` returned; None where the rule has no such probability."""
        return None


def draw(probs: Tensor, generators: Generators = None) -> Tensor:
    """Draw an index from each distribution `[batch_size, ..., vocab_size]` by an exponential
    race: int64 `[batch_size, ...]`."""
    noise = torch.empty_like(probs).exponential_()
    for row, generator in (generators or {}).items():
        noise[row].exponential_(generator=generator)
    return (probs / noise.clamp_min_(1e-30)).argmax(dim=-1)


def draw_uniform(like: Tensor, generators: Generators = None) -> Tensor:
    """Uniform numbers from [0, 1) in the shape `[batch_size, k]` of `like`."""
    uniforms = torch.rand_like(like)
    for row, generator in (generators or {}).items():
        uniforms[row].uniform_(generator=generator)
    return uniforms
