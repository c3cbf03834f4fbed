"""Guided decoding on the page: its two controls, and the library's parameter."""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import gradio as gr
from gradio.components import Component

from ui.notify import QUIET

TITLES = {"choice": "One of these texts", "regex": "A regular expression", "json": "A JSON schema"}
"""The page's kinds of guides, by the library's names."""

ANIMAL = {
    "type": "object",
    "properties": {
        "animal": {"enum": ["fox", "bear", "hedgehog"]},
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["animal", "name", "age"],
}
EXAMPLES = {
    "choice": " in the forest.\n by the sea.\n under a tree.",
    "regex": r"( [a-z]+){5,12}\.",
    "json": json.dumps(ANIMAL, indent=1),
}
"""The field's content for each kind, until the visitor changes it."""

FILL = f"""(kind, text) => {{
    const examples = {json.dumps(EXAMPLES)};
    return !text || Object.values(examples).includes(text) ? examples[kind] ?? "" : text;
}}"""
HINTS = dict.fromkeys(TITLES, "An example; change it.") | {
    "choice": "An example; change it. One text per line, each with its leading space."
}
SHOW = f'(kind) => ({{ __type__: "update", visible: Boolean(kind), info: {json.dumps(HINTS)}[kind] }})'


def build_guided(kind: str, text: str) -> dict[str, Component]:
    """The controls with their initial values; hidden if xgrammar is not installed."""
    possible = find_spec("xgrammar") is not None
    kinds = [("Nothing", ""), *((title, kind) for kind, title in TITLES.items())]
    info = (
        "[Blocks](#term-guided) every token that violates it, for draft and target alike. Text that it requires, such as "
        "the keys of JSON, is drafted without a drafter: this helps where a schema has long fixed parts."
    )
    choice = gr.Dropdown(kinds, value=kind, label="Guide the text by", info=info, elem_id="guided", visible=possible)
    look: dict[str, Any] = {"lines": 3, "max_lines": 12, "elem_id": "guided-text", "visible": possible and bool(kind)}
    source = gr.Textbox(text, label="Guide", info=HINTS.get(kind), **look)
    choice.input(None, [choice, source], source, js=FILL, **QUIET)
    choice.change(None, choice, source, js=SHOW, **QUIET)
    return {"guided": choice, "guided_text": source}


def guide(kind: str, text: str) -> dict[str, Any] | None:
    """The library's `guided_decoding`; None for no guide. Raises ValueError if the kind is unknown or the guide empty."""
    if not kind:
        return None
    if kind not in TITLES:
        raise ValueError(f"guided must be one of {', '.join(TITLES)}, got {kind!r:.80}")
    if not text.strip():
        raise ValueError(f"“Guide” is empty: write {TITLES[kind][0].lower()}{TITLES[kind][1:]} there")
    if kind == "choice":
        return {"choice": [line.replace("\\n", "\n") for line in text.split("\n") if line.strip()]}
    return {"regex": text} if kind == "regex" else {"json": text, "disable_any_whitespace": True}


def controls_of(guided: Mapping[str, Any] | None) -> dict[str, str] | None:
    """The controls' values for a run's `guided_decoding`; None if the controls cannot express it."""
    match guided or None:
        case None:
            return {}
        case {"choice": [*texts]} if all(isinstance(text, str) for text in texts):
            return {"guided": "choice", "guided_text": "\n".join(text.replace("\n", "\\n") for text in texts)}
        case {"regex": str(text)}:
            return {"guided": "regex", "guided_text": text}
        case {"json": schema, "disable_any_whitespace": True}:
            return {"guided": "json", "guided_text": schema if isinstance(schema, str) else json.dumps(schema)}
    return None
