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
# Longer prompts are refused before they are tokenized, which delays other visitors by seconds.
# English text has four characters for each token that the model can take.
MAX_PROMPT_CHARACTERS, CHARACTERS_PER_TOKEN = 10**6, 32
OUT_OF_MEMORY = (
    "The model ran out of memory. Try a shorter prompt or fewer tokens, or try again later."
)


def about(decoder: SpeculativeDecoder, capacity: int) -> About:
    admission, pair = decoder.admission, decoder.pair
    is_chat, device = admission.has_chat_template, str(admission.device)
    return About(pair.names, device, is_chat, capacity, pair.num_parameters, pair.weights)


def prepare(
    decoder: SpeculativeDecoder,
    request: Request,
    cancel: CancelFlag | None,
    max_rows: int = MAX_ROWS,
    max_prompt_tokens: int | None = None,
) -> Run:
    """Check a request and make its run; a `ValueError` names the invalid field."""
    if request.params.num_sequences > max_rows:
        got = f"n={request.params.n} and best_of={request.params.best_of}"
        raise ValueError(f"n and best_of may be {max_rows} here, got {got}")
    most, positions = MAX_PROMPT_CHARACTERS, decoder.admission.max_positions
    if positions is not None and request.params.truncate_prompt_tokens is None:
        most = min(most, CHARACTERS_PER_TOKEN * positions)
    if len(request.prompt) > most:
        raise ValueError(f"prompt has {len(request.prompt)} characters, {most} are allowed here")
    run = decoder.prepare(request, cancel)
    length = len(run.rows[0].prompt_token_ids)
    if max_prompt_tokens is not None and (over := length - max_prompt_tokens) > 0:
        most_tokens = f"{over} more than the {max_prompt_tokens} allowed here"
        raise ValueError(f"prompt has {length} tokens, {most_tokens}")
    return run


def seeded(request: Request) -> Request:
    """So that another process, or a second try, makes the same run."""
    if request.params.seed is not None:
        return request
    return replace(request, params=replace(request.params, seed=fresh_seed()))


def explain(failure: Exception) -> str:
    """For visitors, with what to do."""
    if isinstance(failure, GuideTooCostly | Unavailable):
        return str(failure)
    no_memory = isinstance(failure, MemoryError | torch.cuda.OutOfMemoryError)
    if no_memory or "not enough memory" in str(failure):
        return OUT_OF_MEMORY
    return f"Decoding failed: {type(failure).__name__}: {failure}"
