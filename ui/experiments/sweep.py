"""A sweep over k and temperature: the runs, what they measured, and the table of it."""

import math
import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Generic, TypeVar

import pandas

from naive_speculate.events import EventKind
from naive_speculate.events.trace import Trace
from ui.experiments.measured import draft_seconds, round_seconds
from ui.experiments.spread import Estimate, may_be_best, mean_of, ratio_of, share_of
from ui.host.catalog import Catalog
from ui.run.controls import EXAMPLES
from ui.run.settings import Settings

KS = [1, 2, 3, 4, 5, 6, 8, 12]
TEMPERATURES = [0.0, 0.3, 0.7, 1.0, 1.3, 1.6]
PROMPTS = [
    next(iter(EXAMPLES.values())),
    "There was once a king who had three sons, and the youngest of them",
    "The rabbit looked at the bear and",
    "Every evening, when the lamps were lit, the children",
    "The old woman looked out of the window and",
    "One winter morning the door of the school",
    '"I do not believe you," said the',
    "When they came to the top of the hill they saw",
]
"""Beginnings that are continued beside the visitor's own: of one kind, for a list has another best k than a tale."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run measured.

    Attributes:
        temperature, k, prompt, seed: What it was run with; the prompt by its number, k = 0 for plain decoding.
        rounds, drafted, accepted, rejected: Counts of the run.
        whole: Rounds that drafted k tokens, and not fewer.
        round_seconds: What an undisturbed round takes.
        draft_seconds: What the undisturbed drafting of one token takes; 0 where nothing was drafted.
    """

    temperature: float
    k: int
    prompt: int
    seed: int
    rounds: int
    drafted: int
    accepted: int
    rejected: int
    whole: int
    round_seconds: float
    draft_seconds: float

    @property
    def tokens_per_pass(self) -> float:
        """Tokens that a pass of the target gave on average."""
        return (self.accepted + self.rounds) / self.rounds

    @property
    def speed(self) -> float:
        """Tokens a second, had all rounds been as quick as the quicker ones, so that other programs do not count."""
        return self.tokens_per_pass / self.round_seconds


@dataclass(frozen=True, slots=True)
class Cell:
    """What the runs with one k at one temperature measured.

    Attributes:
        temperature, k: What they were run with.
        prompts, runs: How many there were.
        acceptance_rate, tokens_per_pass: Means over the prompts; see `Metrics`.
        speedup: Times plain decoding of the same prompt with the same seed: geometric mean over the prompts.
        tokens_per_second, plain_tokens_per_second: Medians over the runs.
        best: Whether this k may be the best at its temperature, plain decoding included in the choice.
    """

    temperature: float
    k: int
    prompts: int
    runs: int
    acceptance_rate: Estimate
    tokens_per_pass: Estimate
    speedup: Estimate
    tokens_per_second: float
    plain_tokens_per_second: float
    best: bool


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Progress(Generic[S]):
    """A place in a sweep: what was measured so far, how much is done, and what is being run."""

    samples: list[S]
    done: int
    total: int
    running: str


def sweep(
    catalog: Catalog,
    settings: Settings,
    prompts: Sequence[str],
    seeds: int,
    ks: Sequence[int],
    temperatures: Sequence[float],
    cancel: threading.Event,
) -> Iterator[Progress[Sample]]:
    """Run every prompt at every temperature plainly and with every k, one right after the other; then with the next seed.

    At temperature 0 a seed changes nothing, so there is one.

    Raises:
        ValueError: Names the setting that cannot be.
    """
    first = settings.seed or 0
    order = [
        (seed, prompt, temperature)
        for seed in range(first, first + seeds)
        for prompt in range(len(prompts))
        for temperature in temperatures
        if temperature or seed == first
    ]
    windows = (0, *ks)
    samples: list[Sample] = []
    done, total = 0, len(order) * len(windows)
    _run(catalog, replace(settings, max_tokens=8, auto=False, seed=first, prompt=prompts[0]), cancel)  # warms up
    for seed, prompt, temperature in order:
        for k in windows:
            name = f"prompt {prompt + 1}, temperature {temperature:g}, " + (f"k = {k}" if k else "plain")
            yield Progress(list(samples), done, total, name)
            chosen = replace(
                settings, prompt=prompts[prompt], temperature=temperature, num_draft_tokens=k, auto=False, seed=seed
            )
            trace = _run(catalog, chosen, cancel)
            if cancel.is_set():
                return
            done += 1
            if sample := measure(trace, temperature, k, prompt, seed):
                samples.append(sample)
    yield Progress(list(samples), total, total, "")


def _run(catalog: Catalog, settings: Settings, cancel: threading.Event) -> Trace:
    return Trace(catalog.stream(settings.pair, settings.request("none"), cancel))


