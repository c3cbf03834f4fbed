"""Heat maps of a sweep over k and temperature."""

from collections.abc import Sequence

from ui.charts.figures import MUTED, Figure, empty, figure
from ui.experiments.sweep import Cell, best_cells
from ui.labels import percent

NOTHING_YET = "Nothing has been run yet."
INK = "#17181c"
"""Of the numbers: the scales are light enough from end to end that it reads on all of them, in both themes."""
KEPT = [(0.0, "#f0f7f2"), (1.0, "#4fb477")]
SLOWER_FASTER = [(0.0, "#e8a24a"), (0.5, "#f5f3ee"), (1.0, "#6ea8ff")]
"""Amber is slower than plain decoding and blue is faster, which colour-blind readers tell apart, too."""


def acceptance_map(cells: Sequence[Cell], ks: Sequence[int], temperatures: Sequence[float]) -> Figure:
    """Share of the drafts that were kept, for each k and temperature."""
    if not cells:
        return empty(NOTHING_YET)
    values = {(c.temperature, c.k): c.acceptance_rate for c in cells}
    texts = {key: percent(value) for key, value in values.items()}
    low, high = min(values.values()), max(values.values())
    return _heat_map(
        values,
        texts,
        ks,
        temperatures,
        takeaway=f"Between {percent(low)} and {percent(high)} of the drafts were kept",
        scale=KEPT,
        low=0.0,
        high=1.0,
    )


def speedup_map(cells: Sequence[Cell], ks: Sequence[int], temperatures: Sequence[float]) -> Figure:
    """Speed as a multiple of plain decoding's, for each k and temperature; the best k of every temperature has a star."""
    if not cells:
        return empty(NOTHING_YET)
    values = {(c.temperature, c.k): c.speedup for c in cells}
    stars = {(c.temperature, c.k) for c in best_cells(cells).values()}
    texts = {key: f"<b>★ {value:.2f}</b>" if key in stars else f"{value:.2f}" for key, value in values.items()}
    best = max(cells, key=lambda c: c.speedup)
    reach = max(0.5, *(abs(value - 1) for value in values.values()))
    return _heat_map(
        values,
        texts,
        ks,
        temperatures,
        takeaway=f"Best: k = {best.k} at temperature {best.temperature:g}, {best.speedup:.2f} × plain",
        scale=SLOWER_FASTER,
        low=1 - reach,
        high=1 + reach,
    )


def _heat_map(
    values: dict[tuple[float, int], float],
    texts: dict[tuple[float, int], str],
    ks: Sequence[int],
    temperatures: Sequence[float],
    *,
    takeaway: str,
    scale: list[tuple[float, str]],
    low: float,
    high: float,
) -> Figure:
    columns, rows = list(range(len(ks))), list(range(len(temperatures)))
    fields = {
        "type": "heatmap",
        "x": columns,
        "y": rows,
        "z": [[values.get((t, k)) for k in ks] for t in temperatures],
        "text": [[texts.get((t, k), "") for k in ks] for t in temperatures],
        "texttemplate": "%{text}",
        "textfont": {"size": 13, "color": INK},
        "xgap": 3,
        "ygap": 3,
        "showscale": False,
        "hoverinfo": "skip",
        "colorscale": scale,
        "zmin": low,
        "zmax": high,
    }
    ticks = {"showgrid": False, "tickfont": {"color": MUTED, "size": 12}}
    return figure(
        [fields],
        takeaway=takeaway,
        x={
            **ticks,
            "tickvals": columns,
            "ticktext": [str(k) for k in ks],
            "title": {"text": "drafts a round, k"},
            "range": [-0.5, len(ks) - 0.5],
        },
        y={
            **ticks,
            "tickvals": rows,
            "ticktext": [f"{t:g}" for t in temperatures],
            "title": {"text": "temperature"},
            "range": [-0.5, len(temperatures) - 0.5],
        },
        height=98 + 46 * len(temperatures),
        margin={"l": 8, "r": 8, "t": 18, "b": 8},
    )
