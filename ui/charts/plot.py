"""Places for charts, which `assets/js/plot.js` draws in the colours of the page's theme once they are nearly seen."""

import html

import gradio as gr

from ui.assets import component
from ui.charts.figures import Figure
from ui.labels import to_json

BOARD = {
    "chart-acceptance": "Acceptance, round by round",
    "chart-positions": "Acceptance by place in the draft",
    "chart-lengths": "How many drafts a round keeps",
    "chart-timing": "Time of each round",
    "chart-speedup": "Speedup against k",
}
"""The charts of a run, by the id of their places; `assets/js/charts.js` makes them of the run's events."""
TERMS_OF = {
    "chart-acceptance": "acceptance-rate",
    "chart-positions": "by-place",
    "chart-lengths": "tokens-a-pass",
    "chart-timing": "round",
    "chart-speedup": "theorem",
}
"""What each is about, in the glossary."""


def build_plot(elem_id: str, title: str, figure: Figure | None = None) -> gr.HTML:
    """The component of one chart; its value is what `to_json` gives. Without a figure nothing is seen.

    The title stands above the chart, and before its takeaway for screen readers.
    """
    markup = place("", title, "ns-chart ns-chart-alone", hidden=True)
    return component("plot", markup, to_json(figure) if figure else "", elem_id=elem_id, label=title)


def build_board() -> gr.HTML:
    """The component of a run's charts; they follow the stage."""
    places = "".join(place(f'id="{name}"', title, "ns-chart", term=TERMS_OF[name]) for name, title in BOARD.items())
    return component("charts", f'<div class="ns-board">{places}</div>', label="Charts")


def place(attribute: str, title: str, classes: str, *, hidden: bool = False, term: str = "") -> str:
    """Markup of a labelled place for a chart; its title may be a link to a term of the glossary."""
    name = html.escape(title)
    caption = f'<a class="ns-term" href="#term-{term}">{name}</a>' if term else name
    return (
        f'<figure class="{classes}"{" hidden" if hidden else ""}><figcaption>{caption}<span></span></figcaption>'
        f'<div {attribute} class="ns-plot" role="img" aria-label="{name}"></div></figure>'
    )
