"""The five charts as one custom component: Plotly figures made here, drawn in place by Plotly in the browser.

`gr.Plot` builds its chart anew at every update, which flickers, and takes the browser a tenth of a second for five
charts. This component hands the new figure to the chart that is there. It draws with the Plotly that
`ui.charts.plot.load_plotly` has Gradio load.
"""

import html
import json

import gradio as gr
import plotly.graph_objects as go

from naive_speculate.trace import Trace
from ui.assets import script
from ui.charts.rounds import CHARTS
from ui.charts.speedup import speedup

TITLES = {
    "chart-acceptance": "Acceptance, round by round",
    "chart-positions": "Acceptance by place in the draft",
    "chart-lengths": "How many drafts a round keeps",
    "chart-timing": "Time of each round",
    "chart-speedup": "Speedup against k",
}


def build_board(trace: Trace, plain_rate: float | None) -> gr.HTML:
    """The component, showing a run."""
    return gr.HTML(
        board(trace, plain_rate),
        html_template=template(),
        js_on_load=script("charts"),
        apply_default_css=False,
        elem_id="charts",
        label="Charts",
    )


def board(trace: Trace, plain_rate: float | None = None, dark: bool = False) -> str:
    """All charts of a run as JSON text: `{id: figure}`.

    Args:
        trace: A run, whole or so far.
        plain_rate: Measured tokens a second of plain decoding, for the speedup chart.
        dark: Whether the charts stand on a dark page.
    """
    figures = {name: _figure(name, trace, plain_rate, dark) for name in CHARTS}
    members = (f"{json.dumps(name)}:{figure.to_json()}" for name, figure in figures.items())
    return ("{" + ",".join(members) + "}").replace("<", "\\u003c")


def _figure(name: str, trace: Trace, plain_rate: float | None, dark: bool) -> go.Figure:
    if name == "chart-speedup":
        return speedup(trace, dark, plain_rate)
    return CHARTS[name](trace, dark)


def template() -> str:
    """One labelled place a chart."""
    return '<div class="ns-board">' + "".join(map(_place, CHARTS)) + "</div>"


def _place(name: str) -> str:
    title = html.escape(TITLES[name])
    return (
        f'<figure class="ns-chart"><figcaption>{title}<span></span></figcaption>'
        f'<div id="{name}" class="ns-plot" role="img" aria-label="{title}"></div></figure>'
    )
