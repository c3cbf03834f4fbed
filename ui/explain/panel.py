"""The inspector's panel; `assets/js/inspector.js` fills it during playback."""

import json
from typing import Any

import gradio as gr

from naive_speculate.events import TOKEN_KINDS, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.palette import STYLES
from ui import labels
from ui.assets import component, render
from ui.explain.inspector import to_json


def build_panel(run: str, trace: Trace) -> gr.HTML:
    """The component. Its value already explains the token that the first run shows, which saves a request."""
    return component("inspector", panel(), labels.to_json(_first_shown(run, trace)), elem_id="why", label="Why")


def panel() -> str:
    """The panel's markup."""
    return render("inspector", marks={kind: style.mark for kind, style in STYLES.items()})


def _first_shown(run: str, trace: Trace) -> dict[str, Any]:
    """The explanation that `assets/js/stage.js` requests first for a finished run: its closest rejection."""
    tokens = [number for number, event in enumerate(trace) if event.kind in TOKEN_KINDS]
    rejected = [number for number in tokens if trace[number].kind == EventKind.REJECTED]
    number = min(rejected, key=lambda number: abs((trace[number].accept_prob or 0.0) - 0.5), default=tokens[-1])
    end = next(n for n, event in enumerate(trace) if n > number and event.kind == EventKind.STEP) + 1
    if trace[end].kind == EventKind.FINISHED:  # it belongs to the last step
        end += 1
    return {"run": run, "number": number, "upto": end, **json.loads(to_json(Trace(trace.events[:end]), number))}
