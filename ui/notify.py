"""Toasts."""

import html
from typing import Any

import gradio as gr

QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
"""Options of an event that shows no progress and is private to the page."""
MOST = 600  # characters of a toast


def warn(problem: object, title: str = "This cannot be run", field: str = "") -> None:
    """Show a problem as a toast. Gradio draws toasts as HTML, so the text is escaped. With a
    `field`, `assets/js/problems.js` marks that setting until it is changed."""
    text = str(problem)
    shown = html.escape(text if len(text) <= MOST else f"{text[:MOST]} …")
    mark = f'<span class="ns-problem ns-problem-{field}">{shown}</span>'
    gr.Warning(mark if field else shown, title=title)
