"""A run as one HTML file that replays by itself, without this server or any network: the page's own stage and scripts, inlined.

The scripts are ES modules that import one another; here an import map leads each name to its text, as a data URL.
"""

import html
import json
from base64 import b64encode

from naive_speculate.events import TOKEN_KINDS, EventKind
from naive_speculate.events.trace import Trace
from ui.assets import IMPORT, markup_of, modules_for, styles
from ui.explain.glossary import glossary
from ui.explain.inspector import words
from ui.explain.panel import panel
from ui.explain.roll import roll
from ui.run.runs import Run
from ui.run.wire import batch

MAX_EXPLAINED = 2000
"""Of longer runs, so many events, the words of the inspector stay behind; its bar and its sentence do not."""
ENTRIES = ("stage", "inspector", "glossary", "offline")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' data:; img-src data: blob:"


def offline_page(run: Run, stage: str) -> str:
    """The file of a run, as far as it has come, with the stage's markup."""
    data = json.loads(batch(run)) | {"live": False, "done": True}
    told = {"message": json.dumps(data), "words": _words(run.trace)}
    imports = {f"ns/{name}.js": f"data:text/javascript;base64,{b64encode(text.encode()).decode()}" for name, text in _modules()}
    return markup_of(
        "offline",
        policy=_POLICY,
        title=html.escape(run.title or "A run"),
        styles=styles(),
        imports=json.dumps({"imports": imports}),
        stage=stage,
        panel=panel(),
        glossary=glossary(),
        run=json.dumps(told, separators=(",", ":")).replace("<", "\\u003c"),
    )


def document(title: str, body: str) -> str:
    """A whole HTML file of a piece of markup."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{html.escape(title)}</title></head>'
        f"<body>{body}</body></html>\n"
    )


def _modules() -> list[tuple[str, str]]:
    """The scripts that the file needs by their names, with imports that the import map knows."""
    return sorted((name, IMPORT.sub(r'\1"ns/\2.js"', text)) for name, text in modules_for(ENTRIES).items())


def _words(trace: Trace) -> dict[int, object]:
    """What the inspector says of each token, as soon as its round is over, and what it takes to roll its dice again."""
    if len(trace) > MAX_EXPLAINED:
        return {}
    told: dict[int, object] = {}
    end = len(trace)
    for number in reversed(range(len(trace))):
        kind = trace[number].kind
        if kind == EventKind.STEP:
            end = number + 1
        elif kind in TOKEN_KINDS:
            shown = Trace(trace.events[:end])
            told[number] = words(shown, number) | {"roll": roll(shown, number)}
    return told
