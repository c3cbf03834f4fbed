"""How an `Inferencer` chooses a token from logits."""

from enum import StrEnum
from typing import Protocol, runtime_checkable

import torch


class SampleStrategy(StrEnum):
    """The two plain ways to choose a token: the most probable one, or a draw from the softmax."""

    GREEDY = "greedy"
    RANDOM = "random"


@runtime_checkable
class TokenSampler(Protocol):
    """Chooses tokens with more than the logits: parameters, history, a seeded random source."""

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """Choose one token per row.

        Args:
            logits: Shape `[batch_size, vocab_size]`.

        Returns:
            torch.Tensor: int64, shape `[batch_size]`.
        """
        ...

    def is_done(self, token_ids: torch.Tensor) -> bool:
        """Whether generation ends after these tokens, int64, shape `[batch_size]`."""
        ...


def choose(logits: torch.Tensor, strategy: SampleStrategy | TokenSampler) -> torch.Tensor:
    """Choose one token per row of logits `[batch_size, vocab_size]` by a `SampleStrategy`, its
    string, or a `TokenSampler`: int64 `[batch_size]`. Raises `ValueError` if the strategy is
    neither."""
    if strategy == SampleStrategy.GREEDY:
        return logits.argmax(dim=-1)
    if strategy == SampleStrategy.RANDOM:
        noise = torch.empty_like(logits, dtype=torch.float32).exponential_()
        return (logits.float() - noise.log()).argmax(dim=-1)
    sample = getattr(strategy, "sample", None)  # `isinstance` with a protocol is slow
    if callable(sample):
        return sample(logits)
    raise ValueError(
        f"sample_strategy must be a SampleStrategy or have sample() and is_done(), got {strategy!r}"
    )
