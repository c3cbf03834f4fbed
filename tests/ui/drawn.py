"""Figures as the browser draws them: with the palette's colours in the place of their names, and
checked by Plotly."""

import json
import re
from typing import Any

import plotly.graph_objects as go

from ui.assets import variables
from ui.charts.figures import Figure

LIGHT, DARK = (dict(re.findall(r"(--ns-\w+):(#\w+)", part)) for part in variables().split(".dark"))


def drawn(figure: Figure, *, dark: bool = False) -> go.Figure:
    """The figure; Plotly raises ValueError for what it does not know, such as a colour without a
    name in the palette."""
    colors = DARK if dark else LIGHT
    text = re.sub(
        r"var\((--ns-\w+)\)", lambda name: colors.get(name[1], name[0]), json.dumps(figure)
    )
    made: dict[str, Any] = json.loads(text)
    return go.Figure(made["data"], made["layout"])
