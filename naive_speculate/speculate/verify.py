"""Verification strategies: the registry, greedy matching and block verification; the other two are in `samplers`.

A verifier is a pure function from distributions and draws to a `Verdict`; see `RejectionSampler.judge` for its arguments.
"""

from enum import StrEnum

import numpy as np
import torch

from naive_speculate.infer.device import on_device
from naive_speculate.sampling.argmax import argmax
from naive_speculate.sampling.arrays import as_numpy
from naive_speculate.speculate.rules import (
    Verdict,
    count_leading,
    for_numpy,
    inside,
    leading_on_host,
    next_token_probs,
    overlap,
    pick,
)
from naive_speculate.speculate.rules import Verifier as Verifier
from naive_speculate.speculate.samplers import RejectionSampler, TypicalAcceptanceSampler


class VerifyStrategy(StrEnum):
    """How drafts are judged. Speculative sampling and block verification give exactly the target's distribution; greedy match
    writes what the target writes at temperature 0, whatever the temperature; typical acceptance is lossy."""

    GREEDY_MATCH = "greedy_match"
    SPECULATIVE_SAMPLING = "speculative_sampling"
    TYPICAL_ACCEPTANCE = "typical_acceptance"
    BLOCK_VERIFICATION = "block_verification"


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
        """See `RejectionSampler.judge`; scores do as well as probabilities, only their order matters."""
        best = argmax(target_probs)
        if best.device.type == "cpu" and target_probs.dtype in (torch.float32, torch.float64):
            kept, counts, next_token_ids = self.compare(best.tolist(), draft_token_ids.tolist(), lengths.tolist())
            return Verdict(on_device(counts), None, on_device(next_token_ids), on_device(kept, dtype=target_probs.dtype))
        k = draft_token_ids.shape[1]
        accepted = draft_token_ids == best[:, :k]
        num_accepted = count_leading(accepted).minimum(lengths)
        return Verdict(num_accepted, None, pick(best, num_accepted), accepted.to(target_probs.dtype))

    @staticmethod
    def compare(
        best: list[list[int]], drafts: list[list[int]], lengths: list[int]
    ) -> tuple[list[list[bool]], list[int], list[int]]:
        """`judge` without tensors.

        Args:
            best: The target's most probable tokens, `[batch_size][k + 1]`.
            drafts: `[batch_size][k]`.
            lengths: Drafts in each row.

        Returns:
            tuple: Which drafts are those tokens, how many each row keeps, and the token after them.
        """
        accepted = [[draft == token for draft, token in zip(*row, strict=False)] for row in zip(drafts, best, strict=True)]
        counts = leading_on_host(accepted, lengths)
        return accepted, counts, [tokens[count] for tokens, count in zip(best, counts, strict=True)]

    def expected_accept(self, target_probs: torch.Tensor, draft_probs: torch.Tensor, verdict: Verdict) -> torch.Tensor:
        """1 or 0: both sides are certain of their token, and nothing is drawn."""
        return verdict.accept_probs


