"""Ways to decode a prompt, of this decoder and of transformers, with the figures of each; and
what forwards take."""

import math
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median
from typing import Any, TypeVar

import torch
from transformers import GenerationConfig

from naive_speculate.events import Event
from naive_speculate.events.metrics import Metrics, summarize
from naive_speculate.infer.costs import CostTable
from naive_speculate.infer.protocols import BatchLanguageModel
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.theory import speedup
from naive_speculate.tools.ratio import Estimate, logs_of, ratio_of

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")
_DRAFTS_IN_A_ROW, _REPEATS = 4, 25


@dataclass(frozen=True)
class Decoded:
    """One prompt decoded one way."""

    token_ids: list[int]  # the output
    seconds: float  # wall time of the whole call, prompt included
    target_forwards: int  # forwards of the target after the prompt's
    events: Sequence[Event] = ()  # this decoder's; none of transformers
    prompt_seconds: float = 0.0  # of `seconds`, those before the first step

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return len(self.token_ids) / self.seconds

    @property
    def decoding_speed(self) -> float:
        """Tokens per second after the prompt."""
        return len(self.token_ids) / (self.seconds - self.prompt_seconds)


def prompt_seconds(metrics: Metrics) -> float:
    """Seconds before the first step, estimated from the first token's time and the mean step."""
    if metrics.time_to_first_token is None:
        return 0.0
    step = (metrics.draft_seconds + metrics.verify_seconds) / metrics.num_spec_steps
    return max(0.0, metrics.time_to_first_token - step)


@dataclass(frozen=True)
class Way:
    """A way to decode: `decode(prompt token ids, seed)`."""

    name: str  # its name in tables
    num_draft_tokens: int | str  # draft tokens per step, "auto", or 0 for plain decoding
    ours: bool  # whether it is this decoder
    decode: Callable[[list[int], int], Decoded]
    drafter: str = "model"  # the drafter of this decoder


def our_way(
    decoder: SpeculativeDecoder,
    num_draft_tokens: int | str,
    params: SamplingParams,
    drafter: str = "model",
    **options: Any,
) -> Way:
    """`options` are of `generate`; events have no details unless they say so."""
    options = {"num_draft_tokens": num_draft_tokens, "drafter": drafter, "detail": "none"} | options

    def decode(prompt: list[int], seed: int) -> Decoded:
        # with a seed, "auto" learns no costs, and a head does not round
        has_seed = params.temperature and num_draft_tokens != "auto"
        seeded = replace(params, seed=seed if has_seed else None)
        began = time.perf_counter()
        result = decoder.generate(prompt, seeded, **options)
        seconds = time.perf_counter() - began
        steps, before = result.metrics.num_spec_steps, prompt_seconds(result.metrics)
        return Decoded(list(result.token_ids), seconds, steps, result.trace.events, before)

    name = "plain" if num_draft_tokens == 0 else f"k = {num_draft_tokens}"
    if strategy := options.get("verify_strategy"):
        name = f"{strategy.replace('_', ' ')}, {name}"
    if drafter != "model":
        name = f"{drafter.replace('_', ' ')}, {name}"
    return Way(name, num_draft_tokens, True, decode, drafter)


