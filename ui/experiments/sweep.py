"""A sweep over k and temperature: the runs, their measurements, and the table."""

import csv
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import product
from statistics import fmean, median
from typing import Any, Generic, TypeVar

from naive_speculate.events import EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.tools.ratio import Estimate, may_be_best, mean_of, ratio_of
from naive_speculate.tools.show.speedup import draft_seconds, step_seconds
from ui.host.catalog import Catalog
from ui.run.controls import EXAMPLES, QUESTIONS
from ui.run.recorded import OF_TARGETS
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
"""Story beginnings, in addition to the visitor's prompt. All are of one kind: the best k depends
on the kind of text."""
REQUESTS = [
    QUESTIONS[3],
    "Describe a small town on a rainy morning.",
    "How do bees make honey?",
    "Write a short letter to a friend who moved away.",
    "Why do leaves change colour?",
    "Describe your favourite kind of bread.",
    "Tell a short story about a lost key.",
    "How does a bicycle stay upright?",
]
"""The same for a model that is asked in a chat."""


def prompts_for(target: str | None) -> list[str]:
    """The prompts of experiments with this default target."""
    return REQUESTS if target in OF_TARGETS else PROMPTS


@dataclass(frozen=True, slots=True)
class Sample:
    temperature: float
    k: int  # 0 for plain decoding
    prompt: int  # by number
    seed: int
    rounds: int  # its steps
    # drafted, accepted, rejected: its draft tokens
    drafted: int
    accepted: int
    rejected: int
    whole: int  # steps that drafted k tokens, not fewer
    round_seconds: float  # undisturbed time of a step
    draft_seconds: float  # undisturbed time to draft one token; 0 if nothing was drafted

    @property
    def tokens_per_pass(self) -> float:
        return (self.accepted + self.rounds) / self.rounds

    @property
    def speed(self) -> float:
        """Tokens per second if all steps were undisturbed."""
        return self.tokens_per_pass / self.round_seconds


@dataclass(frozen=True, slots=True)
class Cell:
    """Measurements of all runs with one k at one temperature."""

    temperature: float
    k: int
    prompts: int  # how many
    runs: int  # how many
    # acceptance_rate, tokens_per_pass: means over the prompts; see `Metrics`
    acceptance_rate: Estimate
    tokens_per_pass: Estimate
    # relative to plain decoding of the same prompt and seed: geometric mean over the prompts
    speedup: Estimate
    # tokens_per_second, plain_tokens_per_second: medians over the runs
    tokens_per_second: float
    plain_tokens_per_second: float
    # whether this k may be the fastest at its temperature, also compared with plain decoding; not
    # for one prompt
    best: bool


ESTIMATES = ("acceptance_rate", "tokens_per_pass", "speedup")
AMOUNTS = ("tokens_per_second", "plain_tokens_per_second", "prompts", "runs", "best")
# of the table
COLUMNS = (
    "temperature",
    "k",
    *(name + end for name in ESTIMATES for end in ("", "_low", "_high")),
    *AMOUNTS,
)
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress(Generic[S]):
    """The state of a sweep: samples so far, runs done and in total, and the current run."""

    samples: list[S]
    done: int
    total: int
    running: str


def in_order(
    runs: Sequence[T], name: Callable[[T], str], sample_of: Callable[[T], S | None]
) -> Iterator[Progress[S]]:
    """Take a sample of each run, and yield the state before each and at the end. A run without a
    sample is left out."""
    samples: list[S] = []
    for done, run in enumerate(runs):
        yield Progress(list(samples), done, len(runs), name(run))
        if (sample := sample_of(run)) is not None:
            samples.append(sample)
    yield Progress(list(samples), len(runs), len(runs), "")


def way_name(k: int) -> str:
    """A number of draft tokens per step in words."""
    return f"k = {k}" if k else "plain"


def sweep(
    catalog: Catalog,
    settings: Settings,
    prompts: Sequence[str],
    seeds: int,
    ks: Sequence[int],
    temperatures: Sequence[float],
) -> Iterator[Progress[Sample]]:
    """Run every prompt at every temperature plainly and with every k, then with the next seed.

    At temperature 0 there is only one seed, since seeds change nothing. A ValueError names the
    invalid setting.
    """
    first = settings.seed or 0
    every = product(range(first, first + seeds), range(len(prompts)), temperatures, (0, *ks))
    order = [
        (seed, prompt, temperature, k)
        for seed, prompt, temperature, k in every
        if temperature or seed == first
    ]

    def decode(**changes: Any) -> Trace:
        chosen = replace(settings, auto=False, **changes)
        return Trace(catalog.stream(chosen.pair, chosen.request("none")))

    def name(run: tuple[int, int, float, int]) -> str:
        _, prompt, temperature, k = run
        return f"prompt {prompt + 1}, temperature {temperature:g}, {way_name(k)}"

    def sample_of(run: tuple[int, int, float, int]) -> Sample | None:
        seed, prompt, temperature, k = run
        changes = {"seed": seed, "temperature": temperature, "num_draft_tokens": k}
        return measure(decode(prompt=prompts[prompt], **changes), temperature, k, prompt, seed)

    decode(max_tokens=8, seed=first, prompt=prompts[0])  # warms up
    yield from in_order(order, name, sample_of)


