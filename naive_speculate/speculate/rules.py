"""What a verifier is, and the arithmetic of verification on batches that all of them share.

Sources: speculative sampling, Leviathan et al. 2023 (arXiv 2211.17192, Algorithm 1) and Chen et
al. 2023 (arXiv 2302.01318).
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from naive_speculate.infer.device import best as best
from naive_speculate.infer.device import count_leading as count_leading
from naive_speculate.infer.device import pick as pick

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


def entropy(probs: Tensor) -> Tensor:
    """Entropies in nats over the last dimension; faster than `torch.special.entr`."""
    least = torch.finfo(probs.dtype).tiny  # keeps the logarithm of 0 finite; it is multiplied by 0
    return 0.0 - torch.linalg.vecdot(probs, probs.clamp_min(least).log_())


def overlap(target_probs: Tensor, draft_probs: Tensor) -> Tensor:
    """Σ min(target, draft) of distributions `[..., vocab_size]`: the probability, shape `[...]`,
    that speculative sampling accepts a token drawn from the draft (Leviathan et al. 2023,
    Theorem 3.5). Where the draft is certain of a token, it is the target's probability of that
    token."""
    return torch.minimum(target_probs, draft_probs).sum(dim=-1).clamp_max(1.0)


def residual(target_probs: Tensor, draft_probs: Tensor, scale: Tensor | None = None) -> Tensor:
    """The distribution ∝ max(0, scale · target − draft), shape `[..., vocab_size]`, with `scale`
    `[...]` or 1; the target's own where that is 0 everywhere. Unscaled, it is so only where the
    two are equal, and there no draft is ever rejected."""
    scaled = target_probs if scale is None else scale[..., None] * target_probs
    left = (scaled - draft_probs).clamp_min(0)
    total = left.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, left / total, target_probs)


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


def next_token_probs(
    target_probs: Tensor,
    draft_probs: Tensor,
    num_accepted: Tensor,
    lengths: Tensor,
    scale: Tensor | None = None,
) -> Tensor:
    """The residual at the first rejection, or the target's distribution after a fully accepted
    window, shape `[batch_size, vocab_size]`; target `[batch_size, k + 1, vocab_size]`, draft
    `[batch_size, k, vocab_size]`, numbers of accepted and of all drafts int64 `[batch_size]`.
    `scale`, shape `[batch_size]`, multiplies the target before the draft is subtracted."""
    rows = torch.arange(len(num_accepted), device=num_accepted.device)
    target = target_probs[rows, num_accepted]
    if draft_probs.shape[1] == 0:
        return target
    rejected_at = num_accepted.clamp_max(draft_probs.shape[1] - 1)
    rest = residual(target, draft_probs[rows, rejected_at], scale)
    return torch.where((num_accepted == lengths)[:, None], target, rest)


def inside(lengths: Tensor, k: int) -> Tensor:
    """Which of k indices are in each row's window, bool, shape `[batch_size, k]`; the rest is
    padding."""
    return torch.arange(k, device=lengths.device) < lengths[:, None]
