"""The inspector's panel, which `assets/js/inspector.js` fills as playback goes on."""

import html
import json
from typing import Any

import gradio as gr

from naive_speculate.events import TOKEN_KINDS, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.palette import STYLES
from ui.assets import component, markup_of
from ui.explain.inspector import to_json


def build_panel(run: str, trace: Trace) -> gr.HTML:
    """The component. What there is to say of the refused draft of the run that is shown first need not be asked for."""
    first = json.dumps(_first_shown(run, trace)).replace("<", "\\u003c")
    return component("inspector", panel(), first, elem_id="why", label="Why")


def panel() -> str:
    """The panel's markup."""
    marks = html.escape(json.dumps({kind: style.mark for kind, style in STYLES.items()}), quote=True)
    return markup_of("inspector", marks=marks)


def _first_shown(run: str, trace: Trace) -> dict[str, Any]:
    """The answer to what `assets/js/stage.js` asks about a run that lies open: its refusal that was the most open."""
    tokens = [number for number, event in enumerate(trace) if event.kind in TOKEN_KINDS]
    refused = [number for number in tokens if trace[number].kind == EventKind.REJECTED]
    number = min(refused, key=lambda number: abs((trace[number].accept_prob or 0.0) - 0.5), default=tokens[-1])
    end = next(n for n, event in enumerate(trace) if n > number and event.kind == EventKind.STEP) + 1
    if trace[end].kind == EventKind.FINISHED:  # it belongs to the last round
        end += 1
    return {"run": run, "number": number, "upto": end, **json.loads(to_json(Trace(trace.events[:end]), number))}
