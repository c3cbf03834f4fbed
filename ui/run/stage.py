"""The stage: tokens, steps and replay bar in one custom component, fed with numbered batches of
events; a run as one HTML file.

A batch is JSON text, so that Gradio sends it whole instead of computing a difference. `<` is
escaped, so that no token can look like a tag. The lists of most probable tokens stay on the
server: they are most of an event's size, and the browser requests them only for the inspector.

The browser asks the server about its run, such as for what is decoded afterwards to compare it:
the speedup, which is measured once and stored in the run's last event, so that a saved trace
contains it; and the acceptance without its guide.

The HTML file replays a run without server or network: it contains the page's own stage and
scripts. The scripts are ES modules that import one another; an import map resolves each name to
its text as a data URL.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import gradio as gr
from markupsafe import Markup

from naive_speculate.events import OUTPUT_KINDS, TOKEN_KINDS, Event, EventKind, FinishReason
from naive_speculate.events.metrics import summarize
from naive_speculate.events.trace import Trace
from naive_speculate.serving import Request
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.draft.copying import CopyingDrafter
from naive_speculate.tools.show.drawing import LAYOUTS, step_svg
from naive_speculate.tools.show.notebook import to_html
from naive_speculate.tools.show.palette import PROMPT, STYLES
from ui.assets import IMPORT, component, modules_for, render, styles, variable
from ui.explain.glossary import glossary
from ui.explain.inspector import panel, words
from ui.explain.inspector import to_json as explanation
from ui.explain.why import warning
from ui.host.measuring import NotMeasured, in_turn
from ui.host.visitors import weight
from ui.labels import to_json
from ui.run.runs import Runs, ShownRun
from ui.run.settings import NOTHING, settings_of

HEAVY = {"cost_table", "logprobs", "prompt_logprobs"} | {
    "draft_top", "target_top", "residual_top", "draft_top_target", "target_top_draft"
}  # fmt: skip
"""Fields that the page does not need to draw tokens and steps."""
RESYNC_EVENTS = 4000  # most events in one answer to a request for missed events
MAX_EXPLAINED = 2000  # longer runs, in events, have no explanations in the inspector, only its bar
MAX_DRAWN = 100  # steps of a saved run that have drawings, of 20 kB each
ENTRIES = ("stage", "inspector", "glossary", "offline")
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' data:; img-src data:"
    " blob:"
)
LEGEND = ("accepted", "resampled", "bonus", "rejected", "discarded", "proposed")
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


def build_stage(runs: Runs, first: ShownRun) -> gr.HTML:
    """The component, showing `first`; its events are `open`, `lost`, `follow` and `linked`."""
    events, functions = ["open", "lost", "follow", "linked"], _server_functions(runs)
    return component(
        "stage",
        template(),
        batch(first),
        events=events,
        server_functions=functions,
        label="Tokens and steps",
    )


def template() -> str:
    """The component's markup; it never changes, so Gradio never changes what the script adds to
    it."""
    return render(
        "stage",
        keys={"prompt": PROMPT} | {kind: STYLES[kind] for kind in LEGEND},
        terms={"drafted": "draft", "prompt": ""},  # other kinds have their label's
        tiles=TILES,
        drafters={name: _shown(name) for name in DRAFTERS},
    )


def _shown(name: str) -> dict[str, Any]:
    """What the browser says of a drafter."""
    drafter = DRAFTERS[name]
    copies = issubclass(drafter, CopyingDrafter) or drafter.copies_or_asks
    texts = {"title": drafter.title or name, "about": drafter.about, "phrase": drafter.phrase}
    return texts | {"copies": copies}


def _server_functions(runs: Runs) -> list[Callable[..., Any]]:
    """What the browser can ask the server about a run. An unknown run has an empty answer."""

    def resync(request: object) -> str:
        """Missing events: `[run id, how many the browser has]` → a message."""
        match request:
            case [run_id, int(have)] if have >= 0 and (run := runs.read(run_id)):
                run.inbox.skip()  # they are not unread
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
        """The inspector's words and distributions: `[run id, event number, number of shown
        events]` → JSON."""
        match request:
            case [run_id, int(number), int(upto)] if (
                run := runs.read(run_id)
            ) and 0 <= number < upto <= len(run.events):
                if run.events[number].kind in TOKEN_KINDS:
                    return explanation(Trace(run.events[:upto]), number)
        return ""

    return [resync, leave, trace, explain, *_result_functions(runs), *_file_functions(runs)]


def _result_functions(runs: Runs) -> list[Callable[..., Any]]:
    async def unguided(run_id: object) -> str:
        """The acceptance of a guided run without its guide, as JSON (see `without_guide`)."""
        run = runs.get(run_id)
        return to_json(await in_turn(lambda: without_guide(run), run.visitor)) if run else ""

    async def speedup(request: object) -> str:
        """The speedup, measured first if necessary: `[run id, whether the visitor asked]` → JSON
        (see `speedup_of`)."""
        match request:
            case [run_id, bool(asked)] if run := runs.get(run_id):
                return to_json(await in_turn(lambda: speedup_of(run, asked=asked), run.visitor))
        return ""

    def plain(request: object) -> str:
        """The tokens of the run without drafts, while they are decoded: `[run id, how many the
        browser has]` → JSON."""
        match request:
            case [run_id, int(have)] if have >= 0 and (run := runs.get(run_id)):
                return to_json(plain_rows(list(run.plain), have))
        return ""

    def link(run_id: object) -> str:
        run = runs.get(run_id)
        settings = run and (run.settings or settings_of(run.trace))
        return settings.query(NOTHING) if settings else ""

    return [unguided, speedup, plain, link]


def _file_functions(runs: Runs) -> list[Callable[..., Any]]:
    def file(request: object) -> str:
        """A file's text: `[run id, "replay" or "html"]` for a run, or `[run id, "round", step,
        number of shown events]` for one step; empty if there is no such step."""
        match request:
            case [run_id, "replay"] if run := runs.get(run_id):
                return offline_page(run, template())
            case [run_id, "html"] if run := runs.get(run_id):
                return render(
                    "document",
                    policy=Markup(_POLICY),
                    title=run.title or "A run",
                    body=Markup(to_html(run.events)),
                )
            case [run_id, "round", int(step), int(upto)] if (
                run := runs.get(run_id)
            ) and 0 < upto <= len(run.events):
                with suppress(ValueError):  # there is no such step
                    return step_svg(run.events[:upto], step)
        return ""

    def drawing(request: object) -> str:
        """A finished step in the page's colours: `[run id, how many before it, layout]` → SVG;
        empty if there is no such step."""
        match request:
            case [run_id, int(place), str(layout)] if layout in LAYOUTS and (
                run := runs.get(run_id)
            ):
                steps = [event for event in run.events if event.kind == EventKind.STEP]
                with suppress(ValueError):
                    for step in steps[max(0, place) :][:1]:
                        number, row = step.step or 0, step.row
                        return step_svg(run.events, number, row, layout=layout, paint=variable)
        return ""

    return [file, drawing]


def speedup_of(run: ShownRun, *, asked: bool) -> dict[str, Any]:
    """The answer for the browser: the `speedup`, measured now if possible, or a `reason` and
    whether to ask `again`. A stopped run is measured only if the visitor `asked`."""
    finished = run.trace.finished
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
        answer = _reason(error)
        if answer["again"]:
            run.plain.clear()  # it was cut off
        return answer
    run.size += weight(run.plain)
    return {"speedup": run.events[-1].to_dict()["speedup"]}


def acceptance(events: Sequence[Event]) -> dict[str, Any]:
    """How many judged draft tokens of a run were accepted, and whether it was cut off."""
    m = summarize(events)
    cut = any(event.finish_reason == FinishReason.CANCELLED for event in events)
    return {"accepted": m.num_accepted_draft_tokens, "judged": m.num_judged, "cut": cut}


def without_guide(run: ShownRun) -> dict[str, Any]:
    """The acceptance of a guided run without its guide, for the browser, or a `reason` and
    whether to ask `again`."""
    if run.unguided is None:
        return _reason(UNREPEATED)
    try:
        return run.unguided()
    except FAILURES as error:
        return _reason(error)


def seeded(request: Request, seed: int | None, **changes: Any) -> Request:
    return replace(request, params=replace(request.params, seed=seed, **changes))


def _reason(why: str | Exception, *, again: bool = False) -> dict[str, Any]:
    return {"reason": str(why), "again": again or (isinstance(why, NotMeasured) and why.again)}


def batch(run: ShownRun, first: int = 0, most: int | None = None) -> str:
    """One message: a run's events from number `first` on, at most `most`.

    The browser ignores messages with a smaller `serial` than that of the run it shows. If a run
    is `over`, it requests the events that the message omits.
    """
    done = run.done.is_set()  # read before the events: later ones belong to the next message
    events = run.events[first:] if most is None else run.events[first : first + most]
    message: dict[str, object] = {
        "run": run.id,
        "serial": run.serial,
        "first": first,
        "total": len(run.events),
        "events": [_sent(run, number) for number in range(first, first + len(events))],
        "done": done and first + len(events) == len(run.events),
        "over": done,
        "live": run.live,
        "crowded": run.crowded,
        "title": run.title,
        "warning": warning((run.events[0].settings if run.events else None) or {}),
    }
    if first == 0 and done and (run.measure is None or (run.events and run.events[-1].speedup)):
        message["plain"] = plain_rows(run.plain)  # complete; until then the browser asks for it
    if first == 0 and run.settings is not None:
        message["query"] = run.settings.query(NOTHING)  # to repeat the run if the server forgets it
    return to_json(message)


def _sent(run: ShownRun, number: int) -> dict[str, Any]:
    """An event for the browser; that of a step has the figures up to it."""
    event, figures = run.events[number], run.figures.of(run.events, number)
    return event.to_dict(without=HEAVY) | ({"figures": figures} if figures else {})


def plain_rows(events: Sequence[Event], have: int = 0) -> list[tuple[float, int | None, str]]:
    """Time in seconds, id and text of each token of a run without drafts, from number `have` on."""
    tokens = [event for event in events if event.kind in OUTPUT_KINDS]
    return [(event.time, event.token_id, event.text or "") for event in tokens[have:]]


def offline_page(run: ShownRun, stage: str) -> str:
    """The file of a run so far, with the stage's markup."""
    data = json.loads(batch(run)) | {"live": False, "done": True}
    message, words = json.dumps(data), _words(run.trace)
    content = {"message": message, "words": words, "drawings": _drawings(run.trace)}
    imports = {}
    for name, text in sorted(modules_for(ENTRIES).items()):
        # imports of other scripts are by the names that the import map resolves
        script = IMPORT.sub(r'\1"ns/\2.js"', text)
        imports[f"ns/{name}.js"] = (
            f"data:text/javascript;base64,{b64encode(script.encode()).decode()}"
        )
    return render(
        "offline",
        policy=Markup(_POLICY),
        title=run.title or "A run",
        styles=Markup(styles()),
        imports=Markup(json.dumps({"imports": imports})),
        stage=render("machine") + render("race") + Markup(stage),
        panel=panel(),
        glossary=glossary(),
        run=Markup(json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")),
    )


def _drawings(trace: Trace) -> list[list[str]]:
    """Each step's drawing, for wide and for narrow pages."""
    steps = [event.step for event in trace if event.kind == EventKind.STEP]
    drawn = list[list[str]]()
    with suppress(ValueError):  # a step without tokens
        for step in steps[:MAX_DRAWN]:
            drawn.append(
                [
                    step_svg(trace.events, step or 0, trace[0].row, layout=name, paint=variable)
                    for name in ("medium", "narrow")
                ]
            )
    return drawn


def _words(trace: Trace) -> dict[int, object]:
    """The inspector's explanation of each token as of the end of its step."""
    explained: dict[int, object] = {}
    end = len(trace) if len(trace) <= MAX_EXPLAINED else 0
    for number in reversed(range(end)):
        if trace[number].kind == EventKind.STEP:
            end = number + 1
        elif trace[number].kind in TOKEN_KINDS:
            explained[number] = words(Trace(trace.events[:end]), number)
    return explained
