"""Rows of a batch, for tests that step it themselves, their windows, and runs that must be
equal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from naive_speculate import GenerationResult, SamplingParams, SpeculativeDecoder
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.events.steps import steps
from naive_speculate.guides.words import WordList
from naive_speculate.speculate.batch import Batch
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.sequence import CancelFlag, SequenceState

COMMON = WordList(
    ["the", "and", "he", "she", "was", "little", "said", "king", "of", "in the", "a"], name="common"
)


def admitted(
    decoder: SpeculativeDecoder,
    batch: Batch,
    prompt: list[int],
    params: SamplingParams,
    cancel: CancelFlag | None = None,
    **options: object,
) -> SequenceState:
    """A row that has joined the batch."""
    run = decoder.prepare(Request(prompt, params, **options), cancel)
    batch.admit(run.rows)
    return run.rows[0]


def finish(batch: Batch, rows: Sequence[SequenceState]) -> None:
    """Steps the rows until all have ended."""
    while going_on := [row for row in rows if not row.ended]:
        batch.step(going_on)


def windows(events: Iterable[Any], prompt: Sequence[int]) -> Iterator[tuple[list[int], list[Any]]]:
    """All tokens before each window of a run, and the window's proposed events."""
    text = list(prompt)
    for step in steps(events):
        if step.drafts:
            yield list(text), step.drafts
        text += [event.token_id for event in step.events if event.kind in OUTPUT_KINDS]


def same_alone(
    decoder: SpeculativeDecoder,
    prompts: list,
    params: SamplingParams | list[SamplingParams],
    **options: object,
) -> list[GenerationResult]:
    """The results of a batch, whose rows are what they are alone, whatever is observed of them."""
    together = decoder.generate(prompts, params, **options)
    options = {"detail": "none"} | options
    each = params if isinstance(params, list) else [params] * len(prompts)
    for prompt, own, found in zip(prompts, each, together, strict=True):
        assert found.token_ids == decoder.generate(prompt, own, **options).token_ids
    return together


def same_as_plain(
    decoder: SpeculativeDecoder,
    prompt: object,
    params: SamplingParams,
    drafts: bool = True,
    **options: object,
) -> GenerationResult:
    """A run with drafts whose tokens are those of plain decoding."""
    found = decoder.generate(prompt, params, **options)
    plain = decoder.generate(prompt, params, num_draft_tokens=0, detail="none")
    assert found.token_ids == plain.token_ids
    assert not drafts or found.metrics.num_draft_tokens > 0
    return found
