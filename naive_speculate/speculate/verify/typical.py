"""Typical acceptance (Cai et al. 2024, Medusa, arXiv 2401.10774, section 3.3.1), with vLLM's
interface. Lossy."""

import torch
from torch import Tensor

from naive_speculate.speculate.rules import Verdict, count_leading, entropy, overlap, pick
from naive_speculate.speculate.verify.sampler import Sampler


class TypicalAcceptanceSampler(Sampler):
    """Accepts what the target finds plausible enough. Lossy: the output is not the target's
    distribution.

    A draft x is accepted where p_target(x) > min(threshold, alpha · exp(−H(p_target))); the
    token at the first rejection is the target's most probable one. `posterior_threshold`, 0 to
    1, bounds the threshold, `posterior_alpha`, positive, scales the entropy-based one;
    `strict_mode` checks shapes, dtypes, devices and token ids at every call.
    """

    lossy = True
    needs_uniforms = False
    has_thresholds = True

    def __init__(
        self,
        posterior_threshold: float = 0.09,
        posterior_alpha: float = 0.3,
        strict_mode: bool = False,
    ) -> None:
        super().__init__(strict_mode)
        if not 0 <= posterior_threshold <= 1:
            raise ValueError(
                f"posterior_threshold must be from 0 to 1, got {posterior_threshold!r}"
            )
        if not posterior_alpha > 0:
            raise ValueError(f"posterior_alpha must be positive, got {posterior_alpha!r}")
        self._posterior_threshold = posterior_threshold
        self._posterior_alpha = posterior_alpha

    def judge(
        self,
        target_probs: Tensor,
        draft_probs: object,
        draft_token_ids: Tensor,
        uniforms: object,
        lengths: Tensor,
    ) -> Verdict:
        """See `Verifier.judge`; `draft_probs` and `uniforms` are not used. The bonus token is
        drawn."""
        k = draft_token_ids.shape[1]
        thresholds = self.thresholds(target_probs[:, :k])
        accepted = pick(target_probs[:, :k], draft_token_ids) > thresholds
        num_accepted = count_leading(accepted).minimum(lengths)
        at = target_probs[torch.arange(len(lengths), device=lengths.device), num_accepted]
        best = torch.zeros_like(at).scatter_(-1, at.argmax(dim=-1, keepdim=True), 1.0)
        next_probs = torch.where((num_accepted == lengths)[:, None], at, best)
        return Verdict(num_accepted, next_probs, None, accepted.to(target_probs.dtype), thresholds)

    def expected_accept(
        self, target_probs: Tensor, draft_probs: Tensor, verdict: Verdict
    ) -> Tensor:
        """The draft's probability of all tokens above the threshold; see
        `Verifier.expected_accept`."""
        assert verdict.thresholds is not None
        return (
            (draft_probs * (target_probs > verdict.thresholds[..., None]))
            .sum(dim=-1)
            .clamp_max(1.0)
        )

    def forward(
        self,
        target_with_bonus_probs: Tensor,
        bonus_token_ids: Tensor,
        draft_probs: Tensor | None,
        draft_token_ids: Tensor,
    ) -> Tensor:
        """Choose the tokens of one step; as `RejectionSampler.forward`, but `draft_probs` is not
        used and may be None."""
        self._check(target_with_bonus_probs, bonus_token_ids, draft_probs, draft_token_ids)
        target_probs = target_with_bonus_probs[:, :-1]
        accepted = self._evaluate_accepted_tokens(target_probs, draft_token_ids)
        recovered = self._get_recovered_token_ids(target_probs)
        return self._lay_out(accepted, recovered, bonus_token_ids, draft_token_ids)

    __call__ = forward

    def _evaluate_accepted_tokens(self, target_probs: Tensor, draft_token_ids: Tensor) -> Tensor:
        """Judge every draft on its own, bool, shape `[batch_size, k]`."""
        return pick(target_probs, draft_token_ids) > self.thresholds(target_probs)

    def _get_recovered_token_ids(self, target_probs: Tensor) -> Tensor:
        """The target's most probable token at every index, int64, shape `[batch_size, k]`."""
        return target_probs.argmax(dim=-1)

    def output_probs(
        self, target_probs: Tensor, draft_probs: Tensor, thresholds: Tensor | None = None
    ) -> Tensor:
        """The distribution of the output at an index, given that the drafts before it were
        accepted: the draft where the target finds it plausible, else the target's most probable
        token. `target_probs`, `draft_probs`: shape `[..., vocab_size]`. `thresholds`: those of a
        verdict about the same tokens, shape `[...]`; computed where they are not given. Returns
        a distribution of the same shape."""
        thresholds = self.thresholds(target_probs) if thresholds is None else thresholds
        accepted = draft_probs.where(target_probs > thresholds[..., None], 0.0)
        rejected = 1 - accepted.sum(dim=-1, keepdim=True)
        return accepted.scatter_add_(-1, target_probs.argmax(dim=-1, keepdim=True), rejected)

    def distance(self, target_probs: Tensor, draft_probs: Tensor, thresholds: Tensor) -> Tensor:
        """Total variation between the target's distribution and `output_probs` of the same
        arguments; shape `[...]`."""
        return 1 - overlap(target_probs, self.output_probs(target_probs, draft_probs, thresholds))

    def thresholds(self, target_probs: Tensor) -> Tensor:
        """min(threshold, alpha · exp(−H)) at each index; shape `[..., vocab_size]` to `[...]`."""
        return (self._posterior_alpha * torch.exp(-entropy(target_probs))).clamp_max(
            self._posterior_threshold
        )
