"""Rows of a batch, for tests that step it themselves, and runs that must be equal."""

from collections.abc import Sequence

from naive_speculate import GenerationResult, SamplingParams, SpeculativeDecoder
from naive_speculate.speculate.batch import Batch
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.sequence import CancelFlag, SequenceState


def admitted(
    decoder: SpeculativeDecoder,
    batch: Batch,
    prompt: list[int],
    params: SamplingParams,
    cancel: CancelFlag | None = None,
    **options: object,
) -> SequenceState:
    """A row that has joined the batch."""
    run = decoder.prepare(Request(prompt, params, **options), cancel)  # type: ignore[arg-type]
    batch.admit(run.rows)
    return run.rows[0]


def finish(batch: Batch, rows: Sequence[SequenceState]) -> None:
    """Steps the rows until all have ended."""
    while going_on := [row for row in rows if not row.ended]:
        batch.step(going_on)


def same_alone(
    decoder: SpeculativeDecoder, prompts: list, params: SamplingParams | list[SamplingParams], **options: object
) -> list[GenerationResult]:
    """The results of a batch, whose rows are what they are alone, whatever is observed of them."""
    together = decoder.generate(prompts, params, **options)  # type: ignore[arg-type]
    options = {"detail": "none"} | options
    each = params if isinstance(params, list) else [params] * len(prompts)
    for prompt, own, found in zip(prompts, each, together, strict=True):
        assert found.token_ids == decoder.generate(prompt, own, **options).token_ids  # type: ignore[arg-type]
    return together


def same_as_plain(
    decoder: SpeculativeDecoder, prompt: object, params: SamplingParams, drafts: bool = True, **options: object
) -> GenerationResult:
    """A run with drafts whose tokens are those of plain decoding."""
    found = decoder.generate(prompt, params, **options)  # type: ignore[arg-type]
    plain = decoder.generate(prompt, params, num_draft_tokens=0, detail="none")  # type: ignore[arg-type]
    assert found.token_ids == plain.token_ids
    assert not drafts or found.metrics.num_draft_tokens > 0
    return found
