"""The two samplers with vLLM's interface, under vLLM's name for the module.

Each states one rule and offers it in two forms. `judge` is what the decoder calls: a pure function from distributions and draws
to a `Verdict`. `forward` draws by itself and returns token ids padded with -1.
"""

import torch
from torch import Tensor

from naive_speculate.speculate.rules import (
    Generators,
    Verdict,
    Verifier,
    count_leading,
    draw,
    draw_uniform,
    entropy,
    next_token_probs,
    overlap,
    pick,
    residual,
)


class Sampler(Verifier):
    """The base of both samplers. `strict_mode`: check shapes, dtypes, devices and token ids at every call of `forward`."""

    def __init__(self, strict_mode: bool = False) -> None:
        self.strict_mode = strict_mode

    def _check(
        self, target_with_bonus_probs: Tensor, bonus_token_ids: Tensor, draft_probs: Tensor | None, draft_token_ids: Tensor
    ) -> None:
        if not self.strict_mode:
            return
        if target_with_bonus_probs.dim() != 3:
            got = list(target_with_bonus_probs.shape)
            raise ValueError(f"target_with_bonus_probs must have 3 dimensions, got shape {got}")
        batch_size, width, vocab_size = target_with_bonus_probs.shape
        _expect_shape("draft_token_ids", draft_token_ids, (batch_size, width - 1))
        if tuple(bonus_token_ids.shape) not in ((batch_size,), (batch_size, 1)):
            got = list(bonus_token_ids.shape)
            raise ValueError(f"bonus_token_ids must have shape [{batch_size}, 1], got {got}")
        if not target_with_bonus_probs.is_floating_point():
            raise ValueError(f"target_with_bonus_probs must be floating point, got {target_with_bonus_probs.dtype}")
        if draft_probs is not None:
            _expect_shape("draft_probs", draft_probs, (batch_size, width - 1, vocab_size))
            if draft_probs.dtype != target_with_bonus_probs.dtype:
                wanted = target_with_bonus_probs.dtype
                raise ValueError(f"draft_probs must be {wanted} like target_with_bonus_probs, got {draft_probs.dtype}")
        named = {"bonus_token_ids": bonus_token_ids, "draft_probs": draft_probs, "draft_token_ids": draft_token_ids}
        for name, tensor in named.items():
            if tensor is not None and tensor.device != target_with_bonus_probs.device:
                raise ValueError(f"{name} must be on {target_with_bonus_probs.device}, got {tensor.device}")
        for name, tensor in (("bonus_token_ids", bonus_token_ids), ("draft_token_ids", draft_token_ids)):
            if tensor.dtype != torch.int64:
                raise ValueError(f"{name} must be int64, got {tensor.dtype}")
            if tensor.numel() and (tensor.min() < 0 or tensor.max() >= vocab_size):
                outside = tensor.min().item() if tensor.min() < 0 else tensor.max().item()
                raise ValueError(f"{name} holds {outside}, outside the vocabulary of {vocab_size}")

    @staticmethod
    def _lay_out(accepted: Tensor, recovered_token_ids: Tensor, bonus_token_ids: Tensor, draft_token_ids: Tensor) -> Tensor:
        """Accepted drafts, then the recovered token at the first rejection or the bonus token, then -1."""
        batch_size, k = draft_token_ids.shape
        num_accepted = count_leading(accepted)[:, None]
        extra = torch.cat([recovered_token_ids, bonus_token_ids.reshape(batch_size, 1)], dim=1)
        drafts = torch.cat([draft_token_ids, draft_token_ids.new_full((batch_size, 1), -1)], dim=1)
        indices = torch.arange(k + 1, device=draft_token_ids.device)
        out = torch.where(indices < num_accepted, drafts, extra)
        return out.masked_fill(indices > num_accepted, -1)


