"""Sample matching: a draft token is accepted if the target's own draw is the same token.

The rule of mlx-lm (`speculative_generate_step`), and of llama.cpp
(`common_sampler_sample_and_accept_n`) for its default drafts and its n-grams.
"""

import torch
from torch import Tensor

from naive_speculate.speculate.rules import (
    Verdict,
    Verifier,
    count_leading,
    pick,
)
from naive_speculate.speculate.verify.rejection import next_token_probs


class SampleMatchVerifier(Verifier):
    """Lossless: every token is the target's own draw; drafts only decide how many of them one
    pass gives.

    A draft drawn from q is accepted with probability Σ p·q, at most Σ min(p, q); a draft that is
    certain, with its probability p, as under speculative sampling.
    """

    needs_uniforms = False
    matches_draws = True

    def judge(
        self,
        target_probs: Tensor,
        draft_probs: object,
        draft_token_ids: Tensor,
        uniforms: Tensor,
        lengths: Tensor,
    ) -> Verdict:
        """See `Verifier.judge`. `uniforms` holds the target's draws as token ids, up to the first
        that differs from the draft; a draw in the window is the next token, the one after a
        fully accepted window is still to be drawn. `next_probs` after a difference is the
        distribution of that draw, given that it is not the draft."""
        k = draft_token_ids.shape[1]
        drawn = uniforms.to(draft_token_ids.dtype)
        num_accepted = count_leading(drawn == draft_token_ids).minimum(lengths)
        certain = torch.zeros_like(target_probs[:, :k]).scatter_(-1, draft_token_ids[..., None], 1)
        known = pick(drawn, num_accepted.clamp_max(k - 1)) if k else num_accepted
        return Verdict(
            num_accepted,
            next_token_probs(target_probs, certain, num_accepted, lengths),
            known,
            pick(target_probs[:, :k], draft_token_ids),
            None,
            (num_accepted == lengths).tolist(),
        )

    def expected_accept(
        self, target_probs: Tensor, draft_probs: Tensor, verdict: Verdict
    ) -> Tensor:
        """Σ p·q; see `Verifier.expected_accept`."""
        return torch.linalg.vecdot(target_probs, draft_probs).clamp_max(1.0)
