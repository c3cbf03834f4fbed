"""The stage: tokens, steps and replay bar in one custom component, fed with numbered batches of events.

It asks the server about its run, such as for what is decoded afterwards to compare it: the speedup, which is measured once and
stored in the run's last event, so that a saved trace contains it; and the acceptance without its guide.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import gradio as gr

from naive_speculate.events import TOKEN_KINDS, Event, EventKind, FinishReason
from naive_speculate.events.metrics import summarize
from naive_speculate.events.notebook import step_svg, to_html
from naive_speculate.events.trace import Trace
from naive_speculate.palette import PROMPT, STYLES
from naive_speculate.serving import Request
from naive_speculate.speculate.draft import DRAFTERS
from ui import labels
from ui.assets import component, render
from ui.explain.inspector import to_json
from ui.host.measuring import NotMeasured, in_turn
from ui.host.visitors import weight
from ui.run.messages import RESYNC_EVENTS, batch, document, offline_page, plain_rows
from ui.run.runs import Run, Runs
from ui.run.settings import NOTHING, settings_of

LEGEND = [EventKind(name) for name in ("accepted", "resampled", "bonus", "rejected", "discarded", "proposed")]
TERMS_OF = {STYLES[kind].label: STYLES[kind].label for kind in LEGEND} | {"drafted": "draft", "prompt": ""}
"""The kinds' glossary terms, by label."""
TILES = {
    "Acceptance rate": "acceptance-rate",
    "Tokens per target pass": "tokens-per-pass",
    "Tokens per second": "token",
    "Speedup": "speedup",
}
"""The run's numbers (`assets/js/summary.js` fills them), each with its glossary term."""
GOES_ON = "The run is not finished."
NONE_SAVED = "This trace was saved without a measured speedup."
STOPPED = "The run was stopped."
FAILED = "The run ended in an error."
UNREPEATED = "This run was not decoded here, so it cannot be repeated without its guide."
FAILURES = (NotMeasured, ValueError, RuntimeError)  # the decoder stopped or failed


def build_stage(runs: Runs, first: Run) -> gr.HTML:
    """The component, showing `first`; its events are `open`, `lost`, `follow` and `linked`."""
    events, functions = ["open", "lost", "follow", "linked"], _server_functions(runs)
    return component("stage", template(), batch(first), events=events, server_functions=functions, label="Tokens and steps")


def template() -> str:
    """The component's markup; it never changes, so Gradio never changes what the script adds to it."""
    return render(
        "stage",
        keys={"prompt": PROMPT} | {kind.value: STYLES[kind] for kind in LEGEND},
        meanings=[PROMPT, *(STYLES[kind] for kind in LEGEND)],
        terms=TERMS_OF,
        tiles=TILES,
        drafters={name: (drafter.title or name, drafter.about) for name, drafter in DRAFTERS.items()},
    )


def _server_functions(runs: Runs) -> list[Callable[..., Any]]:
    """What the browser can ask the server about a run. An unknown run has an empty answer."""
    return [*_event_functions(runs), *_result_functions(runs)]


def _event_functions(runs: Runs) -> list[Callable[..., Any]]:
    def resync(request: object) -> str:
        """Missing events: `[run id, how many the browser has]` → a message."""
        match request:
            case [run_id, int(have)] if have >= 0 and (run := runs.read(run_id)):
                run.attend()
                return batch(run, have, RESYNC_EVENTS)
        return ""

    def leave(run_id: object) -> str:
        """The visitor leaves the page with this run, so nobody reads on."""
        if run := runs.get(run_id):
            run.cancel.set()
        return ""

    def trace(run_id: object) -> str:
        run = runs.get(run_id)
        return run.trace.to_jsonl() if run else ""

    def explain(request: object) -> str:
        """The inspector's words and distributions: `[run id, event number, number of shown events]` → JSON."""
        match request:
            case [run_id, int(number), int(upto)] if (run := runs.read(run_id)) and 0 <= number < upto <= len(run.events):
                if run.events[number].kind in TOKEN_KINDS:
                    return to_json(Trace(run.events[:upto]), number)
        return ""

    return [resync, leave, trace, explain]


