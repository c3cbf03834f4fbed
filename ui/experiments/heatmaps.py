"""Heat maps of a sweep over k and temperature."""

from collections.abc import Sequence
from itertools import pairwise

import plotly.graph_objects as go

from ui.charts.figures import empty, figure, surface
from ui.experiments.sweep import Cell, best_cells
from ui.labels import percent

NOTHING_YET = "Nothing has been run yet."
KEPT = [(0.0, "#f0f7f2"), (1.0, "#0d682d")]
SLOWER_FASTER = [(0.0, "#a85a00"), (0.5, "#f5f3ee"), (1.0, "#1b4fa8")]
"""Amber is slower than plain decoding and blue is faster, which colour-blind readers tell apart, too."""


def acceptance_map(cells: Sequence[Cell], ks: Sequence[int], temperatures: Sequence[float], dark: bool = False) -> go.Figure:
    """Share of the drafts that were kept, for each k and temperature."""
    if not cells:
        return empty(NOTHING_YET, dark=dark)
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
        scale=KEPT,
        low=0.0,
        high=1.0,
    )


def speedup_map(cells: Sequence[Cell], ks: Sequence[int], temperatures: Sequence[float], dark: bool = False) -> go.Figure:
    """Speed as a multiple of plain decoding's, for each k and temperature; the best k of every temperature has a star."""
    if not cells:
        return empty(NOTHING_YET, dark=dark)
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
        dark,
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
    dark: bool,
    *,
    takeaway: str,
    scale: list[tuple[float, str]],
    low: float,
    high: float,
) -> go.Figure:
    columns, rows = list(range(len(ks))), list(range(len(temperatures)))
    fields = {
        "type": "heatmap",
        "x": columns,
        "y": rows,
        "z": [[values.get((t, k)) for k in ks] for t in temperatures],
        "xgap": 3,
        "ygap": 3,
        "showscale": False,
        "hoverinfo": "skip",
        "colorscale": scale,
        "zmin": low,
        "zmax": high,
    }
    places = [(x, y) for x in columns for y in rows if (temperatures[y], ks[x]) in values]
    keys = [(temperatures[y], ks[x]) for x, y in places]
    # The heat map's own texts come in one colour for all fields, which some of them would swallow.
    words = {
        "type": "scatter",
        "mode": "text",
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "text": [texts[key] for key in keys],
        "textfont": {"size": 13, "color": [ink_on(scale, (values[key] - low) / (high - low)) for key in keys]},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    ticks = {"showgrid": False, "tickfont": {"color": surface(dark).muted, "size": 12}}
    return figure(
        [fields, words],
        dark=dark,
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
        height=120 + 46 * len(temperatures),
        layout={"margin": {"l": 8, "r": 8, "t": 40, "b": 8}},
    )


def ink_on(scale: list[tuple[float, str]], place: float) -> str:
    """Black or white: what is easier to read on the colour at a place of the scale, from 0 to 1."""
    place = min(1.0, max(0.0, place))
    (low, first), (high, last) = next((a, b) for a, b in pairwise(scale) if place <= b[0])
    share = (place - low) / (high - low)
    luminance = 0.0
    for start, weight in ((1, 0.2126), (3, 0.7152), (5, 0.0722)):
        a, b = int(first[start : start + 2], 16), int(last[start : start + 2], 16)
        channel = (a + (b - a) * share) / 255
        luminance += weight * (channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4)
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#ffffff"
