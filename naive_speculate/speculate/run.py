"""One request while it is decoded: its rows and their events, the loop over steps, and what
`SpeculativeDecoder.generate` makes of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from naive_speculate.events.emitter import Emitter
from naive_speculate.events.event import Event, FinishReason, Logprob, plain_logprobs
from naive_speculate.events.metrics import Metrics
from naive_speculate.events.record import StepRecord
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.batch import Batch, PartialStepError
from naive_speculate.speculate.sequence import SequenceState


class Run:
    """A request's sequences, n or best_of of them, which share the prompt and the seed, and
    their events."""

    def __init__(self, rows: Sequence[SequenceState], emitters: Sequence[Emitter]) -> None:
        self.rows = list(rows)
        self._emitters = dict(zip(rows, emitters, strict=True))

    @property
    def going_on(self) -> list[SequenceState]:
        """Rows that have not ended."""
        return [row for row in self.rows if not row.ended]

    @property
    def over(self) -> bool:
        """Whether all rows have ended."""
        return all(row.ended for row in self.rows)

    def started(self) -> list[Event]:
        """The events that open the run, which begins now."""
        return [event for emitter in self._emitters.values() for event in emitter.started()]

    def events(self, records: Mapping[SequenceState, StepRecord]) -> list[Event]:
        """This run's events of a step, and of rows that have ended."""
        events: list[Event] = []
        for row, emitter in self._emitters.items():
            if row in records:
                events += emitter.step(records[row])
            if row.finish_reason is not None and not emitter.over:
                prompt_logprobs = None if row.wants_prompt_logprobs else row.prompt_logprobs
                events += emitter.finished(
                    row.finish_reason, row.message, prompt_logprobs, row.stop_reason
                )
        return events

    def end(self, reason: FinishReason, message: str | None = None) -> list[Event]:
        """End all rows that go on; returns their last events."""
        for row in self.going_on:
            row.end(reason, message)
        return self.events({})


def decode(batch: Batch, runs: Sequence[Run]) -> Iterator[list[Event]]:
    """Decode runs as one batch, until all of their rows have ended; yields their events, step by
    step."""
    rows = [row for run in runs for row in run.rows]
    try:
        for run in runs:
            batch.admit(run.rows)
            yield run.started()
        going_on = [row for row in rows if not row.ended]
        while going_on:
            records = batch.step(going_on)
            for run in runs:
                yield run.events(records)
            if ended := [row for row in going_on if row.finish_reason is not None]:
                batch.release(ended)
                going_on = [row for row in going_on if not row.ended]
    except PartialStepError as error:
        raise error.cause from None
    finally:
        batch.release(rows)


@dataclass(slots=True)
class GenerationResult:
    """One decoded sequence.

    Attributes:
        text: The generated text.
        token_ids: The generated tokens, an end-of-sequence or stop token included.
        finish_reason: Why it ended.
        trace: Its events.
        metrics: Its metrics.
        logprobs: For each generated token, log-probabilities by token id; None unless requested.
        prompt_logprobs: The same for the prompt, with None for the first token, which nothing
            predicts; None unless requested, and for a run that ended before its prompt was read.
        cumulative_logprob: Sum of the generated tokens' log-probabilities; None for a single
            sequence without logprobs.
        outputs: All n sequences, the most probable first, which is this one.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    trace: Trace
    metrics: Metrics
    logprobs: list[dict[int, Logprob]] | None = None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    cumulative_logprob: float | None = None
    outputs: list["GenerationResult"] = field(default_factory=list, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON values, without its events; `outputs` is empty where there is
        only one."""
        outputs = self.outputs if len(self.outputs) > 1 else []
        return {
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason.value,
            "metrics": self.metrics.to_dict(),
            **{
                name: (entries := getattr(self, name)) and plain_logprobs(entries)
                for name in ("logprobs", "prompt_logprobs")
            },
            "cumulative_logprob": self.cumulative_logprob,
            "outputs": [
                replace(output, outputs=[]).to_dict() for output in outputs
            ],  # this one is among them
        }


def collect(runs: Sequence[Run], events: Iterable[Sequence[Event]]) -> list[GenerationResult]:
    """Results of finished runs, from their events, step by step."""
    by_row: dict[int, list[Event]] = {row.row: [] for run in runs for row in run.rows}
    for of_step in events:
        for event in of_step:
            by_row[event.row].append(event)
    results = []
    for run in runs:
        outputs = [_result(row, Trace(by_row[row.row])) for row in run.rows]
        if len(outputs) > 1:
            outputs.sort(
                key=lambda o: (o.finish_reason != FinishReason.ERROR, o.cumulative_logprob or 0.0),
                reverse=True,
            )
        outputs = outputs[: run.rows[0].params.n]
        outputs[0].outputs = list(outputs)
        results.append(outputs[0])
    return results


def _result(row: SequenceState, trace: Trace) -> GenerationResult:
    assert row.finish_reason is not None
    token_ids = trace.token_ids
    logprobs = row.logprobs[: len(token_ids)]
    total = (
        sum(entry[token].logprob for entry, token in zip(logprobs, token_ids, strict=True))
        if row.wants_logprobs
        else None
    )
    return GenerationResult(
        text=trace.text,
        token_ids=token_ids,
        finish_reason=row.finish_reason,
        trace=trace,
        metrics=trace.metrics,
        logprobs=logprobs if row.params.logprobs is not None else None,
        prompt_logprobs=None if row.wants_prompt_logprobs else row.prompt_logprobs,
        cumulative_logprob=total,
    )
