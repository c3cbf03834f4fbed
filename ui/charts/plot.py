"""Containers for charts; `assets/js/plot.js` draws them in the theme's colours shortly before they are visible."""

import gradio as gr

from ui.assets import component, render
from ui.charts.figures import Figure
from ui.labels import to_json

BOARD = {
    "chart-acceptance": "Acceptance per step",
    "chart-positions": "Acceptance by position in the window",
    "chart-lengths": "Accepted draft tokens per step",
    "chart-timing": "Time of each step",
    "chart-speedup": "Speedup against k",
}
"""The charts of a run by element id; `assets/js/charts.js` makes them from the run's events."""
TERMS_OF = {
    "chart-acceptance": "acceptance-rate",
    "chart-positions": "by-position",
    "chart-lengths": "tokens-per-pass",
    "chart-timing": "step",
    "chart-speedup": "theorem",
}
"""The glossary term of each chart."""


LOOK = {
    "chart-acceptance": "Look for low bars: steps that the draft got wrong.",
    "chart-positions": "The dotted line can only fall. The bars may rise: they count only windows that reached a position.",
    "chart-lengths": "Look at the two ends: nothing accepted, and the whole window accepted.",
    "chart-timing": "Look at which part is largest: drafting should be the small one.",
    "chart-speedup": "Look for the highest point: the best k for this text.",
}
"""What to look for in each chart."""


def build_plot(elem_id: str, title: str, figure: Figure | None = None) -> gr.HTML:
    """The component of one chart; its value is JSON. Without a figure it is hidden."""
    return component("plot", render("plot", title=title), to_json(figure) if figure else "", elem_id=elem_id, label=title)


def build_board() -> gr.HTML:
    """The component of a run's charts; they follow the stage."""
    return component("charts", render("board", charts=BOARD, terms=TERMS_OF, look=LOOK), label="Charts")
