"""Guided decoding on the page: its two controls, what they mean to the library, and what a guide did to acceptance."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import gradio as gr
from gradio.components import Component

from naive_speculate.events import Event, EventKind, FinishReason
from ui.host.measuring import NotMeasured
from ui.notify import QUIET

TITLES = {"choice": "One of these texts", "regex": "A regular expression", "json": "A JSON schema"}
"""The kinds of guides that the page offers, by their names in the library."""

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
"""What stands in the field when a kind is chosen, until the visitor writes something else."""

FILL = f"""(kind, text) => {{
    const examples = {json.dumps(EXAMPLES)};
    return !text || Object.values(examples).includes(text) ? examples[kind] ?? "" : text;
}}"""
HINTS = dict.fromkeys(TITLES, "An example, to be changed.") | {
    "choice": "An example, to be changed: one text a line, each with the space before it."
}
SHOW = f'(kind) => ({{ __type__: "update", visible: Boolean(kind), info: {json.dumps(HINTS)}[kind] }})'

UNREPEATED = "This run was not decoded here, so it cannot be decoded again without its guide."


def build_guided(kind: str, text: str) -> dict[str, Component]:
    """The controls, with what they hold at first; unseen where the library cannot guide."""
    possible = find_spec("xgrammar") is not None
    choice = gr.Dropdown(
        [("Nothing", ""), *((title, kind) for kind, title in TITLES.items())],
        value=kind,
        label="Guide the text by",
        info="[Forbids](#term-guided) every token that would leave it, to draft and target alike.",
        elem_id="guided",
        visible=possible,
    )
    source = gr.Textbox(
        text,
        label="Guide",
        lines=3,
        max_lines=12,
        info=HINTS.get(kind),
        elem_id="guided-text",
        visible=possible and bool(kind),
    )
    choice.input(None, [choice, source], source, js=FILL, **QUIET)
    choice.change(None, choice, source, js=SHOW, **QUIET)
    return {"guided": choice, "guided_text": source}


def guide(kind: str, text: str) -> dict[str, Any] | None:
    """The library's `guided_decoding`; None for no guide.

    Raises:
        ValueError: If there is no guide of that kind, or it is empty.
    """
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
    """The controls' values for a run's `guided_decoding`; None where they cannot say it."""
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


@dataclass(frozen=True, slots=True)
class Kept:
    """How many of the guesses that were judged were kept, and whether the run was cut before its end."""

    kept: int
    judged: int
    cut: bool = False


def kept(events: Iterable[Event]) -> Kept:
    """How many a run kept, by its steps, for without details it tells no more.

    A step that did not keep all its guesses refused one, and did not judge those after it.
    """
    events = list(events)
    steps = [(event.num_accepted or 0, event.num_draft or 0) for event in events if event.kind == EventKind.STEP]
    cut = any(event.finish_reason == FinishReason.CANCELLED for event in events)
    return Kept(sum(some for some, _ in steps), sum(some + (some < drafted) for some, drafted in steps), cut)


def unguided(measure: Callable[[], Kept] | None) -> dict[str, Any]:
    """What the browser is told of a run without its guide: the fields of `Kept`, or `reason` and whether to ask `again`."""
    if measure is None:
        return {"reason": UNREPEATED, "again": False}
    try:
        return asdict(measure())
    except (NotMeasured, ValueError, RuntimeError) as error:  # the pair's decoder stops or fails
        return {"reason": str(error), "again": isinstance(error, NotMeasured) and error.again}
