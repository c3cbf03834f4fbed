"""The measurements: ways to decode, forwards, context lengths, batch sizes, events."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from naive_speculate.bench.ways import Run, Way
from naive_speculate.costs import CostTable
from naive_speculate.events.metrics import summarize
from naive_speculate.infer.protocols import BatchLanguageModel
from naive_speculate.theory import speedup

_DRAFTS_IN_A_ROW, _REPEATS = 4, 25
_DRAWS = 1000  # of the bootstrap


class Line:
    """The figures of one way over all prompts, from its runs and those of plain decoding on the same prompts."""

    def __init__(self, way: Way, runs: Sequence[Run], plain: Sequence[Run], costs: CostTable | None = None) -> None:
        pairs = list(zip(runs, plain, strict=True))
        ratios = [run.decoding_speed / other.decoding_speed for run, other in pairs]
        steps = [summarize(run.events) for run in runs if run.events]
        whole, k = summarize(event for run in runs for event in run.events), way.num_draft_tokens
        self.name, self.num_draft_tokens, self.ours = way.name, k, way.ours
        self.questions = len(runs)  # number of prompts
        self.tokens_per_second = median(run.speed for run in runs)  # median over the prompts, prompt processing included
        # Speed relative to this decoder's plain decoding, median over the prompts; the same after the prompt; its 95% interval.
        self.over_plain = median(run.speed / other.speed for run, other in pairs)
        self.decoding_over_plain = median(ratios)
        self.decoding_interval = None if runs is plain else interval(ratios)
        self.tokens_per_step = sum(len(run.token_ids) for run in runs) / max(1, sum(run.target_forwards for run in runs))
        self.acceptance = whole.draft_acceptance_rate  # accepted ÷ drafted
        self.alpha = whole.alpha  # accepted ÷ (accepted + rejected)
        # By index; see `Metrics`.
        self.conditional_acceptance = whole.acceptance_rate_per_position
        self.marginal_acceptance = whole.unconditional_acceptance_rate_per_position
        # Medians over the prompts of the mean step.
        self.draft_ms, self.verify_ms, self.step_ms = (
            median(getattr(one, name) / one.num_spec_steps for one in steps) * 1e3 if steps else None
            for name in ("draft_seconds", "verify_seconds", "total_seconds")
        )
        # `over_plain` predicted from alpha and the forwards' costs, if the draft model drafts.
        self.predicted: float | None = None
        alpha = whole.alpha if way.drafter == "model" else None
        if costs is not None and alpha is not None and isinstance(k, int) and k < len(costs.verify):
            self.predicted = speedup(alpha, k, costs.draft, costs.verify[k])
        self.efficiency = self.over_plain / self.predicted if self.predicted else None
        # Share of prompts with the same tokens as this decoder's plain decoding (a check at temperature 0).
        self.same_as_plain = fmean(run.token_ids == other.token_ids for run, other in pairs)


def decode_all(
    ways: Sequence[Way], prompts: Sequence[list[int]], tick: Callable[[int], None] = lambda _: None
) -> Iterator[list[Run]]:
    """Decode every prompt every way, alternately; the order rotates with every prompt. Yields each prompt's runs in the order
    of the ways; `tick` is called after each run, with the prompt's number, which is also the seed."""
    for number, prompt in enumerate(prompts):
        first, runs = number % len(ways), dict[int, Run]()
        for index in (*range(first, len(ways)), *range(first)):
            runs[index] = ways[index].decode(prompt, number)
            tick(number)
        yield [runs[index] for index in range(len(ways))]


def forward_costs(
    target: BatchLanguageModel, draft: BatchLanguageModel, context: int, max_tokens: int
) -> tuple[float, list[float]]:
    """Milliseconds of a forward of the draft over one token, and of the target over 1 … `max_tokens`, timed alternately.

    The draft's time is the mean of several forwards, as in a step: before the first, the target's weights have replaced its own
    in the processor's caches.
    """
    one_draft = forward_timer(draft, context, 1)
    timers = [lambda: fmean(one_draft() for _ in range(_DRAFTS_IN_A_ROW))]
    timers += [forward_timer(target, context, count) for count in range(1, max_tokens + 1)]
    seconds: list[list[float]] = [[] for _ in timers]
    for _ in range(_REPEATS + 2):
        for timer, found in zip(timers, seconds, strict=True):
            found.append(timer())
    ms = [median(found[2:]) * 1e3 for found in seconds]  # the first two are warm-up
    return ms[0], ms[1:]


def fastest_drafter(lines: dict[str, list[Line]], window: int) -> str:
    """The fastest of the trained drafters with this window, on average over all modes."""
    every = [line for found in lines.values() for line in found]
    names = {"model": f"k = {window}", "head": f"head, k = {window}", "suffix+head": f"suffix+head, k = {window}"}
    speeds = {drafter: fmean(line.over_plain for line in every if line.name == name) for drafter, name in names.items()}
    return max(speeds, key=speeds.__getitem__)


def memory_mib(device: torch.device) -> dict[str, float]:
    """The peak memory of this process, on systems with POSIX's `getrusage`, and of torch on CUDA."""
    found = {}
    with suppress(ImportError):  # Windows
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found["process"] = peak / (2**20 if sys.platform == "darwin" else 2**10)  # macOS counts bytes, others kilobytes
    if device.type == "cuda":
        found["device"] = torch.cuda.max_memory_allocated(device) / 2**20
    return found


def lines_of(ways: Sequence[Way], answers: Iterable[list[Run]], costs: CostTable | None = None) -> list[Line]:
    """The figures of all ways, the first of which is plain decoding; `answers` have a run per way."""
    by_way = list(zip(*answers, strict=True))
    return [Line(way, runs, by_way[0], costs) for way, runs in zip(ways, by_way, strict=True)]


def interval(values: Sequence[float]) -> list[float] | None:
    """The 95% bootstrap interval of a median; None for a single value."""
    if len(values) < 2:
        return None
    from scipy.stats import bootstrap

    found = bootstrap((values,), np.median, n_resamples=_DRAWS, method="percentile", rng=0)
    return [float(end) for end in found.confidence_interval]


def forward_timer(model: BatchLanguageModel, context: int, count: int, batch: int = 1) -> Callable[[], float]:
    """A function that runs a forward over `count` tokens per row after `context` others and returns its seconds."""
    cache: Any = model.new_cache(batch)
    tokens = (torch.arange(context + count, device=model.device) % model.vocab_size).expand(batch, -1)
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
