"""Rows of a batch, for tests that step it themselves."""

from naive_speculate import SamplingParams, SpeculativeDecoder
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