class BlockVerifier(Verifier):
    """Block verification (Sun et al. 2024, arXiv 2403.10444): lossless, and on average never accepts fewer tokens than
    judging token by token.

    With the running probability p_0 = 1, p_i = min(1, p_{i−1} · target(x_i) / draft(x_i)), place i < k passes with the
    probability h_i = S_i / (S_i + 1 − p_i), where S_i = Σ_x max(0, p_i · target(x | x_1…x_i) − draft(x | x_1…x_i)), and the
    last place with h_k = p_k. The window is kept up to the *last* place i that passes; the next token is drawn from the
    distribution ∝ max(0, p_i · target − draft).
    """

    judges_all = True

    def judge(
        self,
        target_probs: torch.Tensor,
        draft_probs: torch.Tensor,
        draft_token_ids: torch.Tensor,
        uniforms: torch.Tensor,
        lengths: torch.Tensor,
    ) -> Verdict:
        """Decide about a batch of windows; arguments as in `RejectionSampler.judge`."""
        num_accepted, p, h = self._judge(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        scale = p.gather(1, num_accepted[:, None])[:, 0]
        return Verdict(num_accepted, next_token_probs(target_probs, draft_probs, num_accepted, lengths, scale), None, h)

    def count(self, *given: torch.Tensor) -> torch.Tensor:
        """See `Verifier.count`."""
        return self._judge(*given)[0]

    @classmethod
    def _judge(
        cls,
        target_probs: torch.Tensor,
        draft_probs: torch.Tensor,
        draft_token_ids: torch.Tensor,
        uniforms: torch.Tensor,
        lengths: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """How many drafts are kept, p_0 … p_k and h_1 … h_k."""
        k = draft_token_ids.shape[1]
        if for_numpy(target_probs, draft_probs, uniforms):
            return cls._on_host(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        if k == 0:
            return lengths, target_probs.new_ones(len(lengths), 1), target_probs.new_zeros(len(lengths), 0)
        places = torch.arange(1, k + 1, device=lengths.device)
        target, draft = pick(target_probs[:, :k], draft_token_ids), pick(draft_probs, draft_token_ids)
        running = [target.new_ones(len(target))]
        for ratio in torch.where(draft > 0, target / draft, 0.0).unbind(dim=1):
            running.append((running[-1] * ratio).clamp_max(1.0))
        p = torch.stack(running, dim=1)
        inner = p[:, 1:k]
        excess = (inner[..., None] * target_probs[:, 1:k] - draft_probs[:, 1:]).clamp_min(0).sum(dim=-1)
        denominator = excess + 1 - inner
        passing = torch.where(denominator <= 0, 1.0, excess / denominator).clamp_max(1.0)  # rounding may give more
        h = torch.where(places == lengths[:, None], p[:, 1:], torch.cat([passing, p[:, k:]], dim=1))
        passed = (uniforms < h) & inside(lengths, k)
        return (passed * places).amax(dim=1), p, h

    @staticmethod
    def _on_host(
        target_probs: torch.Tensor,
        draft_probs: torch.Tensor,
        draft_token_ids: torch.Tensor,
        uniforms: torch.Tensor,
        lengths: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`_judge` row by row; h is 0 behind a row's window."""
        target, draft, k = as_numpy(target_probs), as_numpy(draft_probs), draft_token_ids.shape[1]
        all_p, all_h = [], []
        for row, (window, length) in enumerate(zip(draft_token_ids.tolist(), lengths.tolist(), strict=True)):
            p, h = [1.0], [0.0] * k
            for i, x in enumerate(window[:length]):
                q = draft.item(row, i, x)
                p.append(_at_most_1(p[i] * (target.item(row, i, x) / q if q > 0 else 0.0)))
                h[i] = p[i + 1]
            scale = np.array(p[1:length], target.dtype)[:, None]
            excess = np.maximum(scale * target[row, 1:length] - draft[row, 1:length], 0).sum(-1).tolist()
            for i, more in enumerate(excess):
                rest = more + 1 - p[i + 1]
                h[i] = 1.0 if rest <= 0 else _at_most_1(more / rest)
            all_p.append(p + [0.0] * (k - length))
            all_h.append(h)
        passing = on_device(all_h, dtype=target_probs.dtype).view(len(all_h), k)
        passed = (uniforms.numpy() < passing.numpy()).tolist()
        counts = [max((i + 1 for i, stands in enumerate(row) if stands), default=0) for row in passed]
        return on_device(counts), on_device(all_p, dtype=target_probs.dtype), passing

    def expected_accept(self, target_probs: torch.Tensor, draft_probs: torch.Tensor, verdict: Verdict) -> torch.Tensor:
        """What it would be if the place were judged by itself, which it is not: the window is judged as a whole."""
        return overlap(target_probs, draft_probs)


def _at_most_1(number: float) -> float:
    """NaN stays NaN, so that it keeps nothing."""
    return 1.0 if number >= 1.0 else number


VERIFIERS: dict[str, Verifier] = {
    VerifyStrategy.GREEDY_MATCH: GreedyVerifier(),
    VerifyStrategy.SPECULATIVE_SAMPLING: RejectionSampler(),
    VerifyStrategy.TYPICAL_ACCEPTANCE: TypicalAcceptanceSampler(),
    VerifyStrategy.BLOCK_VERIFICATION: BlockVerifier(),
}
"""Verifiers by the name that `verify_strategy` takes; `VERIFIERS["mine"] = Mine()` adds one."""


def verifier_for(verify_strategy: str, greedy: bool) -> Verifier:
    """What judges a sequence's drafts: at temperature 0, greedy matching under every strategy.

    Raises:
        ValueError: If no verifier has this name.
    """
    if not isinstance(verify_strategy, str) or verify_strategy not in VERIFIERS:
        raise ValueError(f"verify_strategy must be one of {', '.join(VERIFIERS)}, got {verify_strategy!r:.80}")
    return VERIFIERS[VerifyStrategy.GREEDY_MATCH if greedy else verify_strategy]
