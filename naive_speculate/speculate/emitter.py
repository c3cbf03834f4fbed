"""Turns what steps did to one sequence into its events, and finds where the sequence ends."""

import time
from collections.abc import Sequence as Seq
from typing import Any

from naive_speculate.events import OUTPUT_KINDS, SCHEMA_VERSION, Event, EventKind, FinishReason
from naive_speculate.metrics import summarize
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.record import StepRecord
from naive_speculate.text import StopStrings, TextStream, Vocabulary


class Emitter:
    """Events of one sequence, in order.

    While a stop string may be forming, events are held back from the first token concerned on; what the string takes with it
    is then told as discarded.

    Args:
        row: The sequence's number in its batch.
        vocabulary: The tokenizer.
        params: The request's parameters.
        prompt_token_ids: The prompt.
        stop_token_ids: Tokens that end the sequence.

    Attributes:
        history: The events that were told.
        num_kept: How many tokens of the output they hold; once the sequence has finished, all that are its own.
    """

    def __init__(
        self,
        row: int,
        vocabulary: Vocabulary,
        params: SamplingParams,
        prompt_token_ids: Seq[int],
        stop_token_ids: frozenset[int],
    ) -> None:
        self.row = row
        self._began = time.perf_counter()
        self.history: list[Event] = []
        self._vocabulary = vocabulary
        self._params = params
        self._stop_token_ids = stop_token_ids
        self._stream: TextStream | None = None
        if params.detokenize and vocabulary.tokenizer is not None:
            self._stream = TextStream(
                vocabulary, prompt_token_ids, params.skip_special_tokens, params.spaces_between_special_tokens
            )
        self._stops = StopStrings(params.stop, params.include_stop_str_in_output) if params.stop else None
        self._held: list[Event] = []
        self._held_from = 0  # where the text of the held events begins
        self._count = 0
        self.num_kept = 0

    def clock(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    def started(self, facts: dict[str, Any]) -> list[Event]:
        """The event that opens the run, which begins now."""
        self._began = time.perf_counter()
        return self._release([self._event(EventKind.STARTED, 0.0, schema_version=SCHEMA_VERSION, **facts)])

    def step(self, number: int, record: StepRecord, room: int) -> tuple[list[Event], int, FinishReason | None]:
        """Tell a step.

        Args:
            number: The step's number.
            record: What it did.
            room: How many tokens the sequence may still get.

        Returns:
            tuple: The events that can be told now; how many of the step's tokens belong to the sequence; and why it ends, if
            it does.
        """
        tokens = record.tokens
        texts, rest, finish, cut = self._read(tokens, record.drafts, room)
        draft_texts = texts[: len(record.drafts) - len(rest)] + rest
        events = [
            self._token(EventKind.PROPOSED, number, place, record, text=draft_texts[place])
            for place in range(len(record.drafts))
        ]
        for place in range(record.num_accepted):
            if place < len(texts):
                events.append(self._token(EventKind.ACCEPTED, number, place, record, text=texts[place]))
            else:
                events.append(self._discarded(number, place, record, draft_texts[place], str(finish)))
        if record.num_accepted < len(record.drafts):
            place = record.num_accepted
            events.append(self._token(EventKind.REJECTED, number, place, record, text=draft_texts[place]))
            for later in range(place + 1, len(record.drafts)):
                events.append(self._discarded(number, later, record, draft_texts[later], "rejected"))
        if not record.stuck:
            events.append(self._extra(number, record, texts[-1] if len(texts) == len(tokens) else None, finish))
        events.append(
            self._event(
                EventKind.STEP,
                record.time,
                step=number,
                num_draft=len(record.drafts),
                num_accepted=record.num_accepted,
                draft_seconds=record.draft_seconds,
                verify_seconds=record.verify_seconds,
                total_seconds=record.total_seconds,
            )
        )
        self._count += len(texts)
        return self._release(events, cut, finish is not None), len(texts), finish

    def finished(self, reason: FinishReason, message: str | None = None) -> list[Event]:
        """The event that closes the run; whatever was held back comes before it."""
        events = self._release([], None, True)
        metrics = summarize(self.history).to_dict()
        return events + self._release(
            [self._event(EventKind.FINISHED, self.clock(), finish_reason=reason, metrics=metrics, message=message)]
        )

    def _read(
        self, tokens: list[int], drafts: list[int], room: int
    ) -> tuple[list[str], list[str], FinishReason | None, int | None]:
        """Texts of the step's tokens up to the sequence's end, and of the drafts that are not among them; why it ends; where a
        stop string cuts the text."""
        texts: list[str] = []
        rest: list[str] = []
        for place, token in enumerate(tokens):
            if place == len(tokens) - 1:  # the token behind the kept drafts, in whose place another may have been drafted
                rest = self._draft_texts(drafts[place:])
            text = "" if self._stream is None else self._stream.append(token)
            texts.append(text)
            generated = self._count + len(texts)
            cut = None
            if self._stops is not None:
                cut = self._stops.append(text, search=generated > self._params.min_tokens)
            ended_by_token = token in self._stop_token_ids
            if cut is not None or ended_by_token or len(texts) == room:
                reason = FinishReason.LENGTH if cut is None and not ended_by_token else FinishReason.STOP
                if place < len(tokens) - 1:
                    rest = [text, *self._draft_texts(drafts[place + 1 :])]
                if self._stream is not None and cut is None:
                    texts[-1] += self._stream.flush()
                return texts, rest, reason, cut
        return texts, rest, None, None

    def _draft_texts(self, drafts: list[int]) -> list[str]:
        if self._stream is None or not drafts:
            return [""] * len(drafts)
        stream = self._stream.fork()
        return [stream.append(token) for token in drafts]

    def _release(self, events: list[Event], cut: int | None = None, everything: bool = True) -> list[Event]:
        """Add events to those held back and take out what can be told."""
        self._held += events
        if cut is not None:
            self._cut(cut)
        keep_from = len(self._held)
        if self._stops is not None and not everything:
            safe, end = self._stops.safe_length, self._held_from
            for number, event in enumerate(self._held):
                if event.kind in OUTPUT_KINDS:
                    end += len(event.text or "")
                    if end > safe:
                        keep_from = number
                        break
        out, self._held = self._held[:keep_from], self._held[keep_from:]
        kept = [event for event in out if event.kind in OUTPUT_KINDS]
        self.num_kept += len(kept)
        self._held_from += sum(len(event.text or "") for event in kept)
        self.history += out
        return out

    def _cut(self, at: int) -> None:
        """End the text at `at`: a token that reaches over it is shortened, tokens behind it are discarded."""
        begin = self._held_from
        for event in self._held:
            if event.kind not in OUTPUT_KINDS:
                continue
            text = event.text or ""
            if begin >= at:
                event.kind, event.reason = EventKind.DISCARDED, str(FinishReason.STOP)
            else:
                event.text = text[: at - begin]
            begin += len(text)

    def _event(self, kind: EventKind, time: float, **facts: Any) -> Event:
        return Event(kind, self.row, time, **facts)

    def _token(self, kind: EventKind, step: int, place: int, record: StepRecord, *, text: str, extra: bool = False) -> Event:
        token_id = record.extra if extra else record.drafts[place]
        event = Event(kind, self.row, record.time, step, place, self._count + place, token_id)
        event.token = self._vocabulary.piece(token_id)
        event.text = text
        seen = len(record.drafts) if extra else place  # in the target's lists the extra token stands behind the drafts
        if record.target_probs is not None:
            event.target_prob = record.target_probs[seen]
        if record.target_tops is not None and record.target_entropies is not None:
            event.target_top, event.target_entropy = record.target_tops[seen], record.target_entropies[seen]
        if kind == EventKind.RESAMPLED or kind == EventKind.REJECTED:
            event.residual_top = record.residual_top
        if extra:
            return event
        if record.draft_probs is not None:
            event.draft_prob = record.draft_probs[place]
        if record.draft_tops is not None and record.draft_entropies is not None:
            event.draft_top, event.draft_entropy = record.draft_tops[place], record.draft_entropies[place]
        if kind != EventKind.PROPOSED:
            self._add_verdict(event, place, record)
        return event

    def _extra(self, step: int, record: StepRecord, text: str | None, finish: FinishReason | None) -> Event:
        """The token behind the kept drafts; without a text, the output has ended before it."""
        if text is None:
            text = self._vocabulary.text_of(record.extra)
            event = self._token(EventKind.DISCARDED, step, record.num_accepted, record, text=text, extra=True)
            event.reason = str(finish)
            return event
        kind = EventKind.RESAMPLED if record.num_accepted < len(record.drafts) else EventKind.BONUS
        return self._token(kind, step, record.num_accepted, record, text=text, extra=True)

    def _add_verdict(self, event: Event, place: int, record: StepRecord) -> None:
        if record.accept_probs is not None:
            event.accept_prob = record.accept_probs[place]
        if record.uniforms is not None:
            event.uniform = record.uniforms[place]
        if record.thresholds is not None:
            event.threshold = record.thresholds[place]

    def _discarded(self, step: int, place: int, record: StepRecord, text: str, reason: str) -> Event:
        """A draft that was dropped; its verdict is told only where it was judged."""
        event = self._token(EventKind.DISCARDED, step, place, record, text=text)
        event.reason = reason
        if reason == "rejected" and not record.judges_all:
            event.accept_prob = event.uniform = event.threshold = None
            event.target_prob = event.target_top = event.target_entropy = None
        return event