def _result_functions(runs: Runs) -> list[Callable[..., Any]]:
    async def unguided(run_id: object) -> str:
        """The acceptance of a guided run without its guide, as JSON (see `without_guide`)."""
        run = runs.get(run_id)
        return labels.to_json(await in_turn(lambda: without_guide(run))) if run else ""

    async def speedup(request: object) -> str:
        """The speedup, measured first if necessary: `[run id, whether the visitor asked]` → JSON (see `speedup_of`)."""
        match request:
            case [run_id, bool(asked)] if run := runs.get(run_id):
                return labels.to_json(await in_turn(lambda: speedup_of(run, asked=asked)))
        return ""

    def plain(request: object) -> str:
        """The tokens of the run without drafts, while they are decoded: `[run id, how many the browser has]` → JSON."""
        match request:
            case [run_id, int(have)] if have >= 0 and (run := runs.get(run_id)):
                return labels.to_json(plain_rows(list(run.plain), have))
        return ""

    def link(run_id: object) -> str:
        run = runs.get(run_id)
        settings = run and (run.settings or settings_of(run.trace))
        return settings.query(NOTHING) if settings else ""

    def file(request: object) -> str:
        """A file's text: `[run id, "replay" or "html"]` for a run, or `[run id, "round", step, number of shown events]` for one
        step; empty if there is no such step."""
        match request:
            case [run_id, "replay"] if run := runs.get(run_id):
                return offline_page(run, template())
            case [run_id, "html"] if run := runs.get(run_id):
                return document(run.title or "A run", to_html(run.events))
            case [run_id, "round", int(step), int(upto)] if (run := runs.get(run_id)) and 0 < upto <= len(run.events):
                with suppress(ValueError):  # there is no such step
                    return step_svg(run.events[:upto], step)
        return ""

    return [unguided, speedup, plain, link, file]


def speedup_of(run: Run, *, asked: bool) -> dict[str, Any]:
    """The answer for the browser: the `speedup`, measured now if possible, or a `reason` and whether to ask `again`. A
    stopped run is measured only if the visitor `asked`."""
    finished = run.events[-1] if run.events and run.events[-1].kind == EventKind.FINISHED else None
    if finished is not None and finished.speedup is not None:
        return {"speedup": finished.to_dict()["speedup"]}
    if run.measure is None:
        return _reason(NONE_SAVED)
    if finished is None:
        return _reason(GOES_ON)
    if finished.finish_reason == FinishReason.ERROR:
        return _reason(FAILED)
    if finished.finish_reason == FinishReason.CANCELLED and not asked:
        return _reason(STOPPED, again=True)
    run.plain.clear()
    try:
        run.events[-1] = replace(run.events[-1], speedup=run.measure())
    except FAILURES as error:
        answer = _failed(error)
        if answer["again"]:
            run.plain.clear()  # it was cut off
        return answer
    run.size += weight(run.plain)
    return {"speedup": run.events[-1].to_dict()["speedup"]}


def acceptance(events: Sequence[Event]) -> dict[str, Any]:
    """How many judged draft tokens of a run were accepted, and whether it was cut off."""
    m = summarize(events)
    judged = m.num_accepted_draft_tokens + m.num_rejected_draft_tokens
    cut = any(event.finish_reason == FinishReason.CANCELLED for event in events)
    return {"accepted": m.num_accepted_draft_tokens, "judged": judged, "cut": cut}


def without_guide(run: Run) -> dict[str, Any]:
    """The acceptance of a guided run without its guide, for the browser, or a `reason` and whether to ask `again`."""
    if run.unguided is None:
        return _reason(UNREPEATED)
    try:
        return run.unguided()
    except FAILURES as error:
        return _failed(error)


def seeded(request: Request, seed: int | None, **changes: Any) -> Request:
    return replace(request, params=replace(request.params, seed=seed, **changes))


def _failed(error: Exception) -> dict[str, Any]:
    return _reason(str(error), again=isinstance(error, NotMeasured) and error.again)


def _reason(why: str, *, again: bool = False) -> dict[str, Any]:
    return {"reason": why, "again": again}
