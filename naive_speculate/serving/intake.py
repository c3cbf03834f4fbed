"""What every engine that decodes in this process does with a request, and with a failure."""

import torch

from naive_speculate.sampling.params import check_unicode
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
    if len(request.prompt) > MAX_PROMPT_CHARACTERS:
        raise ValueError(f"prompt has {len(request.prompt)} characters, {MAX_PROMPT_CHARACTERS} are allowed here")
    sequences = decoder.prepare_group(
        _as_chat(decoder, request.prompt) if request.chat else request.prompt,
        request.params,
        num_draft_tokens=request.num_draft_tokens,
        verify_strategy=request.verify_strategy,
        drafter=request.drafter,
        detail=request.detail,
        cancel=cancel,
    )
    if request.chat:
        for sequence in sequences:
            sequence.facts["prompt"] = request.prompt  # as it was given, without the template
    length = len(sequences[0].prompt_token_ids)
    if max_prompt_tokens is not None and length > max_prompt_tokens:
        raise ValueError(
            f"prompt has {length} tokens, {length - max_prompt_tokens} more than the {max_prompt_tokens} allowed here"
        )
    return sequences


def _as_chat(decoder: SpeculativeDecoder, prompt: str | list[int]) -> list[int]:
    """Token ids of a text in the tokenizer's chat template.

    Raises:
        ValueError: If it is no text, or there is no template, or the template fails.
    """
    if not isinstance(prompt, str):
        raise ValueError(f"chat=True needs a prompt of text, got {len(prompt)} token ids")
    if not _has_chat(decoder):
        raise ValueError("chat=True needs a chat template, and this pair's tokenizer has none")
    check_unicode("prompt", prompt)
    messages = [{"role": "user", "content": prompt}]
    try:
        return list(decoder.pair.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))
    except Exception as error:  # a template is a program, which may fail in any way
        said = " ".join(str(error).split())
        raise ValueError(f"chat=True: the tokenizer's chat template fails: {type(error).__name__}: {said:.300}") from None


def explain(failure: Exception) -> str:
    """What a visitor is told about a failure, with what to do."""
    full = isinstance(failure, MemoryError | torch.cuda.OutOfMemoryError) or "not enough memory" in str(failure)
    return OUT_OF_MEMORY if full else f"Decoding failed: {type(failure).__name__}: {failure}"
