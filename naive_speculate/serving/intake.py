"""What every engine that decodes in this process does with a request, and with a failure."""

import os

import torch

from naive_speculate.sampling.guided import GuideTooCostly
from naive_speculate.serving.protocol import About, Request
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.run import Run
from naive_speculate.speculate.sequence import CancelFlag

MAX_ROWS = 16
MAX_PROMPT_CHARACTERS = 10**6
"""Longer prompts are refused before they are tokenized, which takes its time and memory."""
MASK_SECONDS = 0.25 if hasattr(os, "fork") else None
"""Most processor time that a visitor's grammar may take for one mask (see `SpeculativeDecoder`), and 1% of it on average."""
OUT_OF_MEMORY = "The model ran out of memory. Try a shorter prompt or fewer tokens, or again when fewer people decode."


def about(decoder: SpeculativeDecoder, capacity: int) -> About:
    """What a decoder decodes with, so many sequences at once."""
    admission, pair = decoder.admission, decoder.pair
    return About(pair.names, str(admission.device), admission.has_chat_template, capacity, pair.num_parameters, pair.weights)


def prepare(
    decoder: SpeculativeDecoder,
    request: Request,
    cancel: CancelFlag | None,
    max_rows: int = MAX_ROWS,
    max_prompt_tokens: int | None = None,
) -> Run:
    """Check a request and make its run; a `ValueError` names the field that cannot be."""
    if request.params.num_sequences > max_rows:
        raise ValueError(f"n and best_of may be {max_rows} here, got n={request.params.n} and best_of={request.params.best_of}")
    if len(request.prompt) > MAX_PROMPT_CHARACTERS:
        raise ValueError(f"prompt has {len(request.prompt)} characters, {MAX_PROMPT_CHARACTERS} are allowed here")
    run = decoder.prepare(request, cancel)
    length = len(run.rows[0].prompt_token_ids)
    if max_prompt_tokens is not None and (over := length - max_prompt_tokens) > 0:
        raise ValueError(f"prompt has {length} tokens, {over} more than the {max_prompt_tokens} allowed here")
    return run


def explain(failure: Exception) -> str:
    """What a visitor is told about a failure, with what to do."""
    if isinstance(failure, GuideTooCostly):
        return str(failure)
    full = isinstance(failure, MemoryError | torch.cuda.OutOfMemoryError) or "not enough memory" in str(failure)
    return OUT_OF_MEMORY if full else f"Decoding failed: {type(failure).__name__}: {failure}"
