"""What the visitor is told in a toast."""

import html
from typing import Any

import gradio as gr

QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
"""Options of an event that shows no progress, and is for the page only."""


def warn(problem: object, title: str = "This cannot be run") -> None:
    """Tell the visitor what cannot be, as text: toasts are drawn as HTML."""
    gr.Warning(html.escape(str(problem))[:600], title=title)
