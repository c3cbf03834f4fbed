"""Scoring: one forward of the target over every sequence's last token and its drafts."""

from collections.abc import Sequence as Seq

import torch

from naive_speculate.events import Logprob
from naive_speculate.infer.slots import SlotPool
from naive_speculate.infer.transfer import on_device
from naive_speculate.speculate.sequence import Sequence
from naive_speculate.text import Vocabulary


class Scorer:
    """The target model's side of a step.

    Args:
        pool: The target model's slots.
        vocab_size: Number of token ids that target and draft share.
        vocabulary: Texts for log-probabilities.
    """

    def __init__(self, pool: SlotPool, vocab_size: int, vocabulary: Vocabulary) -> None:
        self.pool = pool
        self.vocab_size = vocab_size
        self.vocabulary = vocabulary

    def prefill(self, sequences: Seq[Sequence]) -> None:
        """Bring the cache a chunk nearer to all tokens but the last; collect prompt log-probabilities where asked for."""
        for sequence in sequences:
            if sequence.params.prompt_logprobs is not None and sequence.prompt_logprobs is None:
                self._prefill_with_logprobs(sequence, sequence.params.prompt_logprobs)
        slots = [sequence.target_slot for sequence in sequences]
        self.pool.feed(slots, [sequence.token_ids for sequence in sequences])

    def ready(self, sequence: Sequence) -> bool:
        """Whether `prefill` has nothing more to do."""
        if sequence.params.prompt_logprobs is not None and sequence.prompt_logprobs is None:
            return False
        return sequence.target_slot.num_tokens >= len(sequence.token_ids) - 1

    def score(self, sequences: Seq[Sequence], draft_token_ids: torch.Tensor) -> torch.Tensor:
        """Compute the logits that judge the drafts.

        Args:
            sequences: Prefilled sequences.
            draft_token_ids: int64, shape `[batch_size, k]`, padded.

        Returns:
            torch.Tensor: Shape `[batch_size, k + 1, vocab_size]`; place i judges draft i, the last gives the bonus token.
        """
        last = on_device([[s.token_ids[-1]] for s in sequences], draft_token_ids.device)
        query = torch.cat([last, draft_token_ids], dim=1)
        return self.pool.forward([s.target_slot for s in sequences], query)[..., : self.vocab_size]

    def _prefill_with_logprobs(self, sequence: Sequence, count: int) -> None:
        prompt = sequence.prompt_token_ids
        found: list[dict[int, Logprob] | None] = [None]  # nothing predicts the first token
        if len(prompt) > 1:
            sequence.target_slot.keep(0)
            device = getattr(self.pool.model, "device", None)
            logits = self.pool.forward([sequence.target_slot], on_device([prompt[:-1]], device))
            found += raw_logprobs(logits[0, :, : self.vocab_size], prompt[1:], count, self.vocabulary)
        sequence.prompt_logprobs = found


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
