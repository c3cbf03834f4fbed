"""Makes a sequence's events from the records of its steps."""

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from naive_speculate.events.event import OUTPUT_KINDS, SCHEMA_VERSION, Event, EventKind, FinishReason, Logprob
from naive_speculate.events.metrics import Summary
from naive_speculate.events.record import Outcome, StepRecord
from naive_speculate.text import Vocabulary

_OF_STEP = ("draft_seconds", "verify_seconds", "total_seconds", "others", "typical_distances", "tree")
_UNJUDGED = ("draft_prob", "draft_top", "draft_entropy")
_OF_TARGET = ("target_prob", "target_top", "target_entropy", "forced")
_VERDICT = ("accept_prob", "uniform", "threshold", "draft_top_target", "target_top_draft")


class Emitter:
    """Events of one sequence, in order.

    While a stop string may be forming, events from its first token on are held back; tokens of the string are then emitted as
    discarded. `known` are the tokens of a draft with another tokenizer; others are marked.
    """

    def __init__(self, vocabulary: Vocabulary, started: Event, known: Collection[int] | None = None) -> None:
        self.row = started.row
        self._started = replace(started, schema_version=SCHEMA_VERSION)
        self._reports_logprobs = (started.settings or {}).get("logprobs") is not None
        self._vocabulary = vocabulary
        self._known = known
        self._began = time.perf_counter()
        self._summary = Summary()
        self._held: list[Event] = []
        self._held_from = 0  # length of the text before the held events
        self._count = 0
        self.over = False

    def started(self) -> list[Event]:
        """The `started` event; the run's clock starts now."""
        self._began = time.perf_counter()
        return self._release([self._started], None)

    def step(self, record: StepRecord) -> list[Event]:
        """A step's events, as far as they can be emitted now."""
        outcome, finish = record.outcome, record.finish_reason
        if not outcome.token_ids:
            return []
        at, drafts, accepted, texts = record.ended_at - self._began, outcome.draft_token_ids, outcome.num_accepted, record.texts
        judged = outcome.values
        proposed = {name: values for name, values in judged.items() if name not in _VERDICT}
        events = [self._draft(EventKind.PROPOSED, at, record, index, proposed) for index in range(len(drafts))]
        if outcome.copied_from is not None:
            for index, event in enumerate(events):
                event.copied_from = outcome.copied_from + index
        for index in range(accepted):
            if index < len(texts):
                events.append(self._draft(EventKind.ACCEPTED, at, record, index, judged, text=texts[index]))
                self._add_logprobs(events[-1], outcome, index)
            else:
                events.append(self._draft(EventKind.DISCARDED, at, record, index, judged, reason=str(finish)))
        if accepted < len(drafts):
            events.append(self._draft(EventKind.REJECTED, at, record, accepted, judged))
            events[-1].residual_top = outcome.residual_top
            known = {name: values for name, values in judged.items() if outcome.judges_all or name in _UNJUDGED}
            for index in range(accepted + 1, len(drafts)):
                events.append(self._draft(EventKind.DISCARDED, at, record, index, known, reason="rejected"))
        if outcome.obstacle is None:
            events.append(self._next_token(at, record))
        own = {name: getattr(outcome, name) for name in _OF_STEP}
        events.append(Event(EventKind.STEP, self.row, at, record.number, num_draft=len(drafts), num_accepted=accepted, **own))
        self._count += len(texts)
        if record.text_end is not None:
            self._held += events
            self._cut(record.text_end)
            return self._release([], None)
        return self._release(events, None if finish is not None else record.settled)

    def finished(
        self,
        reason: FinishReason,
        message: str | None = None,
        prompt_logprobs: list[dict[int, Logprob] | None] | None = None,
        stop_reason: int | str | None = None,
    ) -> list[Event]:
        """The `finished` event, after all held events."""
        self.over = True
        events = self._release([], None)
        metrics = self._summary.metrics.to_dict()
        at = time.perf_counter() - self._began
        end = Event(EventKind.FINISHED, self.row, at, finish_reason=reason, metrics=metrics, message=message)
        end.prompt_logprobs, end.stop_reason = prompt_logprobs, stop_reason
        return [*events, end]

    def _token(self, kind: EventKind, at: float, record: StepRecord, index: int, token_id: int, text: str) -> Event:
        event = Event(kind, self.row, at, record.number, index, self._count + index, token_id)
        event.token = self._vocabulary.piece(token_id)
        event.text = text
        if self._known is not None and token_id not in self._known:
            event.unknown_to_draft = True
        return event

    def _draft(
        self, kind: EventKind, at: float, record: StepRecord, index: int, known: dict[str, list[Any]], **own: str | None
    ) -> Event:
        """A draft token's event, with these fields of the outcome and its own text or reason."""
        text = own.get("text", record.draft_texts[index])
        event = self._token(kind, at, record, index, record.outcome.draft_token_ids[index], text or "")
        event.reason = own.get("reason")
        for name, values in known.items():
            setattr(event, name, values[index])
        return event

    def _next_token(self, at: float, record: StepRecord) -> Event:
        outcome, index = record.outcome, record.outcome.num_accepted
        resampled = index < len(outcome.draft_token_ids)
        if len(record.texts) > index:
            kind = EventKind.RESAMPLED if resampled else EventKind.BONUS
            event = self._token(kind, at, record, index, outcome.next_token_id, record.texts[index])
            event.residual_top = outcome.residual_top if resampled else None
            self._add_logprobs(event, outcome, index)
        else:
            text = self._vocabulary.text_of(outcome.next_token_id)
            event = self._token(EventKind.DISCARDED, at, record, index, outcome.next_token_id, text)
            event.reason = str(record.finish_reason)
        for name in outcome.values.keys() & _OF_TARGET:
            setattr(event, name, outcome.values[name][len(outcome.draft_token_ids)])  # after those of the draft tokens
        return event

    def _add_logprobs(self, event: Event, outcome: Outcome, index: int) -> None:
        if outcome.logprobs is not None and self._reports_logprobs:
            event.logprobs = outcome.logprobs[index]

    def _release(self, events: list[Event], settled: int | None) -> list[Event]:
        """Add events to the held ones and release all, or those in the settled part of the text."""
        self._held += events
        keep_from = len(self._held)
        if settled is not None:
            end = self._held_from
            for number, event in enumerate(self._held):
                if event.kind in OUTPUT_KINDS:
                    end += len(event.text or "")
                    if end > settled:
                        keep_from = number
                        break
        out, self._held = self._held[:keep_from], self._held[keep_from:]
        self._held_from += sum(len(event.text or "") for event in out if event.kind in OUTPUT_KINDS)
        for event in out:
            self._summary.add(event)
        return out

    def _cut(self, at: int) -> None:
        """End the text at `at`: a token that crosses it is shortened, later tokens are discarded."""
        begin = self._held_from
        for event in self._held:
            if event.kind not in OUTPUT_KINDS:
                continue
            text = event.text or ""
            if begin >= at:
                event.kind, event.reason, event.logprobs = EventKind.DISCARDED, str(FinishReason.STOP), None
            else:
                event.text = text[: at - begin]
            begin += len(text)