def measure(trace: Trace, temperature: float, k: int, prompt: int, seed: int) -> Sample | None:
    """What a run says; None where it had no round."""
    seconds = round_seconds(trace)
    if seconds is None:
        return None
    m = trace.metrics
    return Sample(
        temperature=temperature,
        k=k,
        prompt=prompt,
        seed=seed,
        rounds=m.num_spec_steps,
        drafted=m.num_draft_tokens,
        accepted=m.num_accepted_draft_tokens,
        rejected=m.num_rejected_draft_tokens,
        whole=sum(event.kind == EventKind.STEP and event.num_draft == k for event in trace),
        round_seconds=seconds,
        draft_seconds=draft_seconds(trace),
    )


def gains(samples: Sequence[Sample], temperature: float) -> dict[int, dict[Hashable, float]]:
    """For every k and prompt the logarithm of its speedup, averaged over the seeds; of plain decoding, k = 0, it is 0."""
    plain = {(s.prompt, s.seed): s.speed for s in samples if s.temperature == temperature and s.k == 0}
    found: dict[int, dict[Hashable, list[float]]] = {}
    for s in samples:
        if s.temperature == temperature and (s.prompt, s.seed) in plain:
            of_k = found.setdefault(s.k, {})
            of_k.setdefault(s.prompt, []).append(math.log(s.speed / plain[s.prompt, s.seed]))
    return {k: {prompt: fmean(logs) for prompt, logs in found[k].items()} for k in sorted(found)}


def best_ks(samples: Sequence[Sample], temperature: float) -> list[int]:
    """The k that may be the best at this temperature; 0, plain decoding, may be among them."""
    return may_be_best(gains(samples, temperature))


def cells(samples: Sequence[Sample]) -> list[Cell]:
    """A cell for every k from 1 on and temperature that was run beside plain decoding; by temperature, then by k."""
    made = []
    for temperature in sorted({s.temperature for s in samples}):
        found = gains(samples, temperature)
        best = may_be_best(found)
        here = [s for s in samples if s.temperature == temperature]
        plain = [s.speed for s in here if s.k == 0]
        for k, of_k in found.items():
            if k:
                made.append(_cell([s for s in here if s.k == k], list(of_k.values()), median(plain), k in best))
    return made


def _cell(runs: Sequence[Sample], logs: Sequence[float], plain: float, best: bool) -> Cell:
    of_prompt: dict[int, list[Sample]] = {}
    for s in runs:
        of_prompt.setdefault(s.prompt, []).append(s)
    drafted = [group for group in of_prompt.values() if any(s.drafted for s in group)]
    kept = [sum(s.accepted for s in group) / sum(s.drafted for s in group) for group in drafted]
    lengths = [fmean(s.tokens_per_pass for s in group) for group in of_prompt.values()]
    return Cell(
        temperature=runs[0].temperature,
        k=runs[0].k,
        prompts=len(of_prompt),
        runs=len(runs),
        acceptance_rate=share_of(kept or [0.0]),
        tokens_per_pass=mean_of(lengths),
        speedup=ratio_of(logs),
        tokens_per_second=median(s.speed for s in runs),
        plain_tokens_per_second=plain,
        best=best,
    )


def ks_in_words(ks: Sequence[int], among: Sequence[int]) -> str:
    """Several k, for people: `4`, `4 to 8` where all that were tried (`among`) between are meant, `1, 4 and 8`. Both ascend."""
    first, last = among.index(ks[0]), among.index(ks[-1])
    if len(ks) > 2 and list(among[first : last + 1]) == list(ks):
        return f"{ks[0]} to {ks[-1]}"
    return ", ".join(map(str, ks[:-1])) + f" and {ks[-1]}" if len(ks) > 1 else str(ks[0])


def finding(samples: Sequence[Sample], temperature: float) -> str:
    """Which k is the best at a temperature, as far as the samples can say; begins with a small letter."""
    ks = sorted({s.k for s in samples if s.temperature == temperature} - {0})
    best = best_ks(samples, temperature)
    drafting = [k for k in best if k]
    if len({s.prompt for s in samples if s.temperature == temperature}) < 2:
        return "one prompt says nothing of the spread, so no k can be preferred"
    if not drafting:
        return "plain decoding is the fastest"
    words = ks_in_words(drafting, ks)
    if 0 in best:
        return f"k = {words} and plain decoding cannot be told apart"
    return f"k = {words} is the fastest" if len(drafting) == 1 else f"k = {words} cannot be told apart"


def to_frame(made: Sequence[Cell]) -> pandas.DataFrame:
    """The table, a row a cell; intervals in columns of their own, empty where one prompt was run."""
    return pandas.DataFrame([_row(cell) for cell in made])


def _row(cell: Cell) -> dict[str, float | int | bool | None]:
    row: dict[str, float | int | bool | None] = {"temperature": cell.temperature, "k": cell.k}
    for name in ("acceptance_rate", "tokens_per_pass", "speedup"):
        row[name], row[f"{name}_low"], row[f"{name}_high"] = getattr(cell, name)
    for name in ("tokens_per_second", "plain_tokens_per_second", "prompts", "runs", "best"):
        row[name] = getattr(cell, name)
    return row


def to_csv(made: Sequence[Cell]) -> str:
    """The table as CSV text, one line a cell."""
    return str(to_frame(made).to_csv(index=False, float_format="%.6g", lineterminator="\n"))
