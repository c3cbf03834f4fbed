"""Block verification (Sun et al. 2024, arXiv 2403.10444): a window is judged as a whole."""

import torch
from torch import Tensor

from naive_speculate.speculate.rules import (
    Verdict,
    Verifier,
    inside,
    overlap,
    pick,
)
from naive_speculate.speculate.verify.rejection import next_token_probs


class BlockVerifier(Verifier):
    """Lossless, and on average never accepts fewer tokens than judging token by token.

    With the running probability p_0 = 1, p_i = min(1, p_{i−1} · target(x_i) / draft(x_i)), index
    i < k passes with the probability h_i = S_i / (S_i + 1 − p_i), where S_i = Σ_x max(0, p_i ·
    target(x | x_1…x_i) − draft(x | x_1…x_i)), and the last index with h_k = p_k. Draft tokens
    are accepted up to the *last* index i that passes; the next token is drawn from the
    distribution ∝ max(0, p_i · target − draft).
    """

    judges_all = True

    def judge(
        self,
        target_probs: Tensor,
        draft_probs: Tensor,
        draft_token_ids: Tensor,
        uniforms: Tensor,
        lengths: Tensor,
    ) -> Verdict:
        """See `Verifier.judge`."""
        k = draft_token_ids.shape[1]
        if k == 0:
            return Verdict(
                lengths, target_probs[:, 0], None, target_probs.new_zeros(len(lengths), 0)
            )
        indices = torch.arange(1, k + 1, device=lengths.device)
        target, draft = (
            pick(target_probs[:, :k], draft_token_ids),
            pick(draft_probs, draft_token_ids),
        )
        running = [target.new_ones(len(target))]
        for ratio in torch.where(draft > 0, target / draft, 0.0).unbind(dim=1):
            running.append((running[-1] * ratio).clamp_max(1.0))
        p = torch.stack(running, dim=1)
        inner = p[:, 1:k]
        excess = (
            (inner[..., None] * target_probs[:, 1:k] - draft_probs[:, 1:]).clamp_min(0).sum(dim=-1)
        )
        denominator = excess + 1 - inner
        passing = torch.where(denominator <= 0, 1.0, excess / denominator).clamp_max(
            1.0
        )  # rounding may give more
        h = torch.where(
            indices == lengths[:, None], p[:, 1:], torch.cat([passing, p[:, k:]], dim=1)
        )
        num_accepted = ((uniforms < h) & inside(lengths, k)).mul(indices).amax(dim=1)
        scale = pick(p, num_accepted)
        return Verdict(
            num_accepted,
            next_token_probs(target_probs, draft_probs, num_accepted, lengths, scale),
            None,
            h,
        )

    def expected_accept(
        self, target_probs: Tensor, draft_probs: Tensor, verdict: Verdict
    ) -> Tensor:
        """What it would be if each index were judged by itself, as speculative sampling does."""
        return overlap(target_probs, draft_probs)
