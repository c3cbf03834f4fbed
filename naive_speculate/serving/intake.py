"""What every engine that decodes in this process does with a request, and with a failure."""

import torch

from naive_speculate.serving.protocol import About, Request
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.sequence import CancelFlag, Sequence

MAX_ROWS = 16
MAX_PROMPT_CHARACTERS = 10**6
"""Longer prompts are refused before they are tokenized, which takes its time and memory."""
OUT_OF_MEMORY = "The model ran out of memory. Try a shorter prompt or fewer tokens, or again when fewer people decode."


def about(decoder: SpeculativeDecoder, capacity: int) -> About:
    """What a decoder decodes with, so many sequences at once."""
    return About(models=decoder.pair.names, device=str(decoder.device), chat=_has_chat(decoder), capacity=capacity)


def _has_chat(decoder: SpeculativeDecoder) -> bool:
    return bool(getattr(decoder.pair.tokenizer, "chat_template", None))


def prepare(
    decoder: SpeculativeDecoder,
    request: Request,
    cancel: CancelFlag | None,
    max_rows: int = MAX_ROWS,
    max_prompt_tokens: int | None = None,
) -> list[Sequence]:
    """Check a request and make its sequences.

    Raises:
        ValueError: Naming the field that cannot be.
    """
    if request.params.num_sequences > max_rows:
        raise ValueError(f"n and best_of may be {max_rows} here, got n={request.params.n} and best_of={request.params.best_of}")
    prompt = request.prompt
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise ValueError(f"prompt has {len(prompt)} characters, {MAX_PROMPT_CHARACTERS} are allowed here")
    if request.chat and isinstance(prompt, str) and _has_chat(decoder):
        messages = [{"role": "user", "content": prompt}]
        prompt = decoder.pair.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    sequences = decoder.prepare_group(
        prompt,
        request.params,
        num_draft_tokens=request.num_draft_tokens,
        verify_strategy=request.verify_strategy,
        drafter=request.drafter,
        detail=request.detail,
        cancel=cancel,
    )
    length = len(sequences[0].prompt_token_ids)
    if max_prompt_tokens is not None and length > max_prompt_tokens:
        raise ValueError(
            f"prompt has {length} tokens, {length - max_prompt_tokens} more than the {max_prompt_tokens} allowed here"
        )
    return sequences


def explain(failure: Exception) -> str:
    """What a visitor is told about a failure, with what to do."""
    full = isinstance(failure, MemoryError | torch.cuda.OutOfMemoryError) or "not enough memory" in str(failure)
    return OUT_OF_MEMORY if full else f"Decoding failed: {type(failure).__name__}: {failure}"
