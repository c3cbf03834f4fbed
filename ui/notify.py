"""What the visitor is told in a toast."""

import html

import gradio as gr


def warn(problem: object, title: str = "This cannot be run") -> None:
    """Tell the visitor what cannot be, as text: toasts are drawn as HTML."""
    gr.Warning(html.escape(str(problem))[:600], title=title)
