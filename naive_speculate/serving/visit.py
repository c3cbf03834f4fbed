"""A visitor's run between page and engine: its figures for the operator, its failure in words."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind
from naive_speculate.events.metrics import Summary
from naive_speculate.serving.protocol import (
    ANONYMOUS,
    Deliver,
    Engine,
    Item,
    Reader,
    ReaderFlag,
    Request,
    Unavailable,
    submitted,
)
from naive_speculate.speculate.sequence import CancelFlag


class Trouble(ValueError):
    """A run could not start or ended in an error; its message is for the visitor."""


def for_visitor(error: Exception) -> Exception:
    return Trouble(str(error)) if isinstance(error, Unavailable) else error


@dataclass
class Visit:
    """One run of a visitor. At its end, observers get its figures in the thread that delivers."""

    request: Request  # as the engine decodes it, with the visitor's prompt
    observers: "Sequence[Observer]" = ()
    seconds: float = 0.0  # from the request to the end
    wait_seconds: float | None = None  # until decoding began; None if it never did
    first_token_seconds: float | None = None  # until the first token; None if there was none
    prompt_tokens: int = 0
    num_drafts: int = 0  # steps with draft tokens, of all rows
    summary: Summary = field(default_factory=Summary)  # of all rows together
    # the finish reason; "abandoned" if the reader left; "refused" if nothing was decoded
    outcome: str = "abandoned"
    message: str | None = None  # why decoding failed

    def start(
        self, engine: Engine, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANONYMOUS
    ) -> None:
        """Decode (see `Engine.start`). An engine that is unavailable raises `Trouble`, here or
        delivered; so is the failure of the decoding, after its last event."""
        began = time.monotonic()

        def end(outcome: str) -> None:
            self.seconds, self.outcome = time.monotonic() - began, outcome
            for observer in self.observers:
                observer(self)

        def receive(item: Item) -> None:
            try:
                if isinstance(item, list):
                    since = time.monotonic() - began
                    for event in item:
                        self.add(event, since)
                elif item is None:
                    item = None if self.message is None else Trouble(self.message)
                    left = isinstance(cancel, ReaderFlag) and cancel.left
                    end("abandoned" if left else self.outcome)
                else:
                    item = for_visitor(item)
                    end("refused" if self.wait_seconds is None else "error")
            finally:
                deliver(item)

        try:
            engine.start(self.request, cancel, receive, reader)
        except Exception as error:
            end("refused")
            raise for_visitor(error) from None

    def submit(
        self, engine: Engine, cancel: CancelFlag | None = None, reader: Reader = ANONYMOUS
    ) -> Iterator[list[Event]]:
        """For a reader with a thread of its own (see `Engine.submit`)."""
        return submitted(partial(self.start, engine, reader=reader), cancel)

    def add(self, event: Event, since: float) -> None:
        """`since`: seconds from the request to the event."""
        self.summary.add(event)
        if event.kind == EventKind.STARTED:
            self.wait_seconds = since if self.wait_seconds is None else self.wait_seconds
            self.prompt_tokens = len(event.prompt_token_ids or ())
        elif event.kind in OUTPUT_KINDS:
            first = self.first_token_seconds
            self.first_token_seconds = since if first is None else first
        elif event.kind == EventKind.STEP:
            self.num_drafts += bool(event.num_draft)
        elif event.finish_reason is not None:
            self.outcome, self.message = str(event.finish_reason), event.message

    @property
    def accepted_at(self) -> list[int]:
        """Number of accepted draft tokens per index of the window."""
        return list(accumulate(self.summary.metrics.acceptance_histogram[:0:-1]))[::-1]


Observer = Callable[[Visit], None]
