"""From logits to probabilities for a batch, each row by its own parameters."""

from collections.abc import Sequence

import torch

from naive_speculate.sampling.pipeline import LogitsPipeline


def in_float(logits: torch.Tensor) -> torch.Tensor:
    """Logits in float32, or in float64 if they are."""
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


def batch_scores(
    pipelines: Sequence[LogitsPipeline],
    logits: torch.Tensor,
    histories: Sequence[list[int]],
    windows: Sequence[list[int]] | None = None,
) -> torch.Tensor:
    """Each row's logits `[batch_size, width, vocab_size]` through its own pipeline, up to temperature; the same shape, float32
    or float64. `histories`: the tokens that each row has generated before the first index; not read where all pipelines are
    plain. `windows`: the draft tokens after it."""
    scores = in_float(logits)
    if all(pipeline.plain for pipeline in pipelines):
        return scores
    windows = windows or [[] for _ in pipelines]
    rows = zip(pipelines, scores, histories, windows, strict=True)
    return torch.stack([pipeline.scores(row, past, window) for pipeline, row, past, window in rows])


def batch_probabilities(pipelines: Sequence[LogitsPipeline], scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's scores to probabilities.

    A position has no distribution where every token is banned, or a score is NaN or infinite. It gets the uniform one: a draft
    may be drawn from that, but no token of the output. `pipelines`: one a row; `scores`: shape
    `[batch_size, width, vocab_size]`. Returns the probabilities, same shape, and whether each position has a distribution:
    bool, shape `[batch_size, width]`.
    """
    first = pipelines[0]
    if all(pipeline.warp_key == first.warp_key for pipeline in pipelines):
        probs = first.probabilities(scores)
    else:
        probs = torch.stack([pipeline.probabilities(row) for pipeline, row in zip(pipelines, scores, strict=True)])
    lost = probs[..., 0].isnan()
    return probs.masked_fill_(lost[..., None], 1 / probs.shape[-1]), ~lost
