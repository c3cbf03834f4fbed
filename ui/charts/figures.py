"""Common parts of charts made on the server: named colours, stable axes, and a note if there is nothing to draw.

A figure is a Plotly dict whose colours are CSS variables of the palette; the browser resolves them. All figures share the
template in `assets/js/plot.js`.
"""

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from naive_speculate.events import EventKind

Figure = dict[str, Any]

ACCEPTED, RESAMPLED, RESIDUAL = (f"var(--ns-{kind})" for kind in (EventKind.ACCEPTED, EventKind.RESAMPLED, EventKind.RESAMPLED))
REJECTED = f"var(--ns-{EventKind.REJECTED})"
DRAFT, TARGET = f"var(--ns-{EventKind.PROPOSED})", f"var(--ns-{EventKind.BONUS})"
INK, MUTED, PAGE = "var(--ns-ink)", "var(--ns-muted)", "var(--ns-page)"


def figure(traces: list[dict[str, Any]], *, takeaway: str, x: dict[str, Any], y: dict[str, Any], **layout: Any) -> Figure:
    """A figure on a transparent ground.

    Args:
        traces: Plotly traces.
        takeaway: The chart's message in one line of plain text, shown above the plot and read by screen readers.
        x, y: Axis settings; they override the template's.
        layout: Further layout settings.
    """
    return {"data": traces, "layout": {"meta": takeaway, "xaxis": x, "yaxis": y, **layout}}


def empty(note: str, **layout: Any) -> Figure:
    """A figure with no data and a sentence that says why."""
    hidden = {"visible": False, "range": [0, 1]}
    words = {"text": "<br>".join(wrap(note, 44)), "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    return figure([], takeaway=note, x=hidden, y=hidden, annotations=[words], **layout)


def bars(name: str, x: Sequence[Any], y: Sequence[Any], color: Any, hover: str, **more: Any) -> dict[str, Any]:
    """A trace of bars.

    Args:
        name: The name in the legend.
        x, y: Positions and heights.
        color: One colour, or one per bar.
        hover: The hover text, as a Plotly template.
        more: Further Plotly settings; a `marker` is merged with the colour.
    """
    marker = {"color": color, **more.pop("marker", {})}
    return {"type": "bar", "name": name, "x": x, "y": y, "marker": marker, "hovertemplate": f"{hover}<extra></extra>", **more}


def inside(texts: Sequence[str]) -> dict[str, Any]:
    """Settings that write these texts at the base of the bars, where no line crosses them."""
    return {"text": texts, "textposition": "inside", "insidetextanchor": "start", "textangle": 0}


def hatched(shape: str) -> dict[str, Any]:
    """The marker of bars that differ by pattern as well as colour; plain for an empty shape."""
    return {"pattern": {"shape": shape, "size": 6, "solidity": 0.3}}


def line(
    name: str, x: Sequence[Any], y: Sequence[Any], color: str, hover: str = "", *, dash: str = "solid", **more: Any
) -> dict[str, Any]:
    """A trace of a line; without `hover` it has no hover text."""
    hovering = {"hovertemplate": f"{hover}<extra></extra>"} if hover else {"hoverinfo": "skip"}
    drawn = {"color": color, "width": 2, "dash": dash}
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": drawn, **hovering, **more}


def plain_line(categories: int) -> dict[str, Any]:
    """A line at the speed of plain decoding, across so many categories."""
    return line("plain decoding", [-0.6, categories - 0.4], [1, 1], INK, dash="dot")


def category_axis(names: Sequence[str], **more: Any) -> dict[str, Any]:
    """An axis with one tick per name."""
    return {"tickvals": list(range(len(names))), "ticktext": names, "range": [-0.6, len(names) - 0.4], **more}


def nice_ceiling(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten from `value` on, so that an axis rarely changes; 1 if not positive."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))
