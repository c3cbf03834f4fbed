"""A sweep over k and temperature: the runs, what they measured, its heat maps, its table."""

import csv
import io
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from naive_speculate.trace import Trace
from ui.figures import empty, figure, surface
from ui.host import Offer
from ui.labels import percent
from ui.settings import Settings

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
        acceptance_rate, alpha, tokens_per_pass, tokens_per_second, tokens: Of the run; see `Metrics`.
        plain_tokens_per_second: Of the plain run at the same temperature.
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
    offer: Offer, settings: Settings, ks: Sequence[int], temperatures: Sequence[float], cancel: threading.Event
) -> Iterator[Progress]:
    """Run every k at every temperature, each temperature once plainly first.

    Args:
        offer: The models.
        settings: Prompt, seed and everything that is not swept.
        ks: Numbers of drafted tokens, from 1.
        temperatures: Temperatures, from 0.
        cancel: Set it to end the sweep.

    Raises:
        ValueError: Names the setting that cannot be.
    """
    seed = settings.seed or 0
    total = len(temperatures) * (len(ks) + 1)
    cells: list[Cell] = []
    done = 0
    _run(offer, replace(settings, max_tokens=8, auto=False, seed=seed), cancel)  # warms up
    for temperature in temperatures:
        plain_rate = None
        for k in (0, *ks):
            name = f"temperature {temperature:g}, " + (f"k = {k}" if k else "plain")
            yield Progress(list(cells), done, total, name)
            chosen = replace(settings, temperature=temperature, num_draft_tokens=k, auto=False, seed=seed)
            m = _run(offer, chosen, cancel).metrics
            if cancel.is_set():
                return
            if not k:
                plain_rate = m.tokens_per_second
            elif plain_rate and m.tokens_per_second:
                rate, alpha, length = m.draft_acceptance_rate or 0.0, m.alpha or 0.0, m.mean_acceptance_length or 0.0
                speeds = (m.tokens_per_second, plain_rate)
                cells.append(Cell(temperature, k, rate, alpha, length, *speeds, m.num_generated_tokens, seed))
            done += 1
    yield Progress(list(cells), done, total, "")


def _run(offer: Offer, settings: Settings, cancel: threading.Event) -> Trace:
    return Trace(offer.stream(settings, cancel, detail="none"))


def best_cells(cells: Sequence[Cell]) -> dict[float, Cell]:
    """The fastest cell of every temperature."""
    best: dict[float, Cell] = {}
    for cell in cells:
        if cell.temperature not in best or cell.speedup > best[cell.temperature].speedup:
            best[cell.temperature] = cell
    return best


def acceptance_map(cells: Sequence[Cell], ks: Sequence[int], temperatures: Sequence[float], dark: bool = False) -> go.Figure:
    """Share of the drafts that were kept, for each k and temperature."""
    if not cells:
        return empty("Nothing has been run yet.", dark=dark)
    values = {(c.temperature, c.k): c.acceptance_rate for c in cells}
    texts = {key: percent(value) for key, value in values.items()}
    low, high = min(values.values()), max(values.values())
    return _heat_map(
        values,
        texts,
        ks,
        temperatures,
        dark,
        takeaway=f"Between {percent(low)} and {percent(high)} of the drafts were kept",
        colors={"colorscale": "Cividis", "zmin": 0, "zmax": 1},
    )


def speedup_map(cells: Sequence[Cell], ks: Sequence[int], temperatures: Sequence[float], dark: bool = False) -> go.Figure:
    """Speed as a multiple of plain decoding's, for each k and temperature; the best k of every temperature has a star."""
    if not cells:
        return empty("Nothing has been run yet.", dark=dark)
    values = {(c.temperature, c.k): c.speedup for c in cells}
    stars = {(c.temperature, c.k) for c in best_cells(cells).values()}
    texts = {key: f"<b>★ {value:.2f}×</b>" if key in stars else f"{value:.2f}×" for key, value in values.items()}
    best = max(cells, key=lambda c: c.speedup)
    reach = max(0.5, *(abs(value - 1) for value in values.values()))
    return _heat_map(
        values,
        texts,
        ks,
        temperatures,
        dark,
        takeaway=f"Best: k = {best.k} at temperature {best.temperature:g}, {best.speedup:.2f} × plain",
        # Amber is slower than plain decoding and blue is faster, which colour-blind readers tell apart, too.
        colors={
            "colorscale": [[0, "#a85a00"], [0.5, "#f5f3ee"], [1, "#1b4fa8"]],
            "zmin": 1 - reach,
            "zmax": 1 + reach,
        },
    )


def _heat_map(
    values: dict[tuple[float, int], float],
    texts: dict[tuple[float, int], str],
    ks: Sequence[int],
    temperatures: Sequence[float],
    dark: bool,
    *,
    takeaway: str,
    colors: dict[str, object],
) -> go.Figure:
    columns, rows = list(range(len(ks))), list(range(len(temperatures)))
    trace = {
        "type": "heatmap",
        "x": columns,
        "y": rows,
        "z": [[values.get((t, k)) for k in ks] for t in temperatures],
        "text": [[texts.get((t, k), "") for k in ks] for t in temperatures],
        "texttemplate": "%{text}",
        "textfont": {"size": 13},
        "xgap": 3,
        "ygap": 3,
        "showscale": False,
        "hoverinfo": "skip",
        **colors,
    }
    ticks = {"showgrid": False, "tickfont": {"color": surface(dark).muted, "size": 12}}
    return figure(
        [trace],
        dark=dark,
        takeaway=takeaway,
        x={**ticks, "tickvals": columns, "ticktext": [str(k) for k in ks], "title": {"text": "drafts a round, k"}},
        y={
            **ticks,
            "tickvals": rows,
            "ticktext": [f"{t:g}" for t in temperatures],
            "title": {"text": "temperature"},
            "range": [-0.5, len(temperatures) - 0.5],
        },
        height=120 + 46 * len(temperatures),
        layout={"margin": {"l": 8, "r": 8, "t": 40, "b": 8}},
    )


def to_csv(cells: Sequence[Cell]) -> str:
    """The table as CSV text, one line a cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell in cells:
        writer.writerow([_plain(getattr(cell, name)) for name in COLUMNS])
    return out.getvalue()


def _plain(value: float | int) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
