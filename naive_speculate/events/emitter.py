"""Makes a sequence's events from the records of its steps."""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace

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

_COUNTED_TOGETHER = 256  # events: the figures are needed at the end only
_OF_TARGET = {"target_prob", "target_top", "target_entropy", "forced"}
_DECIDED = {"accept_prob", "threshold", "expected_accept", "forced"} | {
    "sampled_accept", "argmax_accept", "matched_accept"
}  # fmt: skip
"""What a draft token has only if it was judged. One pass scores them all, and draws are made for
the whole window."""
_VERDICT = {"accept_prob", "uniform", "threshold", "draft_top_target", "target_top_draft"}


class Emitter:
    """Turns the step records of one sequence into events.

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
        self._summary, self._not_counted = Summary(), list[Event]()
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
        outcome = record.outcome
        if outcome.obstacle is not None and not outcome.num_accepted:
            return []
        events = self._tokens(record)
        event = Event(EventKind.STEP, self.row, record.ended_at - self._began, record.number)
        event.num_draft, event.num_accepted = len(outcome.draft_token_ids), outcome.num_accepted
        event.draft_seconds, event.verify_seconds = outcome.draft_seconds, outcome.verify_seconds
        event.total_seconds, event.tree = outcome.total_seconds, outcome.tree
        event.others, event.typical_distances = outcome.others, outcome.typical_distances
        event.target_top = outcome.unused_top
        events.append(event)
        self._count += len(record.texts)
        if record.text_end is not None:
            self._held += events
            self._cut(record.text_end)
            return self._release([], None)
        return self._release(events, None if record.finish_reason else record.settled)

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
        self._add_up()
        end.metrics, end.prompt_logprobs, end.stop_reason = (
            self._summary.metrics.to_dict(),
            prompt_logprobs,
            stop_reason,
        )
        return [*events, end]

    def _tokens(self, record: StepRecord) -> list[Event]:
        """The events of a step's draft tokens, and of the token after the accepted ones."""
        outcome, texts, names = record.outcome, record.texts, set(record.outcome.values)
        k, accepted, kept = len(outcome.draft_token_ids), outcome.num_accepted, len(texts)
        judged_only = _DECIDED if outcome.tree is None else _DECIDED | {"uniform"}
        unjudged = names if outcome.judges_all else names - judged_only
        cut = str(record.finish_reason)
        groups: list[tuple[EventKind, Sequence[int], set[str], str | None]] = [
            (EventKind.PROPOSED, range(k), names - _VERDICT, None),
            (EventKind.ACCEPTED, range(min(accepted, kept)), names, None),
            (EventKind.DISCARDED, range(kept, accepted), names, cut),
            (EventKind.REJECTED, range(accepted, k)[:1], names, None),
            (EventKind.DISCARDED, range(accepted + 1, k), unjudged, "rejected"),
        ]
        if outcome.obstacle is None:
            own = EventKind.BONUS if accepted == k else EventKind.RESAMPLED
            last = (own, None) if accepted < kept else (EventKind.DISCARDED, cut)
            groups.append((last[0], [k], _OF_TARGET, last[1]))
        token_ids = [*outcome.draft_token_ids, outcome.next_token_id]
        pieces = list(map(self._vocabulary.piece, token_ids))
        events = []
        for kind, places, fields, reason in groups:
            for place in places:  # of the values; those of the last token follow the drafts'
                event = self._token(kind, record, place, token_ids[place])
                event.token, event.reason = pieces[place], reason
                for name in fields & names:
                    setattr(event, name, outcome.values[name][place])
                events.append(event)
        return events

    def _token(self, kind: EventKind, record: StepRecord, place: int, token_id: int) -> Event:
        """The event of a draft token, or of the step's last one, without its values."""
        outcome, at = record.outcome, record.ended_at - self._began
        drafted = place < len(outcome.draft_token_ids)
        index = place if drafted else outcome.num_accepted
        event = Event(kind, self.row, at, record.number, index, self._count + index, token_id)
        if kind in OUTPUT_KINDS:
            event.text = record.texts[index]
            if outcome.logprobs is not None and self._reports_logprobs:
                event.logprobs = outcome.logprobs[index]
        elif drafted:
            event.text = record.draft_texts[index]
        else:
            event.text = self._vocabulary.text_of(token_id)
        if kind == EventKind.PROPOSED and outcome.copied_from is not None:
            event.copied_from = outcome.copied_from + index
        if kind in (EventKind.REJECTED, EventKind.RESAMPLED):
            event.residual_top = outcome.residual_top
        if self._known is not None and token_id not in self._known:
            event.unknown_to_draft = True
        return event

    def _release(self, events: list[Event], settled: int | None) -> list[Event]:
        """Add events to the held ones and release all, or those in the settled part of the text."""
        if settled is None:
            released, self._held = [*self._held, *events], []
        else:
            self._held += events
            number, end = 0, self._held_from
            for event in self._held:
                end += len(event.text or "") if event.kind in OUTPUT_KINDS else 0
                if end > settled:
                    break
                number, self._held_from = number + 1, end
            released, self._held = self._held[:number], self._held[number:]
        self._not_counted += released
        if len(self._not_counted) >= _COUNTED_TOGETHER:
            self._add_up()
        return released

    def _add_up(self) -> None:
        self._summary.add_all(self._not_counted)
        self._not_counted.clear()

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
