"""Heat maps of sweeps over k and temperature or batch size."""

from collections.abc import Mapping, Sequence
from typing import Any

from ui.charts.figures import MUTED, Figure, category_axis, empty, figure
from ui.experiments.batches import BatchSample, batch_speedups, where_it_pays
from ui.experiments.spread import Estimate
from ui.experiments.sweep import Cell
from ui.labels import percent

NOTHING_YET = "Nothing has been run yet."
INK = "#17181c"  # the numbers' colour: readable on every colour of the scales, in both themes
ACCEPTANCE = [(0.0, "#f0f7f2"), (1.0, "#4fb477")]
SLOWER_FASTER = [(0.0, "#e8a24a"), (0.5, "#f5f3ee"), (1.0, "#6ea8ff")]
"""Amber is slower than plain decoding, blue is faster; colour-blind readers can distinguish them."""
FEW_COLUMNS = 5  # with more columns, intervals need a smaller font

Field = tuple[float, int]


def acceptance_map(cells: Sequence[Cell], ks: Sequence[int], temperatures: Sequence[float]) -> Figure:
    """Acceptance rate for each k and temperature."""
    if not cells:
        return empty(NOTHING_YET)
    values = {(c.temperature, c.k): c.acceptance_rate for c in cells}
    few, form = len(temperatures), "{:.0f}–{:.0f}%"
    texts = {key: _with_spread(percent(value.mean), value, few, form, 100) for key, value in values.items()}
    low, high = min(value.mean for value in values.values()), max(value.mean for value in values.values())
    said = f"Between {percent(low)} and {percent(high)} of the draft tokens were accepted"
    scale = {"colorscale": ACCEPTANCE, "zmin": 0.0, "zmax": 1.0}
    return _heat_map(values, texts, ks, temperatures, columns_are="temperature", takeaway=said, **scale)


def speedup_map(cells: Sequence[Cell], ks: Sequence[int], temperatures: Sequence[float]) -> Figure:
    """Speedup over plain decoding for each k and temperature; every k that may be the best has a star."""
    if not cells:
        return empty(NOTHING_YET)
    stars = {(c.temperature, c.k) for c in cells if c.best and c.prompts > 1}
    best = max(cells, key=lambda c: c.speedup.mean)
    said = f"At most {best.speedup.mean:.2f}× plain decoding, with k = {best.k} at temperature {best.temperature:g}"
    speedups = {(c.temperature, c.k): c.speedup for c in cells}
    return _speedups(speedups, stars, ks, temperatures, columns_are="temperature", takeaway=said)


def batch_map(samples: Sequence[BatchSample], ks: Sequence[int], sizes: Sequence[int]) -> Figure:
    """Speedup of all texts together over plain decoding, for each k and batch size."""
    speedups = batch_speedups(samples)
    if not speedups:
        return empty(NOTHING_YET)
    values: dict[Field, Estimate] = {(size, k): value for (size, k), value in speedups.items()}
    return _speedups(values, set(), ks, sizes, columns_are="texts at once", takeaway=where_it_pays(samples))


def _speedups(
    values: Mapping[Field, Estimate], stars: set[Field], ks: Sequence[int], columns: Sequence[float], **words: str
) -> Figure:
    reach = max(0.5, *(abs(value.mean - 1) for value in values.values()))
    means = {key: f"<b>★ {value.mean:.2f}</b>" if key in stars else f"{value.mean:.2f}" for key, value in values.items()}
    texts = {key: _with_spread(means[key], value, len(columns)) for key, value in values.items()}
    scale: dict[str, Any] = {"colorscale": SLOWER_FASTER, "zmin": 1 - reach, "zmax": 1 + reach}
    return _heat_map(values, texts, ks, columns, **words, **scale)


def _with_spread(text: str, value: Estimate, columns: int, form: str = "{:.2f}–{:.2f}", unit: int = 1) -> str:
    """A field's number with its interval in small type below."""
    if value.low is None or value.high is None:
        return text
    spread = form.format(unit * value.low, unit * value.high)
    return f'{text}<br><span style="font-size:{10 if columns <= FEW_COLUMNS else 9}px">{spread}</span>'


def _heat_map(
    values: Mapping[Field, Estimate],
    texts: Mapping[Field, str],
    ks: Sequence[int],
    columns: Sequence[float],
    *,
    columns_are: str,
    takeaway: str,
    **scale: Any,
) -> Figure:
    # k is vertical: a phone has room for a column per temperature, but not per k.
    fields = {
        "type": "heatmap",
        "x": list(range(len(columns))),
        "y": list(range(len(ks))),
        "z": [[values[column, k].mean if (column, k) in values else None for column in columns] for k in ks],
        "text": [[texts.get((column, k), "") for column in columns] for k in ks],
        "texttemplate": "%{text}",
        "textfont": {"size": 13, "color": INK},
        "xgap": 3,
        "ygap": 3,
        "showscale": False,
        "hoverinfo": "skip",
        **scale,
    }

    def axis(title: str, names: Sequence[float]) -> dict[str, Any]:
        ticks = {"showgrid": False, "tickfont": {"color": MUTED, "size": 12}}
        return category_axis([f"{name:g}" for name in names], title={"text": title}, range=[-0.5, len(names) - 0.5], **ticks)

    x, y = axis(columns_are, columns), axis("draft tokens per step, k", ks)
    margin = {"l": 8, "r": 8, "t": 18, "b": 8}
    return figure([fields], takeaway=takeaway, x=x, y=y, height=98 + 42 * len(ks), margin=margin)