class Transformers:
    """transformers' `generate` with a number of torch threads. Unless `ends`, it changes the
    models: end tokens no longer end a text."""

    def __init__(self, target: Any, draft: Any, new_tokens: int, ends: bool = False) -> None:
        self.target, self.draft = target, draft
        self.new_tokens = new_tokens
        self.threads = torch.get_num_threads()
        self.forwards = 0
        self.second = 0.0  # when its second forward began
        self._ends = target.generation_config.eos_token_id if ends else None
        for model in (target, draft):  # the default for a `GenerationConfig`
            if model is not None:
                model.generation_config.eos_token_id = self._ends
        target.register_forward_pre_hook(self._count)

    def choose_threads(self, prompt: list[int]) -> None:
        """Of 1, all cores, or all but one, the fastest for plain or assisted generation; tried
        alternately."""
        cores = torch.get_num_threads()
        candidates = sorted({1, max(1, cores - 1), cores})
        fastest = dict.fromkeys(candidates, math.inf)
        for threads in 3 * candidates:
            self.threads = threads
            seconds = min(self.way(k, 0.0).decode(prompt, 0).seconds for k in (0, 5))
            fastest[threads] = min(fastest[threads], seconds)
        self.threads = min(candidates, key=fastest.__getitem__)

    def way(self, num_draft_tokens: int, temperature: float, lookup: bool = False) -> Way:
        """With a constant number of draft tokens of the draft model, or with `lookup` of the
        prompt."""

        drawn = {"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
        config = GenerationConfig(
            max_new_tokens=self.new_tokens,
            do_sample=bool(drawn),
            pad_token_id=0,
            eos_token_id=self._ends,
            **drawn,
        )

        def decode(prompt: list[int], seed: int) -> Decoded:
            torch.manual_seed(seed)
            query = torch.tensor([prompt], device=self.target.device)
            options: dict[str, Any] = {}
            if lookup:
                options["prompt_lookup_num_tokens"] = num_draft_tokens
            elif num_draft_tokens:
                draft_config = self.draft.generation_config
                draft_config.num_assistant_tokens = num_draft_tokens
                draft_config.num_assistant_tokens_schedule = "constant"
                draft_config.assistant_confidence_threshold = 0.0
                options["assistant_model"] = self.draft
            self.forwards = 0
            before = torch.get_num_threads()
            torch.set_num_threads(self.threads)
            began = time.perf_counter()
            output = self.target.generate(
                query, attention_mask=torch.ones_like(query), generation_config=config, **options
            )
            token_ids = output[0, len(prompt) :].tolist()
            seconds = time.perf_counter() - began
            torch.set_num_threads(before)
            # Its first forward reads the prompt, and gives a token as later forwards do.
            step = (began + seconds - self.second) / max(1, self.forwards - 1)
            reading = max(0.0, self.second - began - step) if self.forwards > 1 else 0.0
            return Decoded(token_ids, seconds, self.forwards, prompt_seconds=reading)

        how = f"k = {num_draft_tokens}" if num_draft_tokens else "plain"
        name = f"transformers, {'prompt lookup, ' if lookup else ''}{how}"
        return Way(name, num_draft_tokens, False, decode)

    def _count(self, *_: Any) -> None:
        self.forwards += 1
        if self.forwards == 2:
            self.second = time.perf_counter()


class Line:
    """The figures of one way over all prompts, relative to plain decoding of the same prompts."""

    def __init__(
        self,
        way: Way,
        runs: Sequence[Decoded],
        plain: Sequence[Decoded],
        costs: CostTable | None = None,
    ) -> None:
        pairs = list(zip(runs, plain, strict=True))
        steps = [summarize(run.events) for run in runs if run.events]
        whole, k = summarize(event for run in runs for event in run.events), way.num_draft_tokens
        self.name, self.num_draft_tokens, self.ours = way.name, k, way.ours
        self.questions = len(runs)  # number of prompts
        # median over the prompts, prompt processing included
        self.tokens_per_second = median(run.speed for run in runs)
        # Speed relative to this decoder's plain decoding, over the prompts (see `ratio_of`); the
        # same after the prompt; its 95% interval.
        self.over_plain = _over(runs, plain, "speed").mean
        self.decoding_over_plain, *ends = _over(runs, plain, "decoding_speed")
        self.decoding_interval = None if runs is plain or None in ends else ends
        forwards = sum(run.target_forwards for run in runs)
        self.tokens_per_step = sum(len(run.token_ids) for run in runs) / max(1, forwards)
        self.acceptance = whole.draft_acceptance_rate  # accepted ÷ drafted
        self.alpha = whole.alpha  # accepted ÷ (accepted + rejected)
        # By index; see `Metrics`.
        self.conditional_acceptance = whole.acceptance_rate_per_position
        self.marginal_acceptance = whole.unconditional_acceptance_rate_per_position
        # Medians over the prompts of the mean step.
        self.draft_ms, self.verify_ms, self.step_ms = (
            median(getattr(one, name) / one.num_spec_steps for one in steps) * 1e3
            if steps
            else None
            for name in ("draft_seconds", "verify_seconds", "total_seconds")
        )
        # `over_plain` predicted from alpha and the forwards' costs, if the draft model drafts.
        self.predicted: float | None = None
        alpha = whole.alpha if way.drafter == "model" else None
        if costs is not None and alpha is not None and isinstance(k, int) and k < len(costs.verify):
            self.predicted = speedup(alpha, k, costs.draft, costs.verify[k])
        self.efficiency = self.over_plain / self.predicted if self.predicted else None
        # Share of prompts with the same tokens as this decoder's plain decoding (a check at
        # temperature 0).
        self.same_as_plain = fmean(run.token_ids == other.token_ids for run, other in pairs)


def _over(runs: Sequence[Decoded], others: Sequence[Decoded], speed: str) -> Estimate:
    return ratio_of(logs_of(*([getattr(one, speed) for one in each] for each in (runs, others))))


def in_turn(ways: Mapping[K, Callable[[T], R]], inputs: Iterable[T]) -> Iterator[dict[K, R]]:
    """Run every way on each input, one input after the other, since a machine's speed changes over
    minutes; the order rotates. Yields each input's results in the order of the ways."""
    keys = list(ways)
    for number, one in enumerate(inputs):
        first = number % len(keys)
        results = {key: ways[key](one) for key in (*keys[first:], *keys[:first])}
        yield {key: results[key] for key in keys}


def decode_all(
    ways: Sequence[Way], prompts: Sequence[list[int]], tick: Callable[[int], None] = lambda _: None
) -> Iterator[list[Decoded]]:
    """Decode every prompt every way, in turn. Yields each prompt's runs; `tick` is called after
    each run with the prompt's number, which is also the seed."""

    def decode(way: Way, number: int) -> Decoded:
        run = way.decode(prompts[number], number)
        tick(number)
        return run

    timed = {index: partial(decode, way) for index, way in enumerate(ways)}
    for runs in in_turn(timed, range(len(prompts))):
        yield list(runs.values())


def forward_costs(
    target: BatchLanguageModel, draft: BatchLanguageModel, context: int, max_tokens: int
) -> tuple[float, list[float]]:
    """Milliseconds of a forward of the draft over one token, and of the target over 1 …
    `max_tokens`, timed alternately. The draft's is the mean of several, as in a step: before the
    first, the target's weights have replaced its own in the processor's caches."""
    one_draft = forward_timer(draft, context, 1)
    timers = [lambda: fmean(one_draft() for _ in range(_DRAFTS_IN_A_ROW))]
    timers += [forward_timer(target, context, count) for count in range(1, max_tokens + 1)]
    seconds: list[list[float]] = [[] for _ in timers]
    for _ in range(_REPEATS + 2):
        for timer, times in zip(timers, seconds, strict=True):
            times.append(timer())
    ms = [median(times[2:]) * 1e3 for times in seconds]  # the first two are warm-up
    return ms[0], ms[1:]


def pass_seconds(
    models: Mapping[K, BatchLanguageModel], counts: Iterable[int], context: int, rounds: int
) -> dict[K, dict[int, float]]:
    """Median seconds of a forward over each number of tokens after `context` others, by model; the
    models take turns."""
    medians: dict[K, dict[int, float]] = {key: {} for key in models}
    for count in counts:
        timers = {key: forward_timer(model, context, count) for key, model in models.items()}
        timed = {key: lambda _, timer=timer: timer() for key, timer in timers.items()}
        times = list(in_turn(timed, range(rounds)))
        for key in models:
            medians[key][count] = median(each[key] for each in times)
    return medians


def memory_mib(device: torch.device) -> dict[str, float]:
    """The peak of this process, where there is POSIX's `getrusage`, and of torch on CUDA."""
    peaks = {}
    with suppress(ImportError):  # Windows
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # macOS counts bytes, others kilobytes
        peaks["process"] = peak / (2**20 if sys.platform == "darwin" else 2**10)
    if device.type == "cuda":
        peaks["device"] = torch.cuda.max_memory_allocated(device) / 2**20
    return peaks


def lines_of(
    ways: Sequence[Way], answers: Iterable[list[Decoded]], costs: CostTable | None = None
) -> list[Line]:
    """The first way is plain decoding; `answers` have a run per way."""
    by_way = list(zip(*answers, strict=True))
    return [Line(way, runs, by_way[0], costs) for way, runs in zip(ways, by_way, strict=True)]


def forward_timer(model: BatchLanguageModel, context: int, count: int) -> Callable[[], float]:
    """A function that returns the seconds of a forward over `count` tokens after `context`
    others."""
    cache: Any = model.new_cache(1)
    tokens = (torch.arange(context + count, device=model.device) % model.vocab_size)[None]
    model.forward(tokens[:, :context], cache, num_logits=1)

    def run() -> float:
        began = time.perf_counter()
        model.forward(tokens[:, context:], cache)
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        seconds = time.perf_counter() - began
        cache.crop(count)
        return seconds

    return run
