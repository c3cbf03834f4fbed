"""The catalog: the model pairs of this page, loaded once and shared by all visitors."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.events import Event, MeasuredSpeedup
from naive_speculate.models.known import KNOWN, KnownPair
from naive_speculate.models.threads import leave_cores_to
from naive_speculate.serving import About, Engine, Later, Load, LocalEngine, Request, SoloEngine
from naive_speculate.serving.protocol import Deliver, Reader
from naive_speculate.serving.visit import Observer, Visit
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.sequence import CancelFlag
from naive_speculate.text import one_line
from ui.checks import MAX_DRAFT_TOKENS, RANGES, out_of_range
from ui.host.configuration import (
    MAX_TOKENS,
    Configuration,
    PairChoice,
    cluster_engines,
    log_progress,
)
from ui.host.measuring import Measuring, NotMeasured
from ui.host.visitors import visitor
from ui.host.zero import on_zero_gpu, zero_gpu
from ui.labels import count

DECODING = "decoding"  # the concurrency id of decoding calls in Gradio's queue
# most draft tokens per step: with 64, one row makes tokens of the other rows five times slower
WARM_PROMPT = "Once upon a time there was"
WARM_RUNS = 2
WARM_TOKENS = 16
LOADING = "{} is loading. Its runs start as soon as it is ready."
NEVER = "This host does not measure runs."
TALES = "Tales (small, trained with its drafters)"  # the bundled pair's label
TALES_TARGET = "bundled target"
MISSING = "{} cannot be loaded: {}. The default is now {}."
ELSEWHERE = (
    "The run was decoded on another machine, which may be busy, so it cannot be measured here."
)

_log = logging.getLogger(__name__)


@dataclass
class ServedPair:
    engine: Engine  # the pair's engine; all visitors share it, but their runs share no state
    measurable: bool = False  # whether this process can measure it
    filter_words: str | None = (
        None  # the list of words that are never generated, as in `SamplingParams`
    )
    target: str | None = None  # the target, as for `load_pair`; None for the bundled one

    @property
    def is_tales(self) -> bool:
        """Whether this is the bundled pair, which was trained on tales."""
        return self.engine.about.models.get("target") == TALES_TARGET

    @property
    def drafters(self) -> list[str]:
        """The registered drafters that this pair can use."""
        models = self.engine.about.models
        return [name for name in DRAFTERS if DRAFTERS[name].role in models]

    @property
    def drawing(self) -> str:
        """The drafter of lessons and experiments, which draws from a distribution of its own:
        the draft model, else a head. Raises `ValueError` if the pair has neither."""
        for name in ("model", "head", "mtp", "block", "assistant"):
            if name in self.drafters:
                return name
        raise ValueError("this needs a draft model or a draft head, and these models have none")

    def suited(self, request: Request) -> Request:
        """The request adapted to this pair: without a chat template if it has none, and with the
        host's word filter. Raises `ValueError`, in the page's words, for a drafter that this
        pair lacks."""
        able = self.drafters
        if (
            request.drafter in DRAFTERS
            and request.drafter not in able
            and request.num_draft_tokens != 0
        ):
            others = ", ".join(DRAFTERS[name].title for name in able)
            raise ValueError(
                f"drafter must be one of {others}, got {DRAFTERS[str(request.drafter)].title}"
            )
        if request.chat and not self.engine.about.chat:
            request = replace(request, chat=False)
        if self.filter_words is not None:
            request = replace(
                request, params=replace(request.params, filter_words=self.filter_words)
            )
        return request


@dataclass
class Catalog:
    pairs: dict[str, ServedPair]  # the pairs by name; the first is the default
    max_tokens: int = MAX_TOKENS  # most tokens per run
    concurrency: int | None = 16  # most runs passed to the engines at once; None for no limit
    measuring: bool = True  # whether a finished run is decoded again for comparison
    # engines whose pairs are not loaded at the start
    deferred: dict[str, LocalEngine] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # why a pair could not be loaded, by name
    settled: Callable[[], None] = lambda: None  # called when `load_later` is done
    observers: Sequence[Observer] = ()  # of visitors' runs

    def __post_init__(self) -> None:
        self._measurer = Measuring(self._quiet)

    @property
    def labels(self) -> dict[str, str]:
        return {name: TALES if served.is_tales else name for name, served in self.pairs.items()}

    @property
    def loading(self) -> list[str]:
        return [name for name, engine in self.deferred.items() if engine.loading]

    @property
    def notices(self) -> list[str]:
        """A line per pair that is not ready."""
        default = next(iter(self.labels.values()), "")
        missing = [MISSING.format(name, reason, default) for name, reason in self.missing.items()]
        return [LOADING.format(name) for name in self.loading] + missing

    def of(self, name: str) -> ServedPair:
        """The pair of that name; the default for an empty name. Raises ValueError if there is no
        such pair."""
        if name and name not in self.pairs:
            raise ValueError(f"pair must be one of {', '.join(self.pairs)}, got {name!r:.80}")
        return self.pairs[name or next(iter(self.pairs))]

    def load(self) -> Load:
        every = [self._load_of(served) for served in self.pairs.values()]
        stuck = next((load.reason for load in every if load.stuck), "")
        return Load(
            ready=any(load.ready for load in every) and not stuck,
            running=sum(load.running for load in every),
            waiting=sum(load.waiting for load in every),
            capacity=sum(load.capacity for load in every),
            replicas=sum(load.replicas for load in every),
            reason=stuck
            or next((load.reason for load in every if not load.ready), "")
            or " ".join(self.notices),
            stuck=bool(stuck),
        )

    def queue(self, pair: str) -> str:
        """The message for a visitor whose run must wait; empty if it need not."""
        load = self._load_of(self.of(pair))
        if (pair or next(iter(self.pairs))) in self.loading:
            return load.reason
        if load.ready and load.running + load.waiting < load.capacity:
            return ""
        if load.capacity == 0:
            return "No decoder is running. Your run starts as soon as one is back."
        before = self.of(pair).engine.waiting_before(Reader(*visitor()))
        if before is None:
            return ""
        busy = (
            f"{load.capacity} of {load.capacity} decoder slots are busy, with"
            f" {count(before, 'run')} ahead of yours."
        )
        if load.run_seconds is None:
            return f"{busy} Your run starts as soon as a slot is free."
        seconds = math.ceil((before + 1) / load.capacity * load.run_seconds)
        return f"{busy} Your run starts in about {count(seconds, 'second')}."

    def measure(
        self, pair: str, request: Request, lane: list[Event] | None = None
    ) -> MeasuredSpeedup:
        """The speedup for this prompt and these settings, measured while nobody decodes (see
        `Measuring.speedup`). A ValueError names the invalid setting; a NotMeasured says why
        there is no measurement."""
        return self._measurer.speedup(self._measurable(pair), self.of(pair).suited(request), lane)

    def events(self, pair: str, request: Request) -> list[Event]:
        """The events of a run for comparison, decoded while nobody else decodes. Raises what
        `measure` raises."""
        return self._measurer.events(self._measurable(pair), self.of(pair).suited(request))

    def load_later(self) -> None:
        """Load the deferred pairs, those on demand only if they are the default. A pair that
        fails is removed; `missing` and a log line say why."""
        for name, engine in self.deferred.items():
            try:
                if not engine.on_demand:
                    engine.load_decoder()
            except Exception as error:
                self.missing[name] = one_line(error, None)
                self.pairs = {
                    other: served for other, served in self.pairs.items() if other != name
                }
        if (default := self.deferred.get(next(iter(self.pairs), ""))) and not default.loaded:
            default.load_decoder()
        for line in self.notices:
            _log.warning("app.py: %s", line)
        self.settled()

    def warm_up(self) -> None:
        """Run each loaded pair, so that the first visitor's run is not slower; visitors do not
        wait for this. Raises Trouble if a pair cannot decode."""
        for name, served in self.pairs.items():
            late = self.deferred.get(name)
            if not served.measurable or (late and not late.loaded):
                continue
            params = SamplingParams(
                max_tokens=WARM_TOKENS, seed=0, ignore_eos=True, filter_words=served.filter_words
            )
            try:
                for _ in range(WARM_RUNS):
                    self._measurer.events(
                        served.engine,
                        Request(WARM_PROMPT, params, num_draft_tokens=0),
                        detail="full",
                    )
            except NotMeasured:  # a visitor came
                pass

    def _measurable(self, pair: str) -> Engine:
        served = self.of(pair)
        if not (served.measurable and self.measuring):
            raise NotMeasured(ELSEWHERE if self.measuring else NEVER, again=False)
        return served.engine

    def _load_of(self, served: ServedPair) -> Load:
        return self._measurer.without(served.engine, served.engine.load())

    def _quiet(self) -> bool:
        load = self.load()
        return load.running + load.waiting == 0

    def close(self) -> None:
        self._measurer.interrupt()
        for served in self.pairs.values():
            served.engine.close()

    def stream(
        self, pair: str, request: Request, cancel: CancelFlag | None = None
    ) -> Iterator[Event]:
        """Decode for a visitor, with the pair of that name. A ValueError names the invalid
        setting; raises Trouble if no decoder runs, or after the last event if decoding failed."""
        lists = self._visit(pair, request).submit(self.of(pair).engine, cancel, Reader(*visitor()))
        self._measurer.interrupt()  # only now: a run that is refused stops no measurement
        return chain.from_iterable(lists)

    def start(
        self,
        pair: str,
        request: Request,
        cancel: CancelFlag,
        deliver: Deliver,
        reader: Reader | None = None,
    ) -> None:
        """Decode for a visitor, by default the current caller, and deliver the events from the
        decoding thread (see `Engine.start`). Raises what `stream` raises, but errors after the
        start are delivered instead of the end."""
        visit = self._visit(pair, request)
        visit.start(self.of(pair).engine, cancel, deliver, reader or Reader(*visitor()))
        self._measurer.interrupt()

    def check_limits(self, num_draft_tokens: int | str, max_tokens: int | None) -> None:
        """Raise ValueError for a number of draft tokens or of tokens that this page refuses."""
        if isinstance(num_draft_tokens, int) and not 0 <= num_draft_tokens <= MAX_DRAFT_TOKENS:
            allowed = RANGES["num_draft_tokens"]
            raise ValueError(out_of_range("num_draft_tokens", allowed, num_draft_tokens))
        if max_tokens is None or not 1 <= max_tokens <= self.max_tokens:
            raise ValueError(out_of_range("max_tokens", f"1 to {self.max_tokens}", max_tokens))

    def _visit(self, pair: str, request: Request) -> Visit:
        """A checked request, as that pair's engine decodes it."""
        self.check_limits(request.num_draft_tokens, request.params.max_tokens)
        return Visit(self.of(pair).suited(request), self.observers)


