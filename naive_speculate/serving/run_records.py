"""Reports every run to the operator: its figures and its outcome."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind
from naive_speculate.events.metrics import Summary
from naive_speculate.serving.protocol import (
    ANONYMOUS,
    About,
    Deliver,
    Engine,
    Load,
    Reader,
    Request,
)
from naive_speculate.speculate.sequence import CancelFlag


@dataclass
class RunRecord:
    """The figures of one run, for the operator."""

    request: Request  # the request. It holds the prompt, which is the visitor's
    seconds: float = 0.0  # from the request to the end
    wait_seconds: float | None = None  # until decoding began; None if it never did
    first_token_seconds: float | None = None  # until the first token; None if there was none
    prompt_tokens: int = 0
    num_drafts: int = 0  # steps with draft tokens, of all rows
    summary: Summary = field(default_factory=Summary)  # of all rows together
    # the finish reason; "abandoned" if the reader left before the end; "refused" if nothing was
    # decoded
    outcome: str = "abandoned"

    def add(self, event: Event, since: float) -> None:
        """Add an event that arrived `since` seconds after the request."""
        self.summary.add(event)
        if event.kind == EventKind.STARTED:
            self.wait_seconds = since if self.wait_seconds is None else self.wait_seconds
            self.prompt_tokens = len(event.prompt_token_ids or ())
        elif event.kind in OUTPUT_KINDS:
            self.first_token_seconds = (
                since if self.first_token_seconds is None else self.first_token_seconds
            )
        elif event.kind == EventKind.STEP:
            self.num_drafts += bool(event.num_draft)
        elif event.finish_reason is not None:
            self.outcome = str(event.finish_reason)

    @property
    def accepted_at(self) -> list[int]:
        """Number of accepted draft tokens per index of the window."""
        return list(accumulate(self.summary.metrics.acceptance_histogram[:0:-1]))[::-1]


Observer = Callable[[RunRecord], None]


class ObservedEngine(Engine):
    """Wraps an engine and reports every run to observers at its end.

    Observers are called in the thread that delivers, so they should be fast.
    """

    def __init__(self, engine: Engine, observers: Sequence[Observer]) -> None:
        self._engine = engine
        self._observers = observers

    @property
    def about(self) -> About:  # type: ignore[override]
        return self._engine.about

    def start(
        self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANONYMOUS
    ) -> None:
        record, began = RunRecord(request), time.monotonic()

        def over(outcome: str) -> None:
            record.seconds, record.outcome = time.monotonic() - began, outcome
            for observer in self._observers:
                observer(record)

        def delivered(item: list[Event] | Exception | None) -> None:
            try:
                if isinstance(item, list):
                    since = time.monotonic() - began
                    for event in item:
                        record.add(event, since)
                elif item is None:
                    over("abandoned" if getattr(cancel, "left", False) else record.outcome)
                else:
                    over("refused" if record.wait_seconds is None else "error")
            finally:
                deliver(item)

        try:
            self._engine.start(request, cancel, delivered, reader)
        except Exception:
            over("refused")
            raise

    def waiting_before(self, reader: Reader) -> int | None:
        return self._engine.waiting_before(reader)

    def load(self) -> Load:
        return self._engine.load()

    def close(self) -> None:
        self._engine.close()
