"""What this host offers: its model pairs, loaded once and shared, each with its measured speed of plain decoding."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.events import Event, FinishReason
from naive_speculate.infer.cores import leave_cores_to
from naive_speculate.serving import Engine, LocalEngine, Request, Unavailable
from naive_speculate.speculate.sequence import Detail
from naive_speculate.trace import Trace
from ui.settings import Settings

WARM_PROMPT = "Once upon a time there was"
PLAIN_RUNS = 5
PLAIN_TOKENS = 32
PLAIN_SECONDS = 5.0


class Trouble(ValueError):
    """A run could not be made, or ended in an error; the message says to the visitor what happened and what to do."""


@dataclass
class Offer:
    """One pair that visitors can use.

    Attributes:
        engine: What decodes; shared by all visitors, whose runs share no state.
        plain_rate: Tokens a second of plain decoding, measured once on this machine; None where it was not.
    """

    engine: Engine
    plain_rate: float | None = None

    @property
    def has_chat_template(self) -> bool:
        """Whether prompts can be wrapped for chatting."""
        return self.engine.about.chat

    def request(self, settings: Settings, *, detail: Detail = "full") -> Request:
        """What the engine is asked for.

        Raises:
            ValueError: Names the setting that cannot be.
        """
        if not settings.prompt.strip():
            raise ValueError("prompt is empty: write the beginning of a text")
        return Request(settings.prompt, settings.params(), **settings.decoding(), detail=detail, chat=settings.chat)

    def stream(self, settings: Settings, cancel: threading.Event, *, detail: Detail = "full") -> Iterator[Event]:
        """Decode for a visitor.

        Args:
            settings: What the visitor chose.
            cancel: Set it to end the run.
            detail: "none" where only tokens and times are wanted, for the numbers take time of their own.

        Raises:
            ValueError: Names the setting that cannot be.
            Trouble: If nothing decodes, or decoding failed; then after the run's last event.
        """
        return self.events(self.request(settings, detail=detail), cancel)

    def events(self, request: Request, cancel: threading.Event | None = None) -> Iterator[Event]:
        """The same for a request that is made already."""
        last = None
        try:
            for events in self.engine.submit(request, cancel):
                yield from events
                last = events[-1]
        except Unavailable as error:
            raise Trouble(str(error)) from None
        if last is not None and last.finish_reason == FinishReason.ERROR:
            raise Trouble(last.message)


def offer(target: str | None = None, draft: str | None = None, *, device: str = "auto", dtype: str = "auto") -> Offer:
    """Load a pair, warm it up and measure its plain decoding; arguments as for `load_pair`."""
    pair = load_pair(target, draft, device=device, dtype=dtype)
    leave_cores_to(pair.target)
    made = Offer(LocalEngine(SpeculativeDecoder(pair)))
    made.plain_rate = measure_plain(made)
    return made


def measure_plain(made: Offer) -> float | None:
    """Tokens a second of plain decoding: the best of a few short runs, none longer than `PLAIN_SECONDS`.

    The first one warms up and is left out, unless it took all of its time.
    """
    rates: list[float] = []
    for number in range(PLAIN_RUNS):
        trace = Trace(plain_run(made, WARM_PROMPT, PLAIN_TOKENS))
        slow = trace.finished is not None and trace.finished.finish_reason == FinishReason.CANCELLED
        if trace.metrics.tokens_per_second and (number > 0 or slow):
            rates.append(trace.metrics.tokens_per_second)
        if slow:
            break
    return max(rates, default=None)  # other work slows some runs down; the best flatters speculation least


def plain_run(made: Offer, prompt: str, tokens: int) -> Iterator[Event]:
    """A plain autoregressive run, ended after `PLAIN_SECONDS`."""
    cancel = threading.Event()
    timer = threading.Timer(PLAIN_SECONDS, cancel.set)
    timer.start()
    try:
        params = SamplingParams(max_tokens=tokens, seed=0, ignore_eos=True)
        yield from made.events(Request(prompt, params, num_draft_tokens=0), cancel)
    finally:
        timer.cancel()
