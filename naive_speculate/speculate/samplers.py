"""Samplers on batches, with vLLM's interface: which drafted tokens are kept, and what replaces the first that is not.

Each has two faces over one rule. `judge` is what the decoder calls: a pure function from distributions and draws to a
`Verdict`. `forward` draws by itself and returns token ids padded with -1.

Sources: speculative sampling, Leviathan et al. 2023 (arXiv 2211.17192, Algorithm 1) and Chen et al. 2023 (arXiv 2302.01318);
typical acceptance, Cai et al. 2024 (Medusa, arXiv 2401.10774, section 3.3.1).
"""

import numpy as np
import torch

from naive_speculate.infer.device import on_device
from naive_speculate.sampling.argmax import argmax
from naive_speculate.sampling.arrays import as_numpy
from naive_speculate.speculate.rules import (
    Generators,
    Verdict,
    Verifier,
    count_leading,
    draw,
    draw_uniform,
    entropy,
    for_numpy,
    leading_on_host,
    next_token_probs,
    overlap,
    pick,
    residual,
)


class _Sampler(Verifier):
    """What the two samplers with vLLM's interface share: checks and the layout of the output."""

    def __init__(self, strict_mode: bool = False) -> None:
        self.strict_mode = strict_mode

    def _check(
        self,
        target_with_bonus_probs: torch.Tensor,
        bonus_token_ids: torch.Tensor,
        draft_probs: torch.Tensor | None,
        draft_token_ids: torch.Tensor,
    ) -> None:
        if not self.strict_mode:
            return
        batch_size, places, vocab_size = _shape("target_with_bonus_probs", target_with_bonus_probs, 3)
        _expect_shape("draft_token_ids", draft_token_ids, (batch_size, places - 1))
        if tuple(bonus_token_ids.shape) not in ((batch_size,), (batch_size, 1)):
            got = list(bonus_token_ids.shape)
            raise ValueError(f"bonus_token_ids must have shape [{batch_size}, 1], got {got}")
        if not target_with_bonus_probs.is_floating_point():
            raise ValueError(f"target_with_bonus_probs must be floating point, got {target_with_bonus_probs.dtype}")
        if draft_probs is not None:
            _expect_shape("draft_probs", draft_probs, (batch_size, places - 1, vocab_size))
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
    def _lay_out(
        accepted: torch.Tensor,
        recovered_token_ids: torch.Tensor,
        bonus_token_ids: torch.Tensor,
        draft_token_ids: torch.Tensor,
    ) -> torch.Tensor:
        """Kept drafts, then the recovered token of the first rejected place or the bonus token, then -1."""
        batch_size, k = draft_token_ids.shape
        num_accepted = count_leading(accepted)[:, None]
        extra = torch.cat([recovered_token_ids, bonus_token_ids.reshape(batch_size, 1)], dim=1)
        drafts = torch.cat([draft_token_ids, draft_token_ids.new_full((batch_size, 1), -1)], dim=1)
        places = torch.arange(k + 1, device=draft_token_ids.device)
        out = torch.where(places < num_accepted, drafts, extra)
        return out.masked_fill(places > num_accepted, -1)


