"""A step of `naive.py`, and what its arguments may be."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from naive_speculate.events import EventKind
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.pair import ModelPair


@dataclass(frozen=True)
class StepTokens:
    """What one step did: x₁ … x_γ, n, and the emitted tokens, x₁ … x_n and t; without t where the
    text ends before it."""

    draft_token_ids: list[int]
    num_accepted: int
    token_ids: list[int]

    @property
    def num_judged(self) -> int:
        """The number of accepted and rejected draft tokens; those after a rejection are
        discarded."""
        return min(self.num_accepted + 1, len(self.draft_token_ids))

    def tokens(self) -> list[tuple[EventKind, int]]:
        """The step's tokens in order, each with its kind."""
        n, gamma = self.num_accepted, len(self.draft_token_ids)
        kinds = [EventKind.ACCEPTED] * n + [EventKind.REJECTED] + [EventKind.DISCARDED] * gamma
        own = EventKind.BONUS if n == gamma else EventKind.RESAMPLED
        drafts = list(zip(kinds, self.draft_token_ids, strict=False))
        return drafts + [(own, t) for t in self.token_ids[n:]]


def check_arguments(
    pair: ModelPair,
    prompt: Sequence[int],
    num_draft_tokens: int,
    max_new_tokens: int,
    temperature: float,
) -> None:
    """Raise a `ValueError` that names the argument, for what `speculative_decode` cannot do."""
    if pair.draft is None:
        raise ValueError("pair has no draft model")
    if pair.translation is not None:
        raise ValueError("pair has a draft model with another tokenizer than the target's")
    if not prompt:
        raise ValueError("prompt_token_ids is empty")
    if outside := [token for token in prompt if not 0 <= token < pair.vocab_size]:
        raise ValueError(
            f"prompt_token_ids holds {outside[0]}, outside the vocabulary of {pair.vocab_size}"
        )
    if num_draft_tokens < 0:
        raise ValueError(f"num_draft_tokens must not be negative, got {num_draft_tokens}")
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be positive, got {max_new_tokens}")
    if not (
        temperature == 0 or 0.001 <= temperature < math.inf
    ):  # logits divided by less could overflow
        raise ValueError(f"temperature must be 0 or at least 0.001, got {temperature}")
    length = len(prompt) + max_new_tokens
    for model in (pair.target, pair.draft):
        positions = as_batch_model(model).max_positions
        if positions is not None and length > positions:
            raise ValueError(
                f"max_new_tokens is {max_new_tokens}: prompt and output may take {positions}"
                f" tokens, not {length}"
            )
