"""A run as one HTML file that replays without server or network: the page's own stage and scripts, inlined.

The scripts are ES modules that import one another; an import map resolves each name to its text as a data URL.
"""

import json
from base64 import b64encode

from markupsafe import Markup

from naive_speculate.events import TOKEN_KINDS, EventKind
from naive_speculate.events.trace import Trace
from ui.assets import IMPORT, modules_for, render, styles
from ui.explain.glossary import glossary
from ui.explain.inspector import panel, words
from ui.explain.redraw import redraw_data
from ui.run.messages import batch
from ui.run.runs import Run

MAX_EXPLAINED = 2000  # longer runs, in events, have no explanations in the inspector, only its bar
ENTRIES = ("stage", "inspector", "glossary", "offline")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' data:; img-src data: blob:"


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
    """A whole HTML file around a piece of markup."""
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
