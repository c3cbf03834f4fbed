"""What a verifier is, and the arithmetic of verification on batches that all of them share.

Sources: speculative sampling, Leviathan et al. 2023 (arXiv 2211.17192, Algorithm 1) and Chen et al. 2023 (arXiv 2302.01318).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from naive_speculate.sampling.argmax import argmax
from naive_speculate.sampling.arrays import Array, as_numpy

Generators = Mapping[int, torch.Generator] | None
"""Random generators by row; rows without one use torch's global generator."""


class Verdict(NamedTuple):
    """What a verifier decides about a batch of draft windows.

    Attributes:
        num_accepted: int64, shape `[batch_size]`: how many drafts are kept, from the first on.
        next_probs: Shape `[batch_size, vocab_size]`: what the token after them is drawn from: the residual distribution
            after a rejection, the target's where the whole window was kept. None under greedy matching.
        next_token_ids: int64, shape `[batch_size]`, where the token after them is not drawn; else None.
        accept_probs: Shape `[batch_size, k]`: what each uniform draw was compared with; 1 or 0 where the rule is certain.
        thresholds: Shape `[batch_size, k]` under typical acceptance; else None.
        drawn: For each row, whether the token after them is drawn, where rows differ in that; else None.
    """

    num_accepted: torch.Tensor
    next_probs: torch.Tensor | None
    next_token_ids: torch.Tensor | None
    accept_probs: torch.Tensor
    thresholds: torch.Tensor | None = None
    drawn: list[bool] | None = None


class Verifier(Protocol):
    """Decides about a batch of draft windows. What is derived from this class needs only say what differs.

    Attributes:
        greedy: Whether tokens are the most probable ones; such a verifier gets scores, of which only the order matters.
        lossy: Whether the output distribution differs from the target's.
        judges_all: Whether drafts after a refused one are judged too.
        needs_uniforms: Whether a uniform draw decides at each place.
        has_thresholds: Whether its verdicts carry thresholds.
    """

    greedy: bool = False
    lossy: bool = False
    judges_all: bool = False
    needs_uniforms: bool = True
    has_thresholds: bool = False

    def judge(
        self,
        target_probs: torch.Tensor,
        draft_probs: torch.Tensor,
        draft_token_ids: torch.Tensor,
        uniforms: torch.Tensor,
        lengths: torch.Tensor,
    ) -> Verdict:
        """See `RejectionSampler.judge`."""
        ...

    def count(self, *given: torch.Tensor) -> torch.Tensor:
        """How many drafts `judge`, given the same, keeps, for whoever asks no more: int64, shape `[batch_size]`."""
        return self.judge(*given).num_accepted

    def expected_accept(self, target_probs: torch.Tensor, draft_probs: torch.Tensor, verdict: Verdict) -> torch.Tensor | None:
        """How probable it was at each place, before a token was drawn there, that it would be kept, shape `[batch_size, k]`;
        None where the rule does not tell.

        Args:
            target_probs: Shape `[batch_size, k, vocab_size]`.
            draft_probs: What the drafts were drawn from, same shape.
            verdict: What was decided.
        """
        return None


def count_leading(accepted: torch.Tensor) -> torch.Tensor:
    """Number of True before the first False in each row, int64; `accepted` is bool of shape `[batch_size, k]`."""
    return accepted.cumprod(dim=-1).sum(dim=-1)


def leading_on_host(accepted: Sequence[Sequence[bool]], lengths: Sequence[int]) -> list[int]:
    """`count_leading` of lists, of each row's first places only: as many as `lengths` says."""
    return [[*row[:length], False].index(False) for row, length in zip(accepted, lengths, strict=True)]


def pick(table: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """`table[..., token_ids]`: one entry of the vocabulary axis for every place."""
    return table.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)


def for_numpy(*tables: torch.Tensor) -> bool:
    """Whether NumPy takes these numbers as they are. A forward of the target leaves nothing else in the processor's caches, so
    that each of torch's functions that a step calls takes up to 50 µs to come back from memory; NumPy's and Python's own come
    back in a fraction of that."""
    return all(table.device.type == "cpu" and table.dtype in (torch.float32, torch.float64) for table in tables)


def entropy(probs: torch.Tensor) -> torch.Tensor:
    """Entropies in nats over the last dimension; in half the time of `torch.special.entr`, on the CPU in a quarter."""
    least = torch.finfo(probs.dtype).tiny  # where a probability is 0 its logarithm is finite, and counts for nothing
    if for_numpy(probs):
        numbers = as_numpy(probs)
        logarithms = numbers + numbers.dtype.type(least)
        return torch.from_numpy(np.asarray(0.0 - np.vecdot(numbers, np.log(logarithms, out=logarithms))))
    return 0.0 - torch.linalg.vecdot(probs, probs.clamp_min(least).log_())


