"""From logits to probabilities for a batch, each row by its own parameters."""

import math
from collections.abc import Sequence

import torch

from naive_speculate.sampling.arrays import Numbers, as_numpy, as_tensor
from naive_speculate.sampling.pipeline import LogitsPipeline


def in_float(logits: torch.Tensor) -> torch.Tensor:
    """Logits in float32, or in float64 if they are."""
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


def batch_scores(
    pipelines: Sequence[LogitsPipeline],
    logits: Numbers,
    histories: Sequence[list[int]],
    windows: Sequence[list[int]] | None = None,
) -> torch.Tensor:
    """Each row's logits through its own pipeline, up to temperature.

    Args:
        pipelines: One a row.
        logits: Shape `[batch_size, places, vocab_size]`.
        histories: Tokens that each row has generated before the first place; not looked at where all pipelines are plain.
        windows: Drafted tokens after it; None for none.

    Returns:
        torch.Tensor: Same shape, float32 or float64.
    """
    logits = in_float(as_tensor(logits))
    if all(pipeline.plain for pipeline in pipelines):
        return logits
    windows = windows or [[] for _ in pipelines]
    rows = zip(pipelines, logits, histories, windows, strict=True)
    return torch.stack([pipeline.scores(row, past, window) for pipeline, row, past, window in rows])


def batch_probabilities(pipelines: Sequence[LogitsPipeline], scores: torch.Tensor) -> torch.Tensor:
    """Each row's scores to probabilities; shape `[batch_size, places, vocab_size]` in and out."""
    first = pipelines[0]
    if all(pipeline.warp_key == first.warp_key for pipeline in pipelines):
        return first.probabilities(scores)
    return torch.stack([pipeline.probabilities(row) for pipeline, row in zip(pipelines, scores, strict=True)])


def usable_probabilities(pipelines: Sequence[LogitsPipeline], scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The same where every place must have a distribution: one that has none, since every token is banned or a score is NaN or
    infinite, gets the uniform one. A draft may be drawn from that; of a target's place the second result says that it must not.

    Returns:
        tuple: The probabilities, and which places have their own: bool, shape `[batch_size, places]`; None for all, where that
        is known without waiting for the device.
    """
    probs = batch_probabilities(pipelines, scores)
    if probs.is_cpu:
        numbers, (count, places) = as_numpy(probs), probs.shape[:2]
        if not any(math.isnan(numbers.item(row, place, 0)) for row in range(count) for place in range(places)):
            return probs, None
    lost = probs[..., 0].isnan()
    return probs.nan_to_num_(nan=1 / probs.shape[-1]), ~lost


def best_on_host(scores: Numbers) -> list[list[int]] | None:
    """Each place's most probable token, `[batch_size][places]`, of scores on the CPU; None where some place has none, or where
    NumPy cannot take the scores as they are."""
    if isinstance(scores, torch.Tensor) and not (scores.is_cpu and scores.dtype in (torch.float32, torch.float64)):
        return None
    numbers = as_numpy(scores)
    best: list[list[int]] = numbers.argmax(-1).tolist()  # NaN counts as the largest
    values = (numbers.item(row, place, token) for row, tokens in enumerate(best) for place, token in enumerate(tokens))
    return best if all(map(math.isfinite, values)) else None


def usable_scores(scores: torch.Tensor) -> torch.Tensor | None:
    """Which places have a most probable token: bool, shape `[batch_size, places]`; None for all, where that is known without
    waiting for the device."""
    usable = scores.amax(dim=-1).isfinite()
    return None if scores.is_cpu and bool(usable.all()) else usable
