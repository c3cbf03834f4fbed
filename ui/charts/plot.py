"""A Plotly chart that follows the page's theme: the browser gets the figure for light and for dark and draws what it needs.

It is drawn by the Plotly that Gradio brings for `gr.Plot`; see `load_plotly`.
"""

import html
from collections.abc import Callable

import gradio as gr
import plotly.graph_objects as go

from ui.assets import script


def themed(make: Callable[[bool], go.Figure]) -> str:
    """A figure for both themes as JSON text.

    Args:
        make: Makes the figure, for a dark page or a light one.
    """
    pair = f'{{"light":{make(False).to_json()},"dark":{make(True).to_json()}}}'
    return pair.replace("<", "\\u003c")


def load_plotly() -> None:
    """An unseen, empty `gr.Plot`: Gradio loads its Plotly with the first one of a page, and then it is there for all charts."""
    gr.Plot(go.Figure(layout={"template": {}}), visible="hidden", elem_id="plotly")


def build_plot(elem_id: str, title: str, value: str = "") -> gr.HTML:
    """The component; its value is what `themed` gives.

    Args:
        elem_id: Id of the component.
        title: Stands above the chart, and before the chart's takeaway for screen readers.
        value: The first figure; empty for none yet, and then nothing is seen.
    """
    name = html.escape(title)
    return gr.HTML(
        value,
        html_template=(
            f'<figure class="ns-chart ns-chart-alone" hidden><figcaption>{name}</figcaption>'
            f'<div class="ns-plot" role="img" aria-label="{name}"></div></figure>'
        ),
        js_on_load=script("figure"),
        apply_default_css=False,
        elem_id=elem_id,
        label=title,
    )