def open_catalog(
    configuration: Configuration, observers: Sequence[Observer], engine: str, address: str | None
) -> Catalog:
    """The catalog of this process, or of the cluster at this address if the engine is "ray".
    Raises what `load_catalog` and `cluster_engines` raise."""
    if engine == "ray":
        return join_catalog(configuration, cluster_engines(configuration, address), observers)
    return load_catalog(configuration, observers)


def join_catalog(
    configuration: Configuration, engines: Mapping[str, Engine], observers: Sequence[Observer] = ()
) -> Catalog:
    """The catalog of a cluster's engines."""
    measuring = configuration.measuring == "on"
    targets = {choice.name: choice.target for choice in configuration.pairs}
    pairs = {
        name: _served(configuration, engine, targets.get(name), measurable=True)
        for name, engine in engines.items()
    }
    catalog = Catalog(pairs, configuration.max_tokens, None, measuring, observers=observers)
    catalog.warm_up()
    for served in pairs.values():
        served.measurable = False  # another machine's speed is not measured
    return catalog


def load_catalog(configuration: Configuration, observers: Sequence[Observer] = ()) -> Catalog:
    """Load the operator's pairs. The caller calls `Catalog.load_later` and `Catalog.warm_up`.
    Raises ValueError or OSError if a pair cannot be loaded."""
    # Engines share their time fairly between visitors and refuse runs if necessary. Gradio's queue
    # does neither.
    most = configuration.concurrency if zero_gpu() else None
    measuring = configuration.measuring == "on"
    catalog = Catalog({}, configuration.max_tokens, most, measuring, observers=observers)
    for choice in configuration.pairs:
        late = choice.later or choice.on_demand
        try:
            engine = _engine(configuration, choice, late=late)
        except Exception as error:
            if not late:
                raise
            catalog.missing[choice.name] = one_line(error, None)
            continue
        # Without a GPU outside runs, nothing can be warmed up or measured.
        catalog.pairs[choice.name] = _served(
            configuration, engine, choice.target, measurable=not zero_gpu()
        )
        if late and isinstance(engine, LocalEngine):
            catalog.deferred[choice.name] = engine
    return catalog


