"""Speculative sampling: token-level rejection sampling, with vLLM's interface.

Sources: Leviathan et al. 2023 (arXiv 2211.17192, Algorithm 1) and Chen et al. 2023 (arXiv
2302.01318).
"""

import torch
from torch import Tensor

from naive_speculate.speculate.rules import (
    Generators,
    Verdict,
    count_leading,
    draw,
    draw_uniform,
    overlap,
    pick,
    residual,
)
from naive_speculate.speculate.verify.sampler import Sampler


class RejectionSampler(Sampler):
    """Speculative sampling: lossless token-level rejection sampling.

    A draft x is accepted with probability min(1, p_target(x) / p_draft(x)); the token at the
    first rejection is drawn from the distribution ∝ max(0, p_target − p_draft).
    """

    def judge(
        self,
        target_probs: Tensor,
        draft_probs: Tensor,
        draft_token_ids: Tensor,
        uniforms: Tensor,
        lengths: Tensor,
    ) -> Verdict:
        """See `Verifier.judge`."""
        accept_probs = self._acceptance(
            target_probs[:, : draft_token_ids.shape[1]], draft_probs, draft_token_ids
        )
        num_accepted = count_leading(uniforms < accept_probs).minimum(lengths)
        next_probs = next_token_probs(target_probs, draft_probs, num_accepted, lengths)
        return Verdict(num_accepted, next_probs, None, accept_probs)

    def expected_accept(
        self, target_probs: Tensor, draft_probs: Tensor, verdict: Verdict
    ) -> Tensor:
        """Σ min(p, q); see `Verifier.expected_accept`."""
        return overlap(target_probs, draft_probs)

    def forward(
        self,
        target_with_bonus_probs: Tensor,
        bonus_token_ids: Tensor,
        draft_probs: Tensor,
        draft_token_ids: Tensor,
        generators: Generators = None,
    ) -> Tensor:
        """Sample the tokens of one step.

        Args:
            target_with_bonus_probs: Shape `[batch_size, k + 1, vocab_size]`.
            bonus_token_ids: int64, shape `[batch_size, 1]`: used where all drafts are accepted.
            draft_probs: Shape `[batch_size, k, vocab_size]`.
            draft_token_ids: int64, shape `[batch_size, k]`.
            generators: Random generators by row; a row with one does not depend on its batch.

        Returns:
            Tensor: int64, shape `[batch_size, k + 1]`; -1 after the last token.

        Raises:
            ValueError: In strict mode, naming the argument whose shape, dtype, device or token
                ids are wrong.
        """
        self._check(target_with_bonus_probs, bonus_token_ids, draft_probs, draft_token_ids)
        target_probs = target_with_bonus_probs[:, :-1]
        accepted = self._get_accepted(target_probs, draft_probs, draft_token_ids, generators)
        recovered = self._get_recovered_token_ids(
            self._get_recovered_probs(target_probs, draft_probs), generators
        )
        return self._lay_out(accepted, recovered, bonus_token_ids, draft_token_ids)

    __call__ = forward

    def _get_accepted(
        self,
        target_probs: Tensor,
        draft_probs: Tensor,
        draft_token_ids: Tensor,
        generators: Generators = None,
    ) -> Tensor:
        """Judge every draft on its own, bool, shape `[batch_size, k]`; results after a rejection
        must not be used."""
        accept_probs = self._acceptance(target_probs, draft_probs, draft_token_ids)
        return draw_uniform(accept_probs, generators) < accept_probs

    def _get_recovered_probs(self, target_probs: Tensor, draft_probs: Tensor) -> Tensor:
        """The residual distribution at every index, shape `[batch_size, k, vocab_size]`."""
        return residual(target_probs, draft_probs)

    def _get_recovered_token_ids(
        self, recovered_probs: Tensor, generators: Generators = None
    ) -> Tensor:
        """A token drawn from each residual distribution, int64, shape `[batch_size, k]`."""
        return draw(recovered_probs, generators)

    @staticmethod
    def _acceptance(target_probs: Tensor, draft_probs: Tensor, draft_token_ids: Tensor) -> Tensor:
        """min(1, p_target(x) / p_draft(x)), shape `[batch_size, k]`; 0 for a token that the
        draft could not have drawn."""
        target, draft = pick(target_probs, draft_token_ids), pick(draft_probs, draft_token_ids)
        return torch.where(draft > 0, target / draft, 0.0).clamp_max(1.0)


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
