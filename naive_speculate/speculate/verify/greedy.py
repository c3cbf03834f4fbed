"""Greedy matching: a draft token is accepted while it is the target's most probable token."""

from torch import Tensor

from naive_speculate.speculate.rules import Verdict, Verifier, best, count_leading, pick


class GreedyVerifier(Verifier):
    """Keeps drafts while they are the target's most probable tokens."""

    greedy = True
    needs_uniforms = False

    def judge(
        self,
        target_probs: Tensor,
        draft_probs: object,
        draft_token_ids: Tensor,
        uniforms: object,
        lengths: Tensor,
    ) -> Verdict:
        """See `Verifier.judge`; scores do as well as probabilities, only their order matters.
        Reads neither `draft_probs` nor `uniforms`."""
        wanted = best(target_probs)
        accepted = draft_token_ids == wanted[:, : draft_token_ids.shape[1]]
        num_accepted = count_leading(accepted).minimum(lengths)
        return Verdict(
            num_accepted, None, pick(wanted, num_accepted), accepted.to(target_probs.dtype)
        )

    def expected_accept(
        self, target_probs: Tensor, draft_probs: Tensor, verdict: Verdict
    ) -> Tensor:
        """1 or 0: both sides are certain of their token, and nothing is drawn."""
        return verdict.accept_probs
