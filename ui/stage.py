"""The stage: tokens, rounds and replay bar, one custom component on `gr.HTML` that is fed numbered batches of events."""

import html
import json
from collections.abc import Callable

import gradio as gr

from naive_speculate.events import EventKind
from naive_speculate.palette import PROMPT, STYLES, Style
from naive_speculate.trace import Trace
from ui.assets import ROOT, script
from ui.board import board
from ui.runs import Run, Runs
from ui.stats import headline
from ui.wire import RESYNC_EVENTS, batch

SCRIPTS = ("dom", "tokens", "rounds", "keys", "player", "tip", "controls", "stage")
LEGEND = (
    EventKind.ACCEPTED,
    EventKind.RESAMPLED,
    EventKind.BONUS,
    EventKind.REJECTED,
    EventKind.DISCARDED,
    EventKind.PROPOSED,
)


def build_stage(runs: Runs, first: Run) -> gr.HTML:
    """The component, showing `first`; its events are `inspect`, `open` and `lost`."""
    return gr.HTML(
        whole(first),
        html_template=template(),
        js_on_load=script(*SCRIPTS),
        server_functions=_server_functions(runs),
        apply_default_css=False,
        elem_id="stage",
        label="Tokens and rounds",
    )


def whole(run: Run) -> str:
    """A finished run as one message."""
    return batch(run.id, run.serial, run.events, done=True, title=run.title)


def template() -> str:
    """The component's markup; it never changes, so Gradio never touches what the script adds to it."""
    text = (ROOT / "stage.html").read_text(encoding="utf-8")
    return text.replace("<!-- legend -->", legend()).replace("<!-- meanings -->", meanings())


def legend() -> str:
    """One button a kind, with its mark, its name, how often it occurs, and its meaning as a tooltip."""
    keys = [_key(kind.value, STYLES[kind], counted=True) for kind in LEGEND]
    return _key("prompt", PROMPT, counted=False) + "".join(keys)


def meanings() -> str:
    """What each kind means, in words; a tooltip is not there for fingers and keyboards."""
    styles = [PROMPT, *(STYLES[kind] for kind in LEGEND)]
    return "".join(
        f"<div><dt>{html.escape(style.mark)} {html.escape(style.label)}</dt><dd>{html.escape(style.meaning)}</dd></div>"
        for style in styles
    )


def _key(name: str, style: Style, *, counted: bool) -> str:
    meaning = html.escape(style.meaning, quote=True)
    return (
        f'<button type="button" class="ns-key" data-toggle="{name}" aria-pressed="true" title="{meaning}">'
        f'<i aria-hidden="true">{html.escape(style.mark)}</i><span>{html.escape(style.label)}</span>'
        + (f'<b data-count="{name}"></b></button>' if counted else "</button>")
    )


def _server_functions(runs: Runs) -> list[Callable[..., str]]:
    def resync(request: list[object]) -> str:
        """The next events that the browser has missed: `[run id, how many it has]` → a message, empty for an unknown run."""
        run = runs.get(request[0]) if isinstance(request, list) and len(request) == 2 else None
        have = request[1] if run else None
        if run is None or not isinstance(have, int) or have < 0:
            return ""
        done = run.done.is_set()
        events = run.events[have : have + RESYNC_EVENTS]
        total = len(run.events)
        complete = done and have + len(events) == total
        return batch(run.id, run.serial, events, have, total=total, done=complete, live=run.live, title=run.title)

    def trace(run_id: object) -> str:
        """The whole trace as JSONL, empty for an unknown run."""
        run = runs.get(run_id)
        return run.trace.to_jsonl() if run else ""

    def seek(request: list[object]) -> str:
        """Numbers and charts up to the reader's place: `[run id, events, dark]` → JSON, empty for an unknown run."""
        run = runs.get(request[0]) if isinstance(request, list) and len(request) == 3 else None
        upto = request[1] if run else None
        if run is None or not isinstance(upto, int):
            return ""
        part = Trace(run.events[: max(0, upto)])
        figures = run.progress.at(len(part))
        stats = headline(part, run.plain_rate, run.plain_where, live=run.live, figures=figures)
        return f'{{"stats":{json.dumps(stats)},"figures":{board(part, run.plain_rate, bool(request[2]))}}}'

    return [resync, trace, seek]
