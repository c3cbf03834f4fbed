"""Checks requests and describes failures, for all engines that decode in this process."""

from dataclasses import replace

import torch

from naive_speculate.guides.guided import GuideTooCostly
from naive_speculate.sampling.random_source import fresh_seed
from naive_speculate.serving.protocol import About, Request, Unavailable
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.run import Run
from naive_speculate.speculate.sequence import CancelFlag

MAX_ROWS = 64
MAX_PROMPT_CHARACTERS = 10**6  # longer prompts are refused before they are tokenized
CHARACTERS_PER_TOKEN = 32
"""So are prompts with more characters for each token that the model can take. English text has
four, and tokenizing a million characters delays other visitors by seconds."""
OUT_OF_MEMORY = (
    "The model ran out of memory. Try a shorter prompt or fewer tokens, or try again later."
)


def about(decoder: SpeculativeDecoder, capacity: int) -> About:
    admission, pair = decoder.admission, decoder.pair
    return About(
        pair.names,
        str(admission.device),
        admission.has_chat_template,
        capacity,
        pair.num_parameters,
        pair.weights,
    )


def prepare(
    decoder: SpeculativeDecoder,
    request: Request,
    cancel: CancelFlag | None,
    max_rows: int = MAX_ROWS,
    max_prompt_tokens: int | None = None,
) -> Run:
    """Check a request and make its run; a `ValueError` names the invalid field."""
    if request.params.num_sequences > max_rows:
        raise ValueError(
            f"n and best_of may be {max_rows} here, got n={request.params.n} and"
            f" best_of={request.params.best_of}"
        )
    most, positions = MAX_PROMPT_CHARACTERS, decoder.admission.max_positions
    if positions is not None and request.params.truncate_prompt_tokens is None:
        most = min(most, CHARACTERS_PER_TOKEN * positions)
    if len(request.prompt) > most:
        raise ValueError(f"prompt has {len(request.prompt)} characters, {most} are allowed here")
    run = decoder.prepare(request, cancel)
    length = len(run.rows[0].prompt_token_ids)
    if max_prompt_tokens is not None and (over := length - max_prompt_tokens) > 0:
        raise ValueError(
            f"prompt has {length} tokens, {over} more than the {max_prompt_tokens} allowed here"
        )
    return run


def seeded(request: Request) -> Request:
    """So that another process, or a second try, makes the same run."""
    return (
        request
        if request.params.seed is not None
        else replace(request, params=replace(request.params, seed=fresh_seed()))
    )


def explain(failure: Exception) -> str:
    """For visitors, with what to do."""
    if isinstance(failure, GuideTooCostly | Unavailable):
        return str(failure)
    full = isinstance(
        failure, MemoryError | torch.cuda.OutOfMemoryError
    ) or "not enough memory" in str(failure)
    return OUT_OF_MEMORY if full else f"Decoding failed: {type(failure).__name__}: {failure}"
