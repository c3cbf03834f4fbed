"""The measurements: ways to decode, forwards, context lengths, batch sizes, events."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import torch

from naive_speculate.bench.ways import Run, Way
from naive_speculate.costs import CostTable
from naive_speculate.infer.protocols import BatchLanguageModel
from naive_speculate.theory import speedup

_DRAFTS_IN_A_ROW, _REPEATS = 4, 25


@dataclass(frozen=True)
class Line:
    """The figures of one way over all prompts."""

    name: str
    num_draft_tokens: int | str
    ours: bool
    tokens_per_second: float  # median over the prompts, prompt processing included
    over_plain: float  # speed relative to this decoder's plain decoding
    tokens_per_forward: float  # tokens per target forward
    acceptance: float | None = None  # accepted ÷ drafted
    alpha: float | None = None  # accepted ÷ (accepted + rejected)
    # draft_ms, verify_ms, step_ms: medians over the prompts of the mean step
    draft_ms: float | None = None
    verify_ms: float | None = None
    step_ms: float | None = None
    predicted: float | None = None  # `over_plain` predicted from alpha and the forwards' costs, if the draft model drafts
    efficiency: float | None = None  # `over_plain` ÷ `predicted`
    # share of prompts with the same tokens as this decoder's plain decoding (a check at temperature 0)
    same_as_plain: float = 0.0


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


def line_of(way: Way, runs: Sequence[Run], plain: Sequence[Run], costs: CostTable | None = None) -> Line:
    """The figures of one way, from its runs and those of plain decoding on the same prompts."""
    pairs = list(zip(runs, plain, strict=True))
    metrics = [run.metrics for run in runs if run.metrics is not None]
    drafted = sum(m.num_draft_tokens for m in metrics)
    accepted = sum(m.num_accepted_draft_tokens for m in metrics)
    judged = accepted + sum(m.num_rejected_draft_tokens for m in metrics)
    alpha, k = (accepted / judged if judged else None), way.num_draft_tokens

    def step_ms(name: str) -> float | None:
        return median(getattr(m, name) / m.num_spec_steps for m in metrics) * 1e3 if metrics else None

    predicted = None
    if costs is not None and alpha is not None and way.drafter == "model" and isinstance(k, int) and 0 < k < len(costs.verify):
        predicted = speedup(alpha, k, costs.draft, costs.verify[k])
    over_plain = median(run.speed / other.speed for run, other in pairs)
    return Line(
        name=way.name,
        num_draft_tokens=k,
        ours=way.ours,
        tokens_per_second=median(run.speed for run in runs),
        over_plain=over_plain,
        tokens_per_forward=sum(len(run.token_ids) for run in runs) / max(1, sum(run.target_forwards for run in runs)),
        acceptance=accepted / drafted if drafted else None,
        alpha=alpha,
        draft_ms=step_ms("draft_seconds"),
        verify_ms=step_ms("verify_seconds"),
        step_ms=step_ms("total_seconds"),
        predicted=predicted,
        efficiency=over_plain / predicted if predicted else None,
        same_as_plain=fmean(run.token_ids == other.token_ids for run, other in pairs),
    )


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
