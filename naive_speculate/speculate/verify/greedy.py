"""Greedy matching: a draft token is accepted while it is the target's most probable token."""

import torch

from naive_speculate.speculate.rules import Verdict, Verifier, best, count_leading, pick


class GreedyVerifier(Verifier):
    """Keeps drafts while they are the target's most probable tokens."""

    greedy = True
    needs_uniforms = False

    def judge(
        self,
        target_probs: torch.Tensor,
        draft_probs: torch.Tensor | None,
        draft_token_ids: torch.Tensor,
        uniforms: torch.Tensor | None,
        lengths: torch.Tensor,
    ) -> Verdict:
        """See `Verifier.judge`; scores do as well as probabilities, only their order matters."""
        wanted = best(target_probs)
        accepted = draft_token_ids == wanted[:, : draft_token_ids.shape[1]]
        num_accepted = count_leading(accepted).minimum(lengths)
        return Verdict(num_accepted, None, pick(wanted, num_accepted), accepted.to(target_probs.dtype))

    def expected_accept(self, target_probs: torch.Tensor, draft_probs: torch.Tensor, verdict: Verdict) -> torch.Tensor:
        """1 or 0: both sides are certain of their token, and nothing is drawn."""
        return verdict.accept_probs
