"""What a batch does around the calls of its drafters, which may be other people's code."""

from collections.abc import Sequence

import torch

from naive_speculate.events.event import FinishReason
from naive_speculate.speculate.draft.proposal import BatchDrafter
from naive_speculate.speculate.sequence import SequenceState


def end_rows(rows: Sequence[SequenceState], error: Exception) -> None:
    """End the rows that a drafter no longer follows, since it failed."""
    for row in rows:
        if not row.ended:
            row.end(
                FinishReason.ERROR,
                f"drafter {row.drafter!r} failed: {type(error).__name__}: {error}",
            )


def own_layers(
    drafter: BatchDrafter, features: torch.Tensor, layers: Sequence[int]
) -> torch.Tensor:
    """A drafter's own layers of the hidden states of `layers`, which were computed."""
    if list(drafter.layers) == list(layers):
        return features
    by_layer = features.chunk(len(layers), dim=-1)
    return torch.cat([by_layer[layers.index(layer)] for layer in drafter.layers], dim=-1)