def measure(trace: Trace, temperature: float, k: int, prompt: int, seed: int) -> Sample | None:
    """A run's measurements; None if it had no step."""
    seconds = step_seconds(trace)
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


def log_speedups(samples: Sequence[Sample], temperature: float) -> dict[int, dict[Hashable, float]]:
    """The logarithm of the speedup by k and prompt, averaged over the seeds; 0 for plain
    decoding (k = 0)."""
    plain = {
        (s.prompt, s.seed): s.speed for s in samples if s.temperature == temperature and s.k == 0
    }
    by_window: dict[int, dict[Hashable, list[float]]] = {}
    for s in samples:
        if s.temperature == temperature and (s.prompt, s.seed) in plain:
            of_k = by_window.setdefault(s.k, {})
            of_k.setdefault(s.prompt, []).append(math.log(s.speed / plain[s.prompt, s.seed]))
    return {
        k: {prompt: fmean(logs) for prompt, logs in by_window[k].items()} for k in sorted(by_window)
    }


def cells(samples: Sequence[Sample]) -> list[Cell]:
    """A cell for every temperature and k ≥ 1 with plain runs to compare, sorted by temperature,
    then k."""
    made = []
    for temperature in sorted({s.temperature for s in samples}):
        logs = log_speedups(samples, temperature)
        best = may_be_best(logs)
        here = [s for s in samples if s.temperature == temperature]
        for k in logs.keys() - {0}:
            runs = [s for s in here if s.k == k]
            of_prompt = [
                [s for s in runs if s.prompt == prompt]
                for prompt in dict.fromkeys(s.prompt for s in runs)
            ]
            drafted = [group for group in of_prompt if any(s.drafted for s in group)]
            accepted = [
                sum(s.accepted for s in group) / sum(s.drafted for s in group) for group in drafted
            ]
            cell = Cell(
                temperature=temperature,
                k=k,
                prompts=len(of_prompt),
                runs=len(runs),
                acceptance_rate=mean_of(accepted or [0.0], most=1.0),
                tokens_per_pass=mean_of(
                    [fmean(s.tokens_per_pass for s in group) for group in of_prompt]
                ),
                speedup=ratio_of(list(logs[k].values())),
                tokens_per_second=median(s.speed for s in runs),
                plain_tokens_per_second=median(s.speed for s in here if s.k == 0),
                best=k in best and len(of_prompt) > 1,
            )
            made.append(cell)
    return sorted(made, key=lambda cell: (cell.temperature, cell.k))


def ks_in_words(ks: Sequence[int], among: Sequence[int]) -> str:
    """Several k in words: `4`, `1, 4 and 8`, or `4 to 8` if `among` has no others in between.
    Both arguments ascend."""
    first, last = among.index(ks[0]), among.index(ks[-1])
    if len(ks) > 2 and list(among[first : last + 1]) == list(ks):
        return f"{ks[0]} to {ks[-1]}"
    return ", ".join(map(str, ks[:-1])) + f" and {ks[-1]}" if len(ks) > 1 else str(ks[0])


def finding(samples: Sequence[Sample], temperature: float) -> str:
    """Which k is the fastest at a temperature, as far as the samples show; starts with a small
    letter."""
    ks = sorted({s.k for s in samples if s.temperature == temperature} - {0})
    best = may_be_best(log_speedups(samples, temperature))
    drafting = [k for k in best if k]
    if len({s.prompt for s in samples if s.temperature == temperature}) < 2:
        return "one prompt is too few to compare values of k"
    if not drafting:
        return "plain decoding is the fastest"
    words = ks_in_words(drafting, ks)
    if 0 in best:
        return f"k = {words} and plain decoding are a statistical tie"
    return (
        f"k = {words} is the fastest"
        if len(drafting) == 1
        else f"k = {words} are a statistical tie"
    )


def to_rows(made: Sequence[Cell]) -> list[dict[str, Any]]:
    """The table, one row per cell; intervals have their own columns, None for few prompts."""
    rows = []
    for cell in made:
        estimates = [number for name in ESTIMATES for number in getattr(cell, name)]
        amounts = (getattr(cell, name) for name in AMOUNTS)
        rows.append(
            dict(zip(COLUMNS, (cell.temperature, cell.k, *estimates, *amounts), strict=True))
        )
    return rows


def to_csv(made: Sequence[Cell]) -> str:
    """The table as a file, with numbers of six digits."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in to_rows(made):
        writer.writerow(
            [f"{value:.6g}" if isinstance(value, float) else value for value in row.values()]
        )
    return file.getvalue()
