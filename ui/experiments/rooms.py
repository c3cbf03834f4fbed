"""Rooms: sections below the lessons, closed at first; each has a link of its own."""

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from naive_speculate.sampling.random_source import fresh_seed
from ui.assets import render
from ui.host.errors import message_of
from ui.host.process import payload
from ui.labels import to_json
from ui.notify import QUIET, warn

ROOMS = {
    "yourself": (
        "Draft it yourself",
        "Write the next words, say how sure you are, and compare your α with the draft model's.",
    ),
    "differ": (
        "Why do two texts differ?",
        "With and without drafts, or from two engines: is it rounding, or an error?",
    ),
    "doctor": (
        "Doctor",
        "What does your engine's log say about its draft tokens, and what may be wrong?",
    ),
}
"""Titles and descriptions, by the name in links."""


def room(name: str, template: str, **values: Any) -> str:
    """The markup of a room around a template; see `render`."""
    title, about = ROOMS[name]
    return render("room", name=name, title=title, about=about, page=f"{template}.html", **values)


def text_of(asked: dict[str, Any], name: str, label: str, most: int, *, needed: bool = True) -> str:
    """The text in a form's field; a ValueError names the field by its label if it is empty or
    longer than `most`."""
    value = asked.get(name)
    # as forms send line breaks
    text = value.replace("\r\n", "\n") if isinstance(value, str) else ""
    if needed and not text.strip():
        raise ValueError(f"{label} is empty")
    if len(text) > most:
        raise ValueError(f"{label} may have at most {most:,} characters, got {len(text):,}")
    return text


def answer_form(
    asking: Any,
    view: gr.HTML,
    answer: Callable[..., dict[str, Any]],
    title: str,
    inputs: Any = None,
    **queue: Any,
) -> None:
    """Answer each event of a room's form: with JSON, or with a toast and JSON without findings,
    since the form waits."""

    def answered(event: gr.EventData, *values: Any) -> Iterator[str]:
        asked, fields = payload(event), dict[str, Any]()
        try:
            fields = answer(asked, *values)
        except Exception as error:
            warn(error if isinstance(error, ValueError) else message_of(error), title)
        # Gradio does not send an unchanged value, so each answer is different; the page checks the
        # question's number.
        number = asked.get("asked")
        known = number if type(number) is int and 0 <= number < 2**53 else None
        yield to_json({"at": fresh_seed(), "asked": known, **fields})

    # "multiple": Gradio's default "once" would drop a question asked just after an answer.
    asking(answered, inputs, view, trigger_mode="multiple", **queue, **QUIET)