class RejectionSampler(Sampler):
    """Speculative sampling: lossless token-level rejection sampling.

    A draft x is accepted with probability min(1, p_target(x) / p_draft(x)); the token at the first rejection is drawn from the
    distribution ∝ max(0, p_target − p_draft).
    """

    def judge(
        self, target_probs: Tensor, draft_probs: Tensor, draft_token_ids: Tensor, uniforms: Tensor, lengths: Tensor
    ) -> Verdict:
        """See `Verifier.judge`."""
        accept_probs = self._acceptance(target_probs[:, : draft_token_ids.shape[1]], draft_probs, draft_token_ids)
        num_accepted = count_leading(uniforms < accept_probs).minimum(lengths)
        next_probs = next_token_probs(target_probs, draft_probs, num_accepted, lengths)
        return Verdict(num_accepted, next_probs, None, accept_probs)

    def expected_accept(self, target_probs: Tensor, draft_probs: Tensor, verdict: Verdict) -> Tensor:
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
            ValueError: In strict mode, naming the argument whose shape, dtype, device or token ids are wrong.
        """
        self._check(target_with_bonus_probs, bonus_token_ids, draft_probs, draft_token_ids)
        target_probs = target_with_bonus_probs[:, :-1]
        accepted = self._get_accepted(target_probs, draft_probs, draft_token_ids, generators)
        recovered = self._get_recovered_token_ids(self._get_recovered_probs(target_probs, draft_probs), generators)
        return self._lay_out(accepted, recovered, bonus_token_ids, draft_token_ids)

    __call__ = forward

    def _get_accepted(
        self, target_probs: Tensor, draft_probs: Tensor, draft_token_ids: Tensor, generators: Generators = None
    ) -> Tensor:
        """Judge every draft on its own, bool, shape `[batch_size, k]`; results after a rejection must not be used."""
        accept_probs = self._acceptance(target_probs, draft_probs, draft_token_ids)
        return draw_uniform(accept_probs, generators) < accept_probs

    def _get_recovered_probs(self, target_probs: Tensor, draft_probs: Tensor) -> Tensor:
        """The residual distribution at every index, shape `[batch_size, k, vocab_size]`."""
        return residual(target_probs, draft_probs)

    def _get_recovered_token_ids(self, recovered_probs: Tensor, generators: Generators = None) -> Tensor:
        """A token drawn from each residual distribution, int64, shape `[batch_size, k]`."""
        return draw(recovered_probs, generators)

    @staticmethod
    def _acceptance(target_probs: Tensor, draft_probs: Tensor, draft_token_ids: Tensor) -> Tensor:
        """min(1, p_target(x) / p_draft(x)), shape `[batch_size, k]`; 0 for a token that the draft could not have drawn."""
        target, draft = pick(target_probs, draft_token_ids), pick(draft_probs, draft_token_ids)
        return torch.where(draft > 0, target / draft, 0.0).clamp_max(1.0)


class TypicalAcceptanceSampler(Sampler):
    """Accepts what the target finds plausible enough. Lossy: the output is not the target's distribution.

    A draft x is accepted where p_target(x) > min(threshold, alpha · exp(−H(p_target))); the token at the first rejection is the
    target's most probable one. `posterior_threshold`, 0 to 1, bounds the threshold, `posterior_alpha`, positive, scales the
    entropy-based one; `strict_mode` checks shapes, dtypes, devices and token ids at every call.
    """

    lossy = True
    needs_uniforms = False
    has_thresholds = True

    def __init__(self, posterior_threshold: float = 0.09, posterior_alpha: float = 0.3, strict_mode: bool = False) -> None:
        super().__init__(strict_mode)
        if not 0 <= posterior_threshold <= 1:
            raise ValueError(f"posterior_threshold must be from 0 to 1, got {posterior_threshold!r}")
        if not posterior_alpha > 0:
            raise ValueError(f"posterior_alpha must be positive, got {posterior_alpha!r}")
        self._posterior_threshold = posterior_threshold
        self._posterior_alpha = posterior_alpha

    def judge(
        self, target_probs: Tensor, draft_probs: object, draft_token_ids: Tensor, uniforms: object, lengths: Tensor
    ) -> Verdict:
        """See `Verifier.judge`; `draft_probs` and `uniforms` are not used. The bonus token is drawn."""
        k = draft_token_ids.shape[1]
        thresholds = self.thresholds(target_probs[:, :k])
        accepted = pick(target_probs[:, :k], draft_token_ids) > thresholds
        num_accepted = count_leading(accepted).minimum(lengths)
        at = target_probs[torch.arange(len(lengths), device=lengths.device), num_accepted]
        best = torch.zeros_like(at).scatter_(-1, at.argmax(dim=-1, keepdim=True), 1.0)
        next_probs = torch.where((num_accepted == lengths)[:, None], at, best)
        return Verdict(num_accepted, next_probs, None, accepted.to(target_probs.dtype), thresholds)

    def expected_accept(self, target_probs: Tensor, draft_probs: Tensor, verdict: Verdict) -> Tensor:
        """The draft's probability of all tokens above the threshold; see `Verifier.expected_accept`."""
        assert verdict.thresholds is not None
        return (draft_probs * (target_probs > verdict.thresholds[..., None])).sum(dim=-1).clamp_max(1.0)

    def forward(
        self, target_with_bonus_probs: Tensor, bonus_token_ids: Tensor, draft_probs: Tensor | None, draft_token_ids: Tensor
    ) -> Tensor:
        """Choose the tokens of one step; as `RejectionSampler.forward`, but `draft_probs` is not used and may be None."""
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

    def output_probs(self, target_probs: Tensor, draft_probs: Tensor, thresholds: Tensor | None = None) -> Tensor:
        """The distribution of the output at an index, given that the drafts before it were accepted: the draft where the target
        finds it plausible, else the target's most probable token. `target_probs`, `draft_probs`: shape `[..., vocab_size]`.
        `thresholds`: those of a verdict about the same tokens, shape `[...]`; computed where they are not given. Returns a
        distribution of the same shape."""
        thresholds = self.thresholds(target_probs) if thresholds is None else thresholds
        accepted = draft_probs.where(target_probs > thresholds[..., None], 0.0)
        rejected = 1 - accepted.sum(dim=-1, keepdim=True)
        return accepted.scatter_add_(-1, target_probs.argmax(dim=-1, keepdim=True), rejected)

    def distance(self, target_probs: Tensor, draft_probs: Tensor, thresholds: Tensor) -> Tensor:
        """Total variation between the target's distribution and `output_probs` of the same arguments; shape `[...]`."""
        return 1 - overlap(target_probs, self.output_probs(target_probs, draft_probs, thresholds))

    def thresholds(self, target_probs: Tensor) -> Tensor:
        """min(threshold, alpha · exp(−H)) at each index; shape `[..., vocab_size]` to `[...]`."""
        return (self._posterior_alpha * torch.exp(-entropy(target_probs))).clamp_max(self._posterior_threshold)


def _expect_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(tensor.shape)}")