def overlap(target_probs: torch.Tensor, draft_probs: torch.Tensor) -> torch.Tensor:
    """Σ min(target, draft): how probable it is that speculative sampling keeps a token drawn from the draft (Leviathan et al.
    2023, Theorem 3.5). Where the draft is certain of a token, it is what the target gives that token.

    Args:
        target_probs, draft_probs: Shape `[..., vocab_size]`.

    Returns:
        torch.Tensor: Shape `[...]`; 0 to 1.
    """
    if for_numpy(target_probs, draft_probs):
        common = np.minimum(as_numpy(target_probs), as_numpy(draft_probs)).sum(-1)
        return torch.from_numpy(np.asarray(np.minimum(common, 1.0)))
    return torch.minimum(target_probs, draft_probs).sum(dim=-1).clamp_max(1.0)


def residual(target_probs: torch.Tensor, draft_probs: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
    """The distribution ∝ max(0, scale · target − draft); the target's own where nothing is left of it.

    Unscaled, nothing is left only where the two are equal, and there no draft is ever rejected.

    Args:
        target_probs, draft_probs: Shape `[..., vocab_size]`.
        scale: Shape `[...]`; 1 where it is not given.

    Returns:
        torch.Tensor: Same shape; the last axis sums to 1.
    """
    scaled = target_probs if scale is None else scale[..., None] * target_probs
    left = (scaled - draft_probs).clamp_min(0)
    total = left.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, left / total, target_probs)


def _residual(p: Array, q: Array, scale: float) -> Array:
    """`residual` of one place, shape `[vocab_size]`."""
    left = np.maximum((p if scale == 1.0 else p.dtype.type(scale) * p) - q, 0)
    total = left.sum()
    return left / total if total > 0 else p


def draw(probs: torch.Tensor, generators: Generators = None) -> torch.Tensor:
    """Draw an index from each distribution by an exponential race.

    Args:
        probs: Shape `[batch_size, ..., vocab_size]`.
        generators: Random generators by row.

    Returns:
        torch.Tensor: int64, shape `[batch_size, ...]`.
    """
    noise = torch.empty_like(probs).exponential_()
    for row, generator in (generators or {}).items():
        noise[row].exponential_(generator=generator)
    return argmax(probs / noise.clamp_min_(1e-30))


def draw_uniform(like: torch.Tensor, generators: Generators = None) -> torch.Tensor:
    """Uniform numbers from [0, 1) in the shape `[batch_size, k]` of `like`."""
    uniforms = torch.rand_like(like)
    for row, generator in (generators or {}).items():
        uniforms[row].uniform_(generator=generator)
    return uniforms


def next_token_probs(
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    num_accepted: torch.Tensor,
    lengths: torch.Tensor,
    scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """The residual at the first rejection, or the target's distribution after a window that was kept whole.

    Args:
        target_probs: Shape `[batch_size, k + 1, vocab_size]`.
        draft_probs: Shape `[batch_size, k, vocab_size]`.
        num_accepted, lengths: int64, shape `[batch_size]`: drafts that are kept, and that there are.
        scale: Shape `[batch_size]`: the target is scaled with it before the draft is taken away.

    Returns:
        torch.Tensor: Shape `[batch_size, vocab_size]`.
    """
    if for_numpy(target_probs, draft_probs):
        p, q = as_numpy(target_probs), as_numpy(draft_probs)
        scales = [1.0] * len(p) if scale is None else scale.tolist()
        ends = enumerate(zip(num_accepted.tolist(), lengths.tolist(), scales, strict=True))
        chosen = [p[row, n] if n == length else _residual(p[row, n], q[row, n], by) for row, (n, length, by) in ends]
        return torch.from_numpy(np.array(chosen))
    rows = torch.arange(len(num_accepted), device=num_accepted.device)
    target = target_probs[rows, num_accepted]
    if draft_probs.shape[1] == 0:
        return target
    rejected_at = num_accepted.clamp_max(draft_probs.shape[1] - 1)
    rest = residual(target, draft_probs[rows, rejected_at], scale)
    return torch.where((num_accepted == lengths)[:, None], target, rest)


def inside(lengths: torch.Tensor, k: int) -> torch.Tensor:
    """Which of k places are in each row's window, bool, shape `[batch_size, k]`; the rest is padding."""
    return torch.arange(k, device=lengths.device) < lengths[:, None]
