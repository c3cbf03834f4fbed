"""Muon on the weight matrices, AdamW on embeddings and norms, and the warm-up–stable–decay schedule.

Muon: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon/): momentum, then the update is made orthogonal by a
Newton–Schulz iteration. ``torch.optim.Muon`` iterates in bfloat16 only, which takes minutes a step on a processor that does
not multiply bfloat16 in hardware. The schedule is that of MiniCPM (arXiv 2404.06395): a
checkpoint of the stable phase can be continued with any larger budget.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from train.precision import fast_bfloat16


class Muon(torch.optim.Optimizer):
    """As ``torch.optim.Muon`` with its default options, but iterating in a given dtype."""

    COEFFICIENTS = (3.4445, -4.7750, 2.0315)
    ITERATIONS = 5

    def __init__(
        self, matrices: list[dict[str, Any]], lr: float, momentum: float, weight_decay: float, dtype: torch.dtype
    ) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                average = self.state[matrix].setdefault("momentum_buffer", torch.zeros_like(matrix))
                average.lerp_(matrix.grad, 1 - group["momentum"])
                update = self.orthogonal(matrix.grad.lerp(average, group["momentum"]))
                rows, columns = matrix.shape
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-group["lr"] * max(1, rows / columns) ** 0.5)

    def orthogonal(self, update: Tensor) -> Tensor:
        """Nearly the orthogonal matrix closest to ``update``: its singular values come out between 0.5 and 1.5."""
        a, b, c = self.COEFFICIENTS
        tall = update.shape[0] > update.shape[1]
        x = (update.T if tall else update).to(self.dtype)
        x = x / x.norm().clamp_min(1e-7)
        for _ in range(self.ITERATIONS):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return (x.T if tall else x).to(update.dtype)


class PairOptimizer:
    """Both optimizers behind one small interface; ``set_rate(1.0)`` is the full learning rate.

    Args:
        shares: Of the rates, for parameters whose names begin so; others have the full ones.
    """

    def __init__(self, model: nn.Module, muon_rate: float, adam_rate: float, shares: Mapping[str, float] | None = None) -> None:
        matrices: dict[float, list[nn.Parameter]] = {}
        rest: dict[float, list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            is_matrix = parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
            share = next((share for prefix, share in (shares or {}).items() if name.startswith(prefix)), 1.0)
            (matrices if is_matrix else rest).setdefault(share, []).append(parameter)
        self.base_rates = (muon_rate, adam_rate)
        dtype = torch.bfloat16 if fast_bfloat16(next(model.parameters()).device) else torch.float32
        self.parts: tuple[torch.optim.Optimizer, torch.optim.Optimizer] = (
            Muon(_groups(matrices), muon_rate, momentum=0.95, weight_decay=0.01, dtype=dtype),
            torch.optim.AdamW(_groups(rest), lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
        )

    def set_rate(self, factor: float) -> None:
        for part, base in zip(self.parts, self.base_rates, strict=True):
            for group in part.param_groups:
                group["lr"] = base * factor * group["share"]

    def step(self) -> None:
        for part in self.parts:
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def _groups(by_share: Mapping[float, list[nn.Parameter]]) -> list[dict[str, Any]]:
    return [{"params": parameters, "share": share} for share, parameters in by_share.items()]


def rate_factor(step: int, progress: float, warmup_steps: int, decay_share: float) -> float:
    """The learning rate at ``step`` (0 is the first) as a share of its full value.

    ``progress`` is the spent share of the budget, from 0 to 1; the rate falls linearly to zero over the last
    ``decay_share`` of it.
    """
    warmup = min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
    decay = min(1.0, max(0.0, 1.0 - progress) / decay_share) if decay_share else 1.0
    return warmup * decay
