"""One request while it is decoded: its rows and their events."""

from collections.abc import Mapping, Sequence

from naive_speculate.events.emitter import Emitter
from naive_speculate.events.event import Event, FinishReason
from naive_speculate.events.record import StepRecord
from naive_speculate.speculate.sequence import SequenceState


class Run:
    """A request's sequences, n or best_of of them, and their events. `rows`: the sequences, which share the prompt and the
    seed."""

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
        found: list[Event] = []
        for row, emitter in self._emitters.items():
            if row in records:
                found += emitter.step(records[row])
            if row.finish_reason is not None and not emitter.over:
                prompt_logprobs = None if row.wants_prompt_logprobs else row.prompt_logprobs
                found += emitter.finished(row.finish_reason, row.message, prompt_logprobs, row.stop_reason)
        return found

    def end(self, reason: FinishReason, message: str | None = None) -> list[Event]:
        """End all rows that go on; returns their last events."""
        for row in self.going_on:
            row.end(reason, message)
        return self.events({})
