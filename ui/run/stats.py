"""The places of a run's headline, which `assets/js/stats.js` fills as the stage goes on, and a run's title."""

import gradio as gr

from naive_speculate.events.trace import Trace
from ui.assets import mounting

TILES = ("Acceptance rate", "Tokens per target pass", "Tokens per second", "Speedup")


def build_stats() -> gr.HTML:
    """The component: a sentence on what is seen, and four numbers."""
    tiles = "".join(f"<div><dt>{name}</dt><dd><b>–</b><span></span></dd></div>" for name in TILES)
    return gr.HTML(
        html_template=f'<p class="ns-sentence"></p><dl class="ns-tiles">{tiles}</dl>',
        js_on_load=mounting("stats"),
        apply_default_css=False,
        elem_id="stats",
    )


def title(trace: Trace) -> str:
    """One line on a run's settings, in plain text."""
    started = trace.started
    settings = (started.settings or {}) if started else {}
    k = settings.get("num_draft_tokens")
    strategy = str(settings.get("verify_strategy", "")).replace("_", " ")
    temperature = settings.get("temperature")
    parts = [
        strategy,
        f"k = {k}" if k is not None else "",
        f"temperature {temperature:g}" if isinstance(temperature, int | float) else "",
        f"seed {started.seed}" if started and started.seed is not None else "",
    ]
    return " · ".join(part for part in parts if part)[:200]
