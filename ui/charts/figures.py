"""What charts drawn on the server share: colours by name, axes that do not jump, and a note where there is nothing to draw.

A figure is a dict as Plotly takes it, and neutral: its colours are CSS variables of the palette, which the browser looks up,
and what all figures have in common is the template of `assets/js/plot.js`.
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
        takeaway: What the chart says, in one line of plain text; stands above the plot, and is read to those who cannot see it.
        x, y: Settings of the axes, over the template's.
        layout: Further settings of the layout.
    """
    return {"data": traces, "layout": {"meta": takeaway, "xaxis": x, "yaxis": y, **layout}}


def empty(note: str, **layout: Any) -> Figure:
    """A figure with nothing in it but a sentence that says why."""
    hidden = {"visible": False, "range": [0, 1]}
    words = {"text": "<br>".join(wrap(note, 44)), "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    return figure([], takeaway=note, x=hidden, y=hidden, annotations=[words], **layout)


def bars(name: str, x: Sequence[Any], y: Sequence[Any], color: Any, hover: str, **more: Any) -> dict[str, Any]:
    """A trace of bars.

    Args:
        name: Stands in the legend.
        x, y: Places and heights.
        color: One, or one a bar.
        hover: What is told of a bar, in Plotly's template.
        more: Whatever else Plotly takes; a `marker` is joined with the colour.
    """
    marker = {"color": color, **more.pop("marker", {})}
    return {"type": "bar", "name": name, "x": x, "y": y, "marker": marker, "hovertemplate": f"{hover}<extra></extra>", **more}


def inside(texts: Sequence[str]) -> dict[str, Any]:
    """What writes these texts at the feet of bars, where no line can cross them."""
    return {"text": texts, "textposition": "inside", "insidetextanchor": "start", "textangle": 0}


def hatched(shape: str) -> dict[str, Any]:
    """The marker of bars that are told apart by more than their colour; plain for an empty shape."""
    return {"pattern": {"shape": shape, "size": 6, "solidity": 0.3}}


def line(
    name: str, x: Sequence[Any], y: Sequence[Any], color: str, hover: str = "", *, dash: str = "solid", **more: Any
) -> dict[str, Any]:
    """A trace of a line; one that tells nothing when pointed at without `hover`."""
    told = {"hovertemplate": f"{hover}<extra></extra>"} if hover else {"hoverinfo": "skip"}
    drawn = {"color": color, "width": 2, "dash": dash}
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": drawn, **told, **more}


def plain_line(places: int) -> dict[str, Any]:
    """Where the speed of plain decoding is, across so many places."""
    return line("plain decoding", [-0.6, places - 0.4], [1, 1], INK, dash="dot")


def named_places(names: Sequence[str], **more: Any) -> dict[str, Any]:
    """An axis with a place for each name."""
    return {"tickvals": list(range(len(names))), "ticktext": names, "range": [-0.6, len(names) - 0.4], **more}


def nice_ceiling(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten not below `value`, so that an axis grows seldom; 1 for nothing."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))
