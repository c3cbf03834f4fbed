"""Makes a sequence's events from the records of its steps."""

import time
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from itertools import accumulate

from naive_speculate.events.event import (
    OUTPUT_KINDS,
    SCHEMA_VERSION,
    Event,
    EventKind,
    FinishReason,
    Logprob,
)
from naive_speculate.events.metrics import Summary
from naive_speculate.events.record import StepRecord
from naive_speculate.text import Vocabulary

_OF_STEP = (
    "draft_seconds",
    "verify_seconds",
    "total_seconds",
    "others",
    "typical_distances",
    "tree",
)
_UNJUDGED = {"draft_prob", "draft_top", "draft_entropy"}
_OF_TARGET = {"target_prob", "target_top", "target_entropy", "forced"}
_VERDICT = {"accept_prob", "uniform", "threshold", "draft_top_target", "target_top_draft"}


class Emitter:
    """Events of one sequence, in order.

    While a stop string may be forming, events from its first token on are held back; tokens of
    the string are then emitted as discarded. `known` are the tokens of a draft with another
    tokenizer; others are marked.
    """

    def __init__(
        self, vocabulary: Vocabulary, started: Event, known: Collection[int] | None = None
    ) -> None:
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
        at, k, accepted, texts = (
            record.ended_at - self._began,
            len(outcome.draft_token_ids),
            outcome.num_accepted,
            record.texts,
        )
        token, values = partial(self._token, at, record), set(outcome.values)
        events = [token(EventKind.PROPOSED, index, values - _VERDICT) for index in range(k)]
        if outcome.copied_from is not None:
            for index, event in enumerate(events):
                event.copied_from = outcome.copied_from + index
        judged = values if outcome.judges_all else _UNJUDGED
        events += [
            token(EventKind.ACCEPTED, index, values, texts[index])
            for index in range(min(accepted, len(texts)))
        ]
        events += [
            token(EventKind.DISCARDED, index, values, reason=str(finish))
            for index in range(len(texts), accepted)
        ]
        events += [token(EventKind.REJECTED, index, values) for index in range(accepted, k)[:1]]
        events += [
            token(EventKind.DISCARDED, index, judged, reason="rejected")
            for index in range(accepted + 1, k)
        ]
        if outcome.obstacle is None and accepted < len(texts):
            kind = EventKind.BONUS if accepted == k else EventKind.RESAMPLED
            events.append(token(kind, accepted, _OF_TARGET, texts[accepted], drafted=False))
        elif outcome.obstacle is None:
            text = self._vocabulary.text_of(outcome.next_token_id)
            events.append(
                token(EventKind.DISCARDED, accepted, _OF_TARGET, text, str(finish), drafted=False)
            )
        for event in events:
            if event.kind in (EventKind.REJECTED, EventKind.RESAMPLED):
                event.residual_top = outcome.residual_top
        own = {name: getattr(outcome, name) for name in _OF_STEP}
        events.append(
            Event(
                EventKind.STEP,
                self.row,
                at,
                record.number,
                num_draft=k,
                num_accepted=accepted,
                **own,
            )
        )
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
        end = Event(
            EventKind.FINISHED,
            self.row,
            time.perf_counter() - self._began,
            finish_reason=reason,
            message=message,
        )
        end.metrics, end.prompt_logprobs, end.stop_reason = (
            self._summary.metrics.to_dict(),
            prompt_logprobs,
            stop_reason,
        )
        return [*events, end]

    def _token(
        self,
        at: float,
        record: StepRecord,
        kind: EventKind,
        index: int,
        names: Collection[str],
        text: str | None = None,
        reason: str | None = None,
        *,
        drafted: bool = True,
    ) -> Event:
        """The event of a draft token, or of the step's last one, with these fields of the
        outcome."""
        outcome = record.outcome
        token_id = outcome.draft_token_ids[index] if drafted else outcome.next_token_id
        event = Event(
            kind, self.row, at, record.number, index, self._count + index, token_id, reason=reason
        )
        event.token = self._vocabulary.piece(token_id)
        event.text = record.draft_texts[index] if text is None else text
        if self._known is not None and token_id not in self._known:
            event.unknown_to_draft = True
        place = (
            index if drafted else len(outcome.draft_token_ids)
        )  # the last one's values follow those of the draft tokens
        for name in outcome.values.keys() & names:
            setattr(event, name, outcome.values[name][place])
        if kind in OUTPUT_KINDS and outcome.logprobs is not None and self._reports_logprobs:
            event.logprobs = outcome.logprobs[index]
        return event

    def _release(self, events: list[Event], settled: int | None) -> list[Event]:
        """Add events to the held ones and release all, or those in the settled part of the text."""
        self._held += events
        lengths = (
            len(event.text or "") if event.kind in OUTPUT_KINDS else 0 for event in self._held
        )
        ends = [*accumulate(lengths, initial=self._held_from)]
        number = len(self._held) if settled is None else sum(end <= settled for end in ends[1:])
        out, self._held, self._held_from = self._held[:number], self._held[number:], ends[number]
        for event in out:
            self._summary.add(event)
        return out

    def _cut(self, at: int) -> None:
        """End the text at `at`: a token that crosses it is shortened, later tokens are
        discarded."""
        begin = self._held_from
        for event in self._held:
            if event.kind not in OUTPUT_KINDS:
                continue
            text = event.text or ""
            if begin >= at:
                event.kind, event.reason, event.logprobs = (
                    EventKind.DISCARDED,
                    str(FinishReason.STOP),
                    None,
                )
            else:
                event.text = text[: at - begin]
            begin += len(text)
