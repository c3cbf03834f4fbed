"""What this host offers: its model pairs, loaded once and shared, each with its measured speed of plain decoding."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.events import Event, FinishReason
from naive_speculate.infer.cores import leave_cores_to
from naive_speculate.serving import Engine, Load, LocalEngine, Request, SoloEngine, Unavailable
from naive_speculate.serving.observed import ObservedEngine, Observer
from naive_speculate.speculate.sequence import CancelFlag, Detail
from naive_speculate.trace import Trace
from ui.host.configuration import Hosting
from ui.host.zero import on_zero_gpu, zero_gpu
from ui.run.settings import MAX_TOKENS, Settings

DECODING = "decoding"
"""What Gradio's queue calls the runs that wait for a place."""
WARM_PROMPT = "Once upon a time there was"
PLAIN_RUNS = 5
PLAIN_TOKENS = 32
PLAIN_SECONDS = 5.0


class Trouble(ValueError):
    """A run could not be made, or ended in an error; the message says to the visitor what happened and what to do."""


@dataclass
class Hosted:
    """One pair on offer.

    Attributes:
        engine: What decodes with it; shared by all visitors, whose runs share no state.
        plain_rate: Tokens a second of plain decoding, measured once on this machine; None where it was not.
    """

    engine: Engine
    plain_rate: float | None = None


@dataclass
class Offer:
    """What visitors can use.

    Attributes:
        pairs: By name; the first is the usual one.
        max_tokens: Most tokens that a run may have.
        concurrency: Most runs that are decoded together.
    """

    pairs: dict[str, Hosted]
    max_tokens: int = MAX_TOKENS
    concurrency: int = 16

    @property
    def has_chat_template(self) -> bool:
        """Whether prompts can be wrapped for chatting."""
        return any(hosted.engine.about.chat for hosted in self.pairs.values())

    def of(self, settings: Settings) -> Hosted:
        """The pair that the visitor chose.

        Raises:
            ValueError: If it is not on offer.
        """
        name = settings.pair or next(iter(self.pairs))
        if name not in self.pairs:
            raise ValueError(f"pair must be one of {', '.join(self.pairs)}, got {name!r:.80}")
        return self.pairs[name]

    def load(self) -> Load:
        """How busy all of it is."""
        every = [hosted.engine.load() for hosted in self.pairs.values()]
        return Load(
            ready=any(load.ready for load in every),
            running=sum(load.running for load in every),
            waiting=sum(load.waiting for load in every),
            capacity=sum(load.capacity for load in every),
            replicas=sum(load.replicas for load in every),
        )

    def queue(self, settings: Settings) -> str:
        """What a visitor is told whose run will have to wait; empty where it will not."""
        load = self.of(settings).engine.load()
        if load.ready and load.running + load.waiting < load.capacity:
            return ""
        if load.capacity == 0:
            return "Nothing decodes at the moment. Your run begins as soon as a decoder is back."
        others = f", and {load.waiting} wait" if load.waiting else ""
        return f"All {load.capacity} places are taken{others}. Your run begins as soon as one is free."

    def close(self) -> None:
        """Cancel what runs; the server stops."""
        for hosted in self.pairs.values():
            hosted.engine.close()

    def request(self, settings: Settings, *, detail: Detail = "full") -> Request:
        """What the engine is asked for.

        Raises:
            ValueError: Names the setting that cannot be.
        """
        if not settings.prompt.strip():
            raise ValueError("prompt is empty: write the beginning of a text")
        if settings.max_tokens > self.max_tokens:
            raise ValueError(f"max_tokens may be {self.max_tokens} on this page, got {settings.max_tokens}")
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
        return run_events(self.of(settings).engine, self.request(settings, detail=detail), cancel)


def run_events(engine: Engine, request: Request, cancel: CancelFlag | None = None) -> Iterator[Event]:
    """A run's events one by one.

    Raises:
        ValueError: Names the setting that cannot be.
        Trouble: If nothing decodes, or decoding failed; then after the run's last event.
    """
    last = None
    try:
        for events in engine.submit(request, cancel):
            for last in events:
                yield last
    except Unavailable as error:
        raise Trouble(str(error)) from None
    if last is not None and last.finish_reason == FinishReason.ERROR:
        raise Trouble(last.message)


def join_offer(hosting: Hosting, engines: Mapping[str, Engine], observers: Sequence[Observer] = ()) -> Offer:
    """What a cluster's engines offer; measures their plain decoding.

    All runs are passed on at once, as many as may wait too, when the cluster is as large as it may become: it grows by those
    that wait in it.
    """
    capacity = sum(engine.about.capacity for engine in engines.values())
    offer = Offer({}, max_tokens=hosting.max_tokens, concurrency=capacity + hosting.queue_size)
    for name, engine in engines.items():
        rate = measure_plain(engine)
        offer.pairs[name] = Hosted(ObservedEngine(engine, observers) if observers else engine, rate)
    return offer


def load_offer(hosting: Hosting, observers: Sequence[Observer] = ()) -> Offer:
    """Load the operator's pairs, warm them up and measure their plain decoding.

    Raises:
        ValueError: If a pair cannot be loaded.
        OSError: Likewise.
    """
    offer = Offer({}, max_tokens=hosting.max_tokens, concurrency=hosting.concurrency)
    for choice in hosting.pairs:
        pair = load_pair(choice.target, choice.draft, device=hosting.device, dtype=hosting.dtype)
        leave_cores_to(pair.target)
        decoder = SpeculativeDecoder(pair)
        engine: Engine
        if zero_gpu():  # there is no GPU outside of a run, so nothing can be measured now
            engine, rate = SoloEngine(decoder, wrap=on_zero_gpu, max_prompt_tokens=hosting.max_prompt_tokens), None
        else:
            engine = LocalEngine(
                decoder,
                max_rows=hosting.concurrency,
                max_prompt_tokens=hosting.max_prompt_tokens,
            )
            rate = measure_plain(engine)
        offer.pairs[choice.name] = Hosted(ObservedEngine(engine, observers) if observers else engine, rate)
    return offer


def measure_plain(engine: Engine) -> float | None:
    """Tokens a second of plain decoding: the best of a few short runs, none longer than `PLAIN_SECONDS`.

    The first one warms up and is left out, unless it took all of its time.
    """
    rates: list[float] = []
    for number in range(PLAIN_RUNS):
        trace = Trace(plain_run(engine, WARM_PROMPT, PLAIN_TOKENS))
        slow = trace.finished is not None and trace.finished.finish_reason == FinishReason.CANCELLED
        if trace.metrics.tokens_per_second and (number > 0 or slow):
            rates.append(trace.metrics.tokens_per_second)
        if slow:
            break
    return max(rates, default=None)  # other work slows some runs down; the best flatters speculation least


def plain_run(engine: Engine, prompt: str, tokens: int) -> Iterator[Event]:
    """A plain autoregressive run, ended after `PLAIN_SECONDS`."""
    cancel = threading.Event()
    timer = threading.Timer(PLAIN_SECONDS, cancel.set)
    timer.start()
    try:
        params = SamplingParams(max_tokens=tokens, seed=0, ignore_eos=True)
        yield from run_events(engine, Request(prompt, params, num_draft_tokens=0), cancel)
    finally:
        timer.cancel()
