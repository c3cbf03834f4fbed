"""Charts: their containers, and common parts of those made on the server: named colours, stable
axes, a note if there is nothing to draw.

A figure is a Plotly dict whose colours are CSS variables of the palette; the browser resolves
them. All figures share the template in `assets/js/plot.js`, which draws them in the theme's
colours shortly before they are visible.
"""

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import gradio as gr

from naive_speculate.tools.ratio import Estimate
from ui.assets import component, render
from ui.labels import to_json

Figure = dict[str, Any]

ACCEPTED, RESAMPLED, REJECTED, DRAFT, TARGET, INK, MUTED, PAGE = (
    f"var(--ns-{name})"
    for name in ("accepted", "resampled", "rejected", "proposed", "bonus", "ink", "muted", "page")
)
BOARD = {
    "chart-acceptance": (
        "Acceptance per step",
        "acceptance-rate",
        "Look for low bars: steps that the draft got wrong.",
    ),
    "chart-positions": (
        "Acceptance by position in the window",
        "by-position",
        (
            "The dotted line can only fall. The bars may rise: they count only windows that reached"
            " a position."
        ),
    ),
    "chart-lengths": (
        "Accepted draft tokens per step",
        "tokens-per-pass",
        "Look at the two ends: nothing accepted, and the whole window accepted.",
    ),
    "chart-timing": (
        "Time of each step",
        "step",
        "Look at which part is largest: drafting should be the small one.",
    ),
    "chart-speedup": (
        "Speedup against k",
        "theorem",
        "Look for the highest point: the best k for this text.",
    ),
}
"""The charts of a run by element id, each with its title, its glossary term and what to look
for; `assets/js/charts.js` makes them from the run's events."""


def figure(
    traces: list[dict[str, Any]],
    *,
    takeaway: str,
    x: dict[str, Any],
    y: dict[str, Any],
    **layout: Any,
) -> Figure:
    """A figure. `takeaway` is its message in one line of plain text, shown above it and read by
    screen readers; `x` and `y` are axis settings, which override the template's."""
    return {"data": traces, "layout": {"meta": takeaway, "xaxis": x, "yaxis": y, **layout}}


def empty(note: str, **layout: Any) -> Figure:
    """A figure with no data and a sentence that says why."""
    hidden = {"visible": False, "range": [0, 1]}
    words = {
        "text": "<br>".join(wrap(note, 44)),
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
        "showarrow": False,
    }
    return figure([], takeaway=note, x=hidden, y=hidden, annotations=[words], **layout)


def bars(
    name: str, x: Sequence[Any], y: Sequence[Any], color: Any, hover: str, **more: Any
) -> dict[str, Any]:
    """A trace of bars in one colour, or one per bar; `hover` is a Plotly template, `marker` is
    merged with the colour."""
    marker = {"color": color, **more.pop("marker", {})}
    drawn = {
        "type": "bar",
        "name": name,
        "x": list(x),
        "y": y,
        "marker": marker,
        "hovertemplate": f"{hover}<extra></extra>",
    }
    return drawn | more


def inside(texts: Sequence[str]) -> dict[str, Any]:
    """Settings that write these texts at the base of the bars, where no line crosses them."""
    return {"text": texts, "textposition": "inside", "insidetextanchor": "start", "textangle": 0}


def above(texts: Sequence[str]) -> dict[str, Any]:
    """Settings that write these texts at the ends of the bars."""
    return {"text": texts, "textposition": "outside", "cliponaxis": False}


def hatched(shape: str) -> dict[str, Any]:
    """The marker of bars that differ by pattern as well as colour; plain for an empty shape."""
    return {"pattern": {"shape": shape, "size": 6, "solidity": 0.3}}


def line(
    name: str,
    x: Sequence[Any],
    y: Sequence[Any],
    color: str,
    hover: str = "",
    *,
    dash: str = "solid",
    **more: Any,
) -> dict[str, Any]:
    """A trace of a line; without `hover` it has no hover text."""
    hovering = {"hovertemplate": f"{hover}<extra></extra>"} if hover else {"hoverinfo": "skip"}
    drawn = {"color": color, "width": 2, "dash": dash}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": drawn,
        **hovering,
        **more,
    }


def error_bars(values: Sequence[Estimate], **look: Any) -> dict[str, Any]:
    """The values' intervals as a trace's `error_y`; a value without an interval has no bar."""
    above = [(value.high or value.mean) - value.mean for value in values]
    below = [value.mean - (value.low or value.mean) for value in values]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}


def plain_line(categories: int) -> dict[str, Any]:
    """A line at the speed of plain decoding, across so many categories."""
    return line("plain decoding", [-0.6, categories - 0.4], [1, 1], INK, dash="dot")


def axis(title: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    """An axis with a title (none if it is empty) from `low` to `high`, which are powers of ten if
    its type is "log"."""
    return {**({"title": {"text": title}} if title else {}), "range": [low, high], **more}


def category_axis(names: Sequence[str], title: str = "", **more: Any) -> dict[str, Any]:
    """An axis with these names at 0, 1, 2 …"""
    ticks = {"tickvals": list(range(len(names))), "ticktext": names}
    return axis(title, -0.6, len(names) - 0.4, **ticks, **more)


def nice_ceiling(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten from `value` on, so that an axis rarely changes; 1
    if not positive."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def build_plot(elem_id: str, title: str, figure: Figure | None = None) -> gr.HTML:
    """The component of one chart; its value is JSON. Without a figure it is hidden."""
    return component(
        "plot",
        render("plot", title=title),
        to_json(figure) if figure else "",
        elem_id=elem_id,
        label=title,
    )


def build_board(rules: Mapping[str, tuple[str, str]]) -> gr.HTML:
    """The component of a run's charts, and of what it would be under other acceptance `rules`: each
    by name with its formula and the engines that have it. They follow the stage."""
    return component("charts", render("board", charts=BOARD, rules=rules), label="Charts")
