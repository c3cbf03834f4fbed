"""Muon for weight matrices, AdamW for the rest.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) makes each update orthogonal by a Newton–Schulz iteration.
`torch.optim.Muon` iterates in bfloat16 only, which takes minutes per step on a processor without bfloat16 products.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Muon(torch.optim.Optimizer):
    """As `torch.optim.Muon` with its default options, in float32."""

    COEFFICIENTS = (3.4445, -4.7750, 2.0315)
    ITERATIONS = 5
    MOMENTUM = 0.95

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(matrices, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the matrices from their gradients."""
        for group in self.param_groups:
            for matrix in group["params"]:
                average = self.state[matrix].setdefault("momentum_buffer", torch.zeros_like(matrix))
                average.lerp_(matrix.grad, 1 - self.MOMENTUM)
                update = orthogonal(matrix.grad.lerp(average, self.MOMENTUM))
                rows, columns = matrix.shape
                matrix.add_(update, alpha=-group["lr"] * max(1, rows / columns) ** 0.5)


def orthogonal(update: Tensor) -> Tensor:
    """Nearly the orthogonal matrix closest to `update`: its singular values become 0.5 to 1.5."""
    a, b, c = Muon.COEFFICIENTS
    tall = update.shape[0] > update.shape[1]
    x = update.T if tall else update
    x = x / x.norm().clamp_min(1e-7)
    for _ in range(Muon.ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def optimizers(model: nn.Module, muon_rate: float, adam_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the hidden layers' matrices, AdamW for embeddings, output layers and norms."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name and "lm_head" not in name]
    rest = [p for name, p in named if not any(p is matrix for matrix in matrices)]
    return [Muon(matrices, muon_rate), torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0)]
