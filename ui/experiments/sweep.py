"""A sweep over k and temperature: the runs, what they measured, and the table of it."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas

from naive_speculate.events.trace import Trace
from ui.experiments.measured import Measured, step_times
from ui.host.catalog import Catalog
from ui.run.settings import Settings

REPEATS = 2
COLUMNS = (
    "temperature",
    "k",
    "acceptance_rate",
    "alpha",
    "tokens_per_pass",
    "tokens_per_second",
    "plain_tokens_per_second",
    "speedup",
    "tokens",
    "seed",
)


@dataclass(frozen=True, slots=True)
class Cell:
    """What the run with one k at one temperature measured.

    Attributes:
        temperature, k, seed: What it was run with.
        acceptance_rate, alpha, tokens_per_pass, tokens: Of the run; see `Metrics`.
        tokens_per_second: Tokens a round over what its quicker rounds took, so that other programs do not count.
        plain_tokens_per_second: The same of the plain run at this temperature.
    """

    temperature: float
    k: int
    acceptance_rate: float
    alpha: float
    tokens_per_pass: float
    tokens_per_second: float
    plain_tokens_per_second: float
    tokens: int
    seed: int

    @property
    def speedup(self) -> float:
        """How many times as fast as plain decoding."""
        return self.tokens_per_second / self.plain_tokens_per_second


@dataclass(frozen=True, slots=True)
class Progress:
    """A place in the sweep: cells so far, how much is done, and what is being run."""

    cells: list[Cell]
    done: int
    total: int
    running: str


def sweep(
    catalog: Catalog, settings: Settings, ks: Sequence[int], temperatures: Sequence[float], cancel: threading.Event
) -> Iterator[Progress]:
    """Run every k at every temperature, each temperature plainly first; then all of it again, for steadier times.

    Args:
        catalog: The models.
        settings: Prompt, seed and everything that is not swept.
        ks: Numbers of drafted tokens, from 1.
        temperatures: Temperatures, from 0.
        cancel: Set it to end the sweep.

    Raises:
        ValueError: Names the setting that cannot be.
    """
    seed = settings.seed or 0
    order = [(temperature, k) for temperature in temperatures for k in (0, *ks)] * REPEATS
    known: dict[tuple[float, int], Measured] = {}
    _run(catalog, replace(settings, max_tokens=8, auto=False, seed=seed), cancel)  # warms up
    for done, (temperature, k) in enumerate(order):
        name = f"temperature {temperature:g}, " + (f"k = {k}" if k else "plain")
        yield Progress(_cells(known, seed), done, len(order), name)
        chosen = replace(settings, temperature=temperature, num_draft_tokens=k, auto=False, seed=seed)
        trace = _run(catalog, chosen, cancel)
        if cancel.is_set():
            return
        before = known.get((temperature, k))
        # The seed repeats the tokens, so that only the times are new the second time.
        known[temperature, k] = Measured(trace.metrics, (before.times if before else []) + step_times(trace))
    yield Progress(_cells(known, seed), len(order), len(order), "")


def _run(catalog: Catalog, settings: Settings, cancel: threading.Event) -> Trace:
    return Trace(catalog.stream(settings.pair, settings.request("none"), cancel))


def _cells(known: dict[tuple[float, int], Measured], seed: int) -> list[Cell]:
    cells = []
    for (temperature, k), run in known.items():
        plain, m = known[temperature, 0].speed, run.metrics
        if k and plain and run.speed:
            cells.append(
                Cell(
                    temperature=temperature,
                    k=k,
                    acceptance_rate=m.draft_acceptance_rate or 0.0,
                    alpha=m.alpha or 0.0,
                    tokens_per_pass=m.mean_acceptance_length or 0.0,
                    tokens_per_second=run.speed,
                    plain_tokens_per_second=plain,
                    tokens=m.num_generated_tokens,
                    seed=seed,
                )
            )
    return cells


def best_cells(cells: Sequence[Cell]) -> dict[float, Cell]:
    """The fastest cell of every temperature."""
    best: dict[float, Cell] = {}
    for cell in cells:
        if cell.temperature not in best or cell.speedup > best[cell.temperature].speedup:
            best[cell.temperature] = cell
    return best


def to_frame(cells: Sequence[Cell]) -> pandas.DataFrame:
    """The table, a row a cell."""
    return pandas.DataFrame([[getattr(cell, name) for name in COLUMNS] for cell in cells], columns=list(COLUMNS))


def to_csv(cells: Sequence[Cell]) -> str:
    """The table as CSV text, one line a cell."""
    return str(to_frame(cells).to_csv(index=False, float_format="%.6g", lineterminator="\n"))
