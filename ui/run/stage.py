"""The stage: tokens, rounds and replay bar, one custom component on `gr.HTML` that is fed numbered batches of events."""

import html
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gradio as gr

from naive_speculate.events import TOKEN_KINDS, EventKind
from naive_speculate.events.figure import step_svg
from naive_speculate.events.notebook import to_html
from naive_speculate.events.trace import Trace
from naive_speculate.palette import PROMPT, STYLES, Style
from naive_speculate.speculate.draft import DRAFTERS
from ui import labels
from ui.assets import component, markup_of
from ui.explain.glossary import link
from ui.explain.inspector import to_json
from ui.host.measuring import in_turn
from ui.run.guided import unguided as without_its_guide
from ui.run.offline import document, offline_page
from ui.run.runs import Run, Runs
from ui.run.settings import NOTHING, settings_of
from ui.run.speedup import speedup_of
from ui.run.stats import headline
from ui.run.wire import RESYNC_EVENTS, batch

LEGEND = (
    EventKind.ACCEPTED,
    EventKind.RESAMPLED,
    EventKind.BONUS,
    EventKind.REJECTED,
    EventKind.DISCARDED,
    EventKind.PROPOSED,
)

TERMS_OF = {"drafted": "draft", "accepted": "kept", "rejected": "refused"} | {
    label: label for label in ("discarded", "resampled", "bonus")
}
"""The kinds' terms in the glossary, by their labels."""


def build_stage(runs: Runs, first: Run) -> gr.HTML:
    """The component, showing `first`; its events are `open`, `lost`, `follow` and `linked`."""
    events, asked = ["open", "lost", "follow", "linked"], _server_functions(runs)
    return component("stage", template(), batch(first), events=events, server_functions=asked, label="Tokens and rounds")


def template() -> str:
    """The component's markup; it never changes, so Gradio never touches what the script adds to it."""
    return markup_of("stage", legend=legend(), meanings=meanings(), headline=headline(), drafters=drafters())


def legend() -> str:
    """One button a kind, with its mark, its name, how often it occurs, and its meaning as a tooltip."""
    keys = [_key(kind.value, STYLES[kind], counted=True) for kind in LEGEND]
    return _key("prompt", PROMPT, counted=False) + "".join(keys)


def meanings() -> str:
    """What each kind means, in words; a tooltip is not there for fingers and keyboards."""
    styles = [PROMPT, *(STYLES[kind] for kind in LEGEND)]
    return "".join(
        f"<div><dt>{html.escape(style.mark)} {_term(style.label)}</dt><dd>{html.escape(style.meaning)}</dd></div>"
        for style in styles
    )


def drafters() -> str:
    """What the script says of a run's drafter, by its name in the registry: JSON as an attribute's value."""
    words = {name: (drafter.title or name, drafter.about) for name, drafter in DRAFTERS.items()}
    return html.escape(json.dumps(words), quote=True)


def _term(label: str) -> str:
    return link(label, TERMS_OF[label]) if label in TERMS_OF else html.escape(label)


def _key(name: str, style: Style, *, counted: bool) -> str:
    meaning = html.escape(style.meaning, quote=True)
    return (
        f'<button type="button" class="ns-key" data-toggle="{name}" aria-pressed="true" title="{meaning}">'
        f'<i aria-hidden="true">{html.escape(style.mark)}</i><span>{html.escape(style.label)}</span>'
        + (f'<b data-count="{name}"></b></button>' if counted else "</button>")
    )


def _server_functions(runs: Runs) -> list[Callable[..., Any]]:
    def resync(request: list[object]) -> str:
        """The events that the browser has missed: `[run id, how many it has]` → a message, empty for an unknown run."""
        run = runs.read(request[0]) if isinstance(request, list) and len(request) == 2 else None
        have = request[1] if run else None
        if run is None or not isinstance(have, int) or have < 0:
            return ""
        run.attend()
        return batch(run, have, RESYNC_EVENTS)

    def leave(run_id: object) -> str:
        """The page with this run is being left: nobody will read on."""
        if run := runs.get(run_id):
            run.cancel.set()
        return ""

    def trace(run_id: object) -> str:
        """The whole trace as JSONL, empty for an unknown run."""
        run = runs.get(run_id)
        return run.trace.to_jsonl() if run else ""

    def explain(request: object) -> str:
        """Why a token was kept or not: `[run id, number of its event, how many events playback has shown]` → the words and the
        distributions as JSON, empty where there is nothing to explain."""
        match request:
            case [run_id, int(number), int(upto)] if (run := runs.read(run_id)) and 0 <= number < upto <= len(run.events):
                if run.events[number].kind in TOKEN_KINDS:
                    return to_json(Trace(run.events[:upto]), number)
        return ""

    async def unguided(run_id: object) -> str:
        """How many guesses a guided run keeps without its guide: JSON (see `ui.run.guided`), empty for an unknown run."""
        run = runs.get(run_id)
        return labels.to_json(await in_turn(lambda: without_its_guide(run.unguided))) if run else ""

    async def speedup(request: object) -> str:
        """What drafting gained, measured first where it was not: `[run id, whether the visitor asked]` → JSON (see
        `speedup_of`), empty for an unknown run."""
        match request:
            case [run_id, bool(asked)] if run := runs.get(run_id):
                return labels.to_json(await in_turn(lambda: speedup_of(run, asked=asked)))
        return ""

    def link(run_id: object) -> str:
        """The query that repeats a run, empty for an unknown one."""
        run = runs.get(run_id)
        settings = run and (run.settings or settings_of(run.trace))
        return settings.query(NOTHING) if settings else ""

    def file(request: object) -> str:
        """A run as a file: `[run id, "replay" or "html"]`, or one round of it: `[run id, "round", its number, how many events
        playback has shown]` → its text, empty where there is none."""
        match request:
            case [run_id, "replay"] if run := runs.get(run_id):
                return offline_page(run, template())
            case [run_id, "html"] if run := runs.get(run_id):
                return document(run.title or "A run", to_html(run.events))
            case [run_id, "round", int(step), int(upto)] if (run := runs.get(run_id)) and 0 < upto <= len(run.events):
                with suppress(ValueError):  # there is no such round
                    return step_svg(run.events[:upto], step)
        return ""

    return [resync, leave, trace, explain, unguided, speedup, link, file]