def expected(known: KnownPair | None, capacity: int) -> About:
    """What the engine of a known pair, or of the bundled one, will report once loaded. All known
    targets are chat models."""
    if known is None:
        return About(
            {kind: f"bundled {kind}" for kind in ("target", "draft", "head")},
            "cpu",
            chat=False,
            capacity=capacity,
        )
    drafters = {
        kind: f"{known.drafters} {kind}" for kind in ("draft", "head") if known.drafter(kind)
    }
    return About({"target": known.target, **drafters}, "cpu", chat=True, capacity=capacity)


def _engine(configuration: Configuration, choice: PairChoice, *, late: bool) -> Engine:
    """The engine of a pair, which is loaded now or late."""
    most, rows = configuration.max_prompt_tokens, configuration.concurrency
    load = partial(_decoder, configuration, choice)
    if zero_gpu():
        return SoloEngine(load(), wrap=on_zero_gpu, max_prompt_tokens=most)
    later = Later(
        load,
        expected(KNOWN.get(str(choice.target)), rows),
        LOADING.format(choice.name),
        choice.on_demand,
    )
    return LocalEngine(
        later if late else load(),
        max_rows=rows,
        max_waiting=configuration.queue_size,
        max_prompt_tokens=most,
    )


def _decoder(configuration: Configuration, choice: PairChoice) -> SpeculativeDecoder:
    pair = load_pair(
        choice.target,
        choice.draft,
        choice.head,
        device=configuration.device,
        dtype=configuration.dtype,
        weights=configuration.weights,
        progress=log_progress(choice.name),
    )
    leave_cores_to(pair.target)
    return SpeculativeDecoder(pair)


def _served(
    configuration: Configuration, engine: Engine, target: str | None, *, measurable: bool
) -> ServedPair:
    """The pair, with the word list that the host filters for it."""
    ships = engine.about.models.get("target") in {
        TALES_TARGET,
        *(known.target for known in KNOWN.values()),
    }
    words = (
        "classroom"
        if configuration.filter_words == "all"
        or (ships and configuration.filter_words == "bundled")
        else None
    )
    return ServedPair(engine, measurable, words, target)
