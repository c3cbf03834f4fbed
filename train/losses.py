"""What a drafter is trained to do: give the target's likely next tokens the target's probabilities."""

import torch
from torch import Tensor

from train.batches import Batch


def token_loss(logits: Tensor, batch: Batch, index_of: Tensor, variation: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy with the target's distribution, plus `variation` times the total variation distance.

    A draft token is accepted with probability Σ min(p, q) (Leviathan et al. 2023, arXiv 2211.17192, corollary 3.6), which is
    one minus that distance; cross-entropy learns faster at first.

    Args:
        logits: The drafter's, over the tokens that it can draft, `[num_positions, known]`.
        batch: The target's likeliest tokens at the same positions.
        index_of: Index among the known tokens of each of the target's, int64 `[vocab_size]`; -1 for unknown ones.
        variation: Weight of the total variation distance.

    Returns:
        tuple: The mean loss; and the mean shares of drafts accepted at temperature 1 and at temperature 0, shape `[2]`.
    """
    index = index_of[batch.top_ids]
    log_q = torch.log_softmax(logits.float(), -1)
    known_log_q = log_q.gather(-1, index.clamp_min(0)).masked_fill(index < 0, 0.0)
    p = batch.top_probs.masked_fill(index < 0, 0.0)
    overlap = torch.minimum(p, known_log_q.exp()).sum(-1)
    loss = -(p * known_log_q).sum(-1) + variation * (1 - overlap)
    greedy = logits.detach().argmax(-1) == index[:, 0]
    return loss.mean(), torch.stack([overlap.detach().mean(), greedy.float().mean()])