class RejectionSampler(_Sampler):
    """Speculative sampling: lossless token-level rejection sampling.

    A draft x is kept with probability min(1, p_target(x) / p_draft(x)); the token at the first rejected place is drawn from
    the distribution ∝ max(0, p_target − p_draft).
    """

    def judge(
        self,
        target_probs: torch.Tensor,
        draft_probs: torch.Tensor,
        draft_token_ids: torch.Tensor,
        uniforms: torch.Tensor,
        lengths: torch.Tensor,
    ) -> Verdict:
        """Decide about a batch of windows.

        Args:
            target_probs: Shape `[batch_size, k + 1, vocab_size]`.
            draft_probs: Shape `[batch_size, k, vocab_size]`.
            draft_token_ids: int64, shape `[batch_size, k]`.
            uniforms: Draws from [0, 1), shape `[batch_size, k]`.
            lengths: int64, shape `[batch_size]`: drafts in each row; what comes after them is padding.
        """
        if for_numpy(target_probs, draft_probs, uniforms):
            num_accepted, accept_probs = self._on_host(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        else:
            accept_probs = self._acceptance(target_probs[:, : draft_token_ids.shape[1]], draft_probs, draft_token_ids)
            num_accepted = count_leading(uniforms < accept_probs).minimum(lengths)
        next_probs = next_token_probs(target_probs, draft_probs, num_accepted, lengths)
        return Verdict(num_accepted, next_probs, None, accept_probs)

    def expected_accept(self, target_probs: torch.Tensor, draft_probs: torch.Tensor, verdict: Verdict) -> torch.Tensor:
        """Σ min(p, q); see `Verifier.expected_accept`."""
        return overlap(target_probs, draft_probs)

    def forward(
        self,
        target_with_bonus_probs: torch.Tensor,
        bonus_token_ids: torch.Tensor,
        draft_probs: torch.Tensor,
        draft_token_ids: torch.Tensor,
        generators: Generators = None,
    ) -> torch.Tensor:
        """Sample the tokens of one step.

        Args:
            target_with_bonus_probs: Shape `[batch_size, k + 1, vocab_size]`.
            bonus_token_ids: int64, shape `[batch_size, 1]`: used where all drafts are kept.
            draft_probs: Shape `[batch_size, k, vocab_size]`.
            draft_token_ids: int64, shape `[batch_size, k]`.
            generators: Random generators by row; a row with one does not depend on its batch.

        Returns:
            torch.Tensor: int64, shape `[batch_size, k + 1]`; -1 after the last token.

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
        self,
        target_probs: torch.Tensor,
        draft_probs: torch.Tensor,
        draft_token_ids: torch.Tensor,
        generators: Generators = None,
    ) -> torch.Tensor:
        """Judge every place on its own, bool, shape `[batch_size, k]`; places after a rejection must not be used."""
        accept_probs = self._acceptance(target_probs, draft_probs, draft_token_ids)
        return draw_uniform(accept_probs, generators) < accept_probs

    def _get_recovered_probs(self, target_probs: torch.Tensor, draft_probs: torch.Tensor) -> torch.Tensor:
        """The residual distribution of every place, shape `[batch_size, k, vocab_size]`."""
        return residual(target_probs, draft_probs)

    def _get_recovered_token_ids(self, recovered_probs: torch.Tensor, generators: Generators = None) -> torch.Tensor:
        """A token drawn from each residual distribution, int64, shape `[batch_size, k]`."""
        return draw(recovered_probs, generators)

    @staticmethod
    def _on_host(
        target_probs: torch.Tensor,
        draft_probs: torch.Tensor,
        draft_token_ids: torch.Tensor,
        uniforms: torch.Tensor,
        lengths: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """How many drafts of each row are kept, and min(1, p_target(x) / p_draft(x)) of each."""
        p, q = as_numpy(target_probs), as_numpy(draft_probs)
        places = [
            [(p.item(row, i, x), q.item(row, i, x)) for i, x in enumerate(window)]
            for row, window in enumerate(draft_token_ids.tolist())
        ]
        # A quotient that is NaN stays NaN, so that it keeps nothing.
        ratios = [[(1.0 if a >= b else a / b) if b > 0 else 0.0 for a, b in row] for row in places]
        accept_probs = on_device(ratios, dtype=target_probs.dtype)
        kept = (uniforms.numpy() < accept_probs.numpy()).tolist()
        return on_device(leading_on_host(kept, lengths.tolist())), accept_probs

    @staticmethod
    def _acceptance(target_probs: torch.Tensor, draft_probs: torch.Tensor, draft_token_ids: torch.Tensor) -> torch.Tensor:
        """min(1, p_target(x) / p_draft(x)), shape `[batch_size, k]`; 0 for a token that the draft could not have drawn."""
        target, draft = pick(target_probs, draft_token_ids), pick(draft_probs, draft_token_ids)
        return torch.where(draft > 0, target / draft, 0.0).clamp_max(1.0)


class TypicalAcceptanceSampler(_Sampler):
    """Typical acceptance: keeps what the target finds plausible enough. Lossy: the output is not the target's distribution.

    A draft x is kept where p_target(x) > min(threshold, alpha · exp(−H(p_target))); the token at the first rejected place is
    the target's most probable one.

    Args:
        posterior_threshold: The threshold's upper bound, 0 to 1.
        posterior_alpha: Scales the entropy-based threshold; positive.
        strict_mode: Check shapes, dtypes, devices and token ids at every call.
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
        self,
        target_probs: torch.Tensor,
        draft_probs: torch.Tensor | None,
        draft_token_ids: torch.Tensor,
        uniforms: torch.Tensor | None,
        lengths: torch.Tensor,
    ) -> Verdict:
        """Decide about a batch of windows; arguments as in `RejectionSampler.judge`. The bonus token is drawn."""
        thresholds = self.thresholds(target_probs[:, : draft_token_ids.shape[1]])
        num_accepted, accept_probs = self.keep(target_probs, draft_token_ids, thresholds, lengths)
        at = target_probs[torch.arange(len(lengths), device=lengths.device), num_accepted]
        best = torch.zeros_like(at).scatter_(-1, argmax(at)[..., None], 1.0)
        next_probs = torch.where((num_accepted == lengths)[:, None], at, best)
        return Verdict(num_accepted, next_probs, None, accept_probs, thresholds)

    @staticmethod
    def keep(
        target_probs: torch.Tensor, draft_token_ids: torch.Tensor, thresholds: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """How many drafts are kept, int64, shape `[batch_size]`, and 1 or 0 for each place by itself, `[batch_size, k]`."""
        if for_numpy(target_probs, thresholds):
            p, limits = as_numpy(target_probs), thresholds.tolist()
            passed = [
                [p.item(row, i, x) > limits[row][i] for i, x in enumerate(window)]
                for row, window in enumerate(draft_token_ids.tolist())
            ]
            return on_device(leading_on_host(passed, lengths.tolist())), on_device(passed, dtype=target_probs.dtype)
        accepted = pick(target_probs[:, : draft_token_ids.shape[1]], draft_token_ids) > thresholds
        return count_leading(accepted).minimum(lengths), accepted.to(target_probs.dtype)

    def expected_accept(self, target_probs: torch.Tensor, draft_probs: torch.Tensor, verdict: Verdict) -> torch.Tensor:
        """What the draft gives all tokens above the threshold; see `Verifier.expected_accept`."""
        assert verdict.thresholds is not None
        return (draft_probs * (target_probs > verdict.thresholds[..., None])).sum(dim=-1).clamp_max(1.0)

    def forward(
        self,
        target_with_bonus_probs: torch.Tensor,
        bonus_token_ids: torch.Tensor,
        draft_probs: torch.Tensor | None,
        draft_token_ids: torch.Tensor,
    ) -> torch.Tensor:
        """Choose the tokens of one step; as `RejectionSampler.forward`, but `draft_probs` is not used and may be None."""
        self._check(target_with_bonus_probs, bonus_token_ids, draft_probs, draft_token_ids)
        target_probs = target_with_bonus_probs[:, :-1]
        accepted = self._evaluate_accepted_tokens(target_probs, draft_token_ids)
        recovered = self._get_recovered_token_ids(target_probs)
        return self._lay_out(accepted, recovered, bonus_token_ids, draft_token_ids)

    __call__ = forward

    def _evaluate_accepted_tokens(self, target_probs: torch.Tensor, draft_token_ids: torch.Tensor) -> torch.Tensor:
        """Judge every place on its own, bool, shape `[batch_size, k]`."""
        return pick(target_probs, draft_token_ids) > self.thresholds(target_probs)

    def _get_recovered_token_ids(self, target_probs: torch.Tensor) -> torch.Tensor:
        """The target's most probable token of every place, int64, shape `[batch_size, k]`."""
        return target_probs.argmax(dim=-1)

    def output_probs(
        self, target_probs: torch.Tensor, draft_probs: torch.Tensor, thresholds: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What stands at a place in the end, given that the drafts before it were kept: the draft where the target finds it
        plausible, else the target's most probable token.

        Args:
            target_probs, draft_probs: Shape `[..., vocab_size]`.
            thresholds: Those of a verdict about the same places, shape `[...]`; worked out where they are not given.

        Returns:
            torch.Tensor: A distribution of the same shape.
        """
        thresholds = self.thresholds(target_probs) if thresholds is None else thresholds
        if for_numpy(target_probs, draft_probs, thresholds):
            p, limits = as_numpy(target_probs), as_numpy(thresholds)[..., None]
            output = np.where(p > limits, as_numpy(draft_probs), 0)
            places = output.reshape(-1, output.shape[-1])
            places[np.arange(len(places)), p.argmax(-1).ravel()] += 1 - places.sum(-1)
            return torch.from_numpy(output)
        kept = draft_probs.where(target_probs > thresholds[..., None], 0.0)
        refused = 1 - kept.sum(dim=-1, keepdim=True)
        return kept.scatter_add_(-1, argmax(target_probs)[..., None], refused)

    def distance(self, target_probs: torch.Tensor, draft_probs: torch.Tensor, thresholds: torch.Tensor) -> torch.Tensor:
        """Total variation between the target's distribution and `output_probs` of the same; shape `[...]`.

        On the CPU only the tokens above the threshold are looked at, mostly a few, and the target's most probable one.
        """
        if not for_numpy(target_probs, draft_probs, thresholds):
            return 1 - overlap(target_probs, self.output_probs(target_probs, draft_probs, thresholds))
        vocab_size = target_probs.shape[-1]
        p, q = as_numpy(target_probs).reshape(-1, vocab_size), as_numpy(draft_probs).reshape(-1, vocab_size)
        limits, rows = as_numpy(thresholds).reshape(-1), np.arange(len(p))
        places, tokens = np.divmod(np.flatnonzero(p > limits[:, None]), vocab_size)
        kept = q[places, tokens]
        refused = 1 - np.bincount(places, kept, len(p))  # goes to the most probable token
        common = np.bincount(places, np.minimum(p[places, tokens], kept), len(p))
        best = p.argmax(-1)
        most, drafted = p[rows, best], np.where(p[rows, best] > limits, q[rows, best], 0)
        common = (
            common + np.minimum(most, drafted + refused) - np.minimum(most, drafted)
        )  # of no tokens, `bincount` has integers
        return torch.from_numpy((1 - np.minimum(common, 1)).astype(p.dtype)).view(thresholds.shape)

    def thresholds(self, target_probs: torch.Tensor, entropies: torch.Tensor | None = None) -> torch.Tensor:
        """min(threshold, alpha · exp(−H)) of each place; shape `[..., vocab_size]` to `[...]`. H is worked out where it is not
        given."""
        entropies = entropy(target_probs) if entropies is None else entropies
        if for_numpy(entropies):
            surprise = self._posterior_alpha * np.exp(-as_numpy(entropies))
            return torch.from_numpy(np.asarray(np.minimum(surprise, self._posterior_threshold)))
        return (self._posterior_alpha * torch.exp(-entropies)).clamp_max(self._posterior_threshold)


def _shape(name: str, tensor: torch.Tensor, dims: int) -> tuple[int, ...]:
    if tensor.dim() != dims:
        raise ValueError(f"{name} must have {dims} dimensions, got shape {list(tensor.shape)}")
    return tuple(tensor.shape)


def _expect_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(tensor.shape)}")
