"""Messages from server to browser: numbered events without their large fields, as JSON text; and a run as one HTML file.

The lists of most probable tokens stay on the server: they are most of an event's size, and the browser requests them only
for the inspector. A batch is a string, so that Gradio sends it whole instead of computing a difference. `<` is escaped, so
that no token can look like a tag.

The HTML file replays a run without server or network: it contains the page's own stage and scripts. The scripts are ES modules
that import one another; an import map resolves each name to its text as a data URL.
"""

import json
from base64 import b64encode
from collections.abc import Sequence

from markupsafe import Markup

from naive_speculate.events import OUTPUT_KINDS, TOKEN_KINDS, Event, EventKind
from naive_speculate.events.trace import Trace
from ui.assets import IMPORT, modules_for, render, styles
from ui.explain.case import warning
from ui.explain.glossary import glossary
from ui.explain.inspector import panel, redraw_data, words
from ui.labels import to_json
from ui.run.runs import Run
from ui.run.settings import NOTHING

HEAVY = {"cost_table", "logprobs", "prompt_logprobs"} | {
    "draft_top", "target_top", "residual_top", "draft_top_target", "target_top_draft"
}  # fmt: skip
"""Fields that the page does not need to draw tokens and steps."""
RESYNC_EVENTS = 4000  # most events in one answer to a request for missed events
MAX_EXPLAINED = 2000  # longer runs, in events, have no explanations in the inspector, only its bar
ENTRIES = ("stage", "inspector", "glossary", "offline")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' data:; img-src data: blob:"


def batch(run: Run, first: int = 0, most: int | None = None) -> str:
    """One message: a run's events from number `first` on, at most `most`.

    The browser ignores messages with a smaller `serial` than that of the run it shows. If a run is `over`, it requests the
    events that the message omits.
    """
    done = run.done.is_set()  # read before the events: later ones belong to the next message
    events = run.events[first:] if most is None else run.events[first : first + most]
    message: dict[str, object] = {
        "run": run.id,
        "serial": run.serial,
        "first": first,
        "total": len(run.events),
        "events": [event.to_dict(without=HEAVY) for event in events],
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


def plain_rows(events: Sequence[Event], have: int = 0) -> list[tuple[float, int | None, str]]:
    """Time in seconds, id and text of each token of a run without drafts, from number `have` on."""
    tokens = [event for event in events if event.kind in OUTPUT_KINDS]
    return [(event.time, event.token_id, event.text or "") for event in tokens[have:]]


def offline_page(run: Run, stage: str) -> str:
    """The file of a run so far, with the stage's markup."""
    data = json.loads(batch(run)) | {"live": False, "done": True}
    content = {"message": json.dumps(data), "words": _words(run.trace)}
    # Imports of other scripts are by the names that the import map resolves.
    scripts = {name: IMPORT.sub(r'\1"ns/\2.js"', text) for name, text in sorted(modules_for(ENTRIES).items())}
    imports = {
        f"ns/{name}.js": f"data:text/javascript;base64,{b64encode(text.encode()).decode()}" for name, text in scripts.items()
    }
    return render(
        "offline",
        policy=Markup(_POLICY),
        title=run.title or "A run",
        styles=Markup(styles()),
        imports=Markup(json.dumps({"imports": imports})),
        stage=Markup(stage),
        panel=panel(),
        glossary=glossary(),
        run=Markup(json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")),
    )


def document(title: str, body: str) -> str:
    return render("document", policy=Markup(_POLICY), title=title, body=Markup(body))


def _words(trace: Trace) -> dict[int, object]:
    """The inspector's explanation of each token as of the end of its step, and the data to redraw its position."""
    if len(trace) > MAX_EXPLAINED:
        return {}
    explained: dict[int, object] = {}
    end = len(trace)
    for number in reversed(range(len(trace))):
        kind = trace[number].kind
        if kind == EventKind.STEP:
            end = number + 1
        elif kind in TOKEN_KINDS:
            shown = Trace(trace.events[:end])
            explained[number] = words(shown, number) | {"redraw": redraw_data(shown, number)}
    return explained
