"""Recursive rejection sampling: one of several candidate tokens is accepted, or the next token is drawn from what is left.

Source: Jeong et al. 2024, Recursive Speculative Decoding (arXiv 2402.14160). SpecInfer's multi-step speculative
sampling (Miao et al. 2023, arXiv 2305.09781) is the same rule for candidates that are drawn independently.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from naive_speculate.speculate.rules import residual


class Choice(NamedTuple):
    """What is decided about the candidates for one position."""

    accepted: int | None  # the index of the accepted candidate; None if all are rejected
    verdicts: list[tuple[float, float]]  # of each judged candidate: its acceptance probability, and the draw
    next_probs: torch.Tensor  # the distribution of the next token if all are rejected, shape `[vocab_size]`


def choose(
    target_probs: torch.Tensor, candidates: Sequence[int], draft_probs: Sequence[torch.Tensor], uniform: Callable[[], float]
) -> Choice:
    """Judge candidates one after the other: x is accepted with probability min(1, p(x) / q(x)); after a rejection p becomes
    ∝ max(0, p − q).

    The result is distributed as the target, whatever each q is, if the candidate was drawn from it given the earlier ones. So
    candidates may be drawn without replacement: q is then the draft's distribution without the earlier candidates.

    Args:
        target_probs: p, shape `[vocab_size]`.
        candidates: Token ids, in the order in which they were drawn.
        draft_probs: q of each candidate, shape `[vocab_size]`.
        uniform: Draws from [0, 1), once for each judged candidate.
    """
    p, verdicts = target_probs, list[tuple[float, float]]()
    for index, (token, q) in enumerate(zip(candidates, draft_probs, strict=True)):
        accept_prob, u = min(1.0, float(p[token] / q[token])), uniform()
        verdicts.append((accept_prob, u))
        if u < accept_prob:
            return Choice(index, verdicts, p)
        p = residual(p, q.to(p.dtype))
    return Choice(None, verdicts, p)


def without(probs: torch.Tensor, token_id: int) -> torch.Tensor | None:
    """A distribution `[vocab_size]` without a token; None if nothing else is possible."""
    rest = probs.index_fill(-1, torch.tensor([token_id], device=probs.device), 0)
    total = rest.sum()
    return rest / total if total > 0 else None
