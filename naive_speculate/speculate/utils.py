"""Verification of a single draft window: the batch rules of `samplers`, for one sequence."""

import torch

from naive_speculate.sampling.random_source import RandomSource
from naive_speculate.speculate.rules import draw
from naive_speculate.speculate.samplers import RejectionSampler
from naive_speculate.speculate.verify import GreedyVerifier


def greedy_match(
    target_dists: torch.Tensor, candidate_tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verify candidate tokens against the target's most probable tokens.

    Args:
        target_dists: Probabilities, shape `[num_draft_tokens + 1, vocab_size]`.
        candidate_tokens: int64, shape `[num_draft_tokens]`.

    Returns:
        tuple: `rejected_idx`, an int64 scalar from 0 to num_draft_tokens, which means that none
            was rejected; and
        `resampled_token`, an int64 scalar: the target's most probable token at that index.

    Raises:
        ValueError: If the shapes do not fit each other, or a candidate is not in the vocabulary.
    """
    _check(target_dists, candidate_tokens)
    lengths = torch.full((1,), len(candidate_tokens), device=candidate_tokens.device)
    verdict = GreedyVerifier().judge(
        target_dists[None], None, candidate_tokens[None], None, lengths
    )
    assert verdict.next_token_ids is not None
    return verdict.num_accepted[0], verdict.next_token_ids[0]


def speculative_sampling(
    target_dists: torch.Tensor,
    proposal_dists: torch.Tensor,
    candidate_tokens: torch.Tensor,
    random: RandomSource | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verify candidate tokens by speculative sampling (Leviathan et al. 2023, arXiv 2211.17192,
    Algorithm 1).

    Args:
        target_dists: Probabilities, shape `[num_draft_tokens + 1, vocab_size]`.
        proposal_dists: Probabilities that the candidates were drawn from, shape
            `[num_draft_tokens, vocab_size]`.
        candidate_tokens: int64, shape `[num_draft_tokens]`.
        random: The source of all draws: one uniform draw per candidate, then the token. None for
            torch's global generator.

    Returns:
        tuple: `rejected_idx`, an int64 scalar from 0 to num_draft_tokens, which means that none
            was rejected; and
        `resampled_token`, an int64 scalar drawn from the residual distribution at that index, or
        from the extra target distribution where none was rejected.

    Raises:
        ValueError: If the shapes do not fit each other, or a candidate is not in the vocabulary.
    """
    _check(target_dists, candidate_tokens)
    if tuple(proposal_dists.shape) != (len(candidate_tokens), target_dists.shape[1]):
        expected = [len(candidate_tokens), target_dists.shape[1]]
        raise ValueError(
            f"proposal_dists must have shape {expected}, got {list(proposal_dists.shape)}"
        )
    lengths = torch.full((1,), len(candidate_tokens), device=candidate_tokens.device)
    if random is None:
        uniforms = torch.rand(
            1, len(candidate_tokens), device=target_dists.device, dtype=target_dists.dtype
        )
    else:  # in float64, since a draw just below 1 would round to 1 in float32
        draws = [random.uniform() for _ in candidate_tokens]
        uniforms = torch.tensor([draws], device=target_dists.device, dtype=torch.float64)
    verdict = RejectionSampler().judge(
        target_dists[None], proposal_dists[None], candidate_tokens[None], uniforms, lengths
    )
    assert verdict.next_probs is not None
    resampled = (
        draw(verdict.next_probs)[0] if random is None else random.categorical(verdict.next_probs[0])
    )
    return verdict.num_accepted[0], resampled


def _check(target_dists: torch.Tensor, candidate_tokens: torch.Tensor) -> None:
    if candidate_tokens.dim() != 1:
        raise ValueError(
            "candidate_tokens must have shape [num_draft_tokens], got"
            f" {list(candidate_tokens.shape)}"
        )
    if target_dists.dim() != 2 or len(target_dists) != len(candidate_tokens) + 1:
        expected = f"[{len(candidate_tokens) + 1}, vocab_size]"
        raise ValueError(f"target_dists must have shape {expected}, got {list(target_dists.shape)}")
    outside = [
        token for token in candidate_tokens.tolist() if not 0 <= token < target_dists.shape[1]
    ]
    if outside:
        raise ValueError(
            f"candidate_tokens holds {outside[0]}, outside the vocabulary of"
            f" {target_dists.shape[1]}"
        )
