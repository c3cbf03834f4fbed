"""What all charts share: surface colours, fonts, axes that do not jump, and a note where there is nothing to draw.

Plotly's default template is left out: it would be three quarters of a small figure's JSON.
"""

import math
from typing import Any

import plotly.graph_objects as go

from naive_speculate.palette import DARK, LIGHT, Surface

HEIGHT = 260
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
_NO_TEMPLATE = go.layout.Template()


def surface(dark: bool) -> Surface:
    """The colours of text and rules."""
    return DARK if dark else LIGHT


def figure(
    traces: list[dict[str, Any]],
    *,
    dark: bool,
    takeaway: str,
    x: dict[str, Any],
    y: dict[str, Any],
    height: int = HEIGHT,
    layout: dict[str, Any] | None = None,
) -> go.Figure:
    """A figure on a transparent ground.

    Args:
        traces: Plotly traces.
        dark: Whether it will stand on a dark page.
        takeaway: What the chart says, in one line; stands above the plot, and in `layout.meta` for screen readers.
        x, y: Settings of the axes, over the common ones.
        height: Height in pixels.
        layout: Further settings of the layout.
    """
    colors = surface(dark)
    common = {
        "gridcolor": colors.rule,
        "linecolor": colors.rule,
        "zeroline": False,
        "ticks": "",
        "automargin": True,
        "fixedrange": True,
        "title": {"font": {"color": colors.muted, "size": 12}, "standoff": 6},
        "tickfont": {"color": colors.muted, "size": 11},
    }
    return go.Figure(
        data=traces,
        layout={
            "template": _NO_TEMPLATE,
            "height": height,
            "margin": {"l": 8, "r": 12, "t": 52, "b": 8},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": FONT, "color": colors.ink, "size": 12},
            "hoverlabel": {
                "bgcolor": colors.panel,
                "bordercolor": colors.rule,
                "font": {"color": colors.ink, "family": FONT},
            },
            "legend": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1.0,
                "yanchor": "bottom",
                "traceorder": "normal",
                "font": {"size": 11},
            },
            "xaxis": _merge(common, {"showgrid": False}, x),
            "yaxis": _merge(common, {"rangemode": "tozero"}, y),
            "title": _title(takeaway),
            "meta": takeaway,
            **(layout or {}),
        },
    )


def empty(note: str, *, dark: bool, height: int = HEIGHT) -> go.Figure:
    """A figure with nothing in it but a sentence that says why."""
    hidden = {"visible": False, "range": [0, 1]}
    chart = figure([], dark=dark, takeaway="", x=hidden, y=hidden, height=height)
    chart.update_layout(annotations=[_note(note, dark)], meta=note, title=None)
    return chart


def _note(text: str, dark: bool) -> dict[str, Any]:
    return {
        "text": "<br>".join(_wrap(text, 44)),
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
        "xanchor": "center",
        "yanchor": "middle",
        "showarrow": False,
        "font": {"color": surface(dark).muted, "size": 13},
    }


def _title(text: str) -> dict[str, Any]:
    # Anchored to the container, for the plot's own left edge moves with the width of the labels on its axis.
    place = {"x": 0, "xref": "container", "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top"}
    return {"text": text, "font": {"size": 13}, "pad": {"l": 10, "t": 10}, **place}


def _merge(*settings: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for setting in settings:
        for key, value in setting.items():
            old = merged.get(key)
            merged[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def steps_shown(count: int, least: int = 16) -> int:
    """How many steps the x axis holds: a power of two, so that it grows seldom while a run goes on."""
    return max(least, 1 << max(0, count - 1).bit_length())


def nice_ceiling(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten not below `value`, so that an axis grows seldom; 1 for nothing."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))
