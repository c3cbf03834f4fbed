"""Muon on the weight matrices, AdamW on embeddings and norms, and the warm-up–stable–decay schedule.

Muon: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon/), here ``torch.optim.Muon``: momentum, then the
update is made orthogonal by a Newton–Schulz iteration. The schedule is that of MiniCPM (arXiv 2404.06395): a
checkpoint of the stable phase can be continued with any larger budget.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class PairOptimizer:
    """Both optimizers behind one small interface; ``set_rate(1.0)`` is the full learning rate."""

    def __init__(self, model: nn.Module, muon_rate: float, adam_rate: float) -> None:
        matrices: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            is_matrix = parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
            (matrices if is_matrix else rest).append(parameter)
        self.base_rates = (muon_rate, adam_rate)
        self.parts: tuple[torch.optim.Optimizer, torch.optim.Optimizer] = (
            torch.optim.Muon(matrices, lr=muon_rate, momentum=0.95, weight_decay=0.01),
            torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
        )

    def set_rate(self, factor: float) -> None:
        for part, base in zip(self.parts, self.base_rates, strict=True):
            for group in part.param_groups:
                group["lr"] = base * factor

    def step(self) -> None:
        for part in self.parts:
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def rate_factor(step: int, progress: float, warmup_steps: int, decay_share: float) -> float:
    """The learning rate at ``step`` (0 is the first) as a share of its full value.

    ``progress`` is the spent share of the budget, from 0 to 1; the rate falls linearly to zero over the last
    ``decay_share`` of it.
    """
    warmup = min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
    decay = min(1.0, max(0.0, 1.0 - progress) / decay_share) if decay_share else 1.0
    return warmup * decay
