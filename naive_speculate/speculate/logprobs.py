"""Log-probabilities of the raw distribution, before any sampling parameter."""

import torch

from naive_speculate.events.event import Logprob
from naive_speculate.infer.device import on_device
from naive_speculate.text import Vocabulary


def raw_logprobs(logits: torch.Tensor, token_ids: list[int], count: int, vocabulary: Vocabulary) -> list[dict[int, Logprob]]:
    """Log-probabilities of the raw distribution: the chosen token's and the `count` most probable ones'.

    Args:
        logits: Shape `[places, vocab_size]`.
        token_ids: The chosen token of each place.
        count: Number of most probable tokens; -1 for all.
        vocabulary: Their texts.
    """
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    chosen = logprobs.gather(1, on_device(token_ids, logits.device)[:, None])
    ranks = ((logprobs > chosen).sum(dim=-1) + 1).tolist()
    vocab_size = logprobs.shape[-1]
    top = logprobs.topk(vocab_size if count == -1 else min(count, vocab_size), dim=-1)
    out = []
    for place, token in enumerate(token_ids):
        entry = {token: Logprob(chosen[place].item(), ranks[place], vocabulary.text_of(token))}
        pairs = zip(top.indices[place].tolist(), top.values[place].tolist(), strict=True)
        for rank, (other, value) in enumerate(pairs, start=1):
            entry.setdefault(other, Logprob(value, rank, vocabulary.text_of(other)))
        out.append(entry)
    return out
