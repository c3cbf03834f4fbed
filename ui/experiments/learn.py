"""The Learn tab: lessons of a few steps each with a picture; recorded at first, live on demand.

`assets/js/learn.js` draws them and requests a lesson when it is opened. A lesson's experiment has its own settings and
leaves the controls of the other tabs unchanged.
"""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr
from starlette.responses import HTMLResponse
from starlette.routing import Route

from naive_speculate.sampling.random_source import fresh_seed
from ui.assets import component, render
from ui.experiments.lessons.course import LESSONS, RECORDING, answers_page, content, titles
from ui.experiments.lessons.lesson import Lesson, Trial
from ui.experiments.recordings import recorded_lesson
from ui.gradio_gaps import payload
from ui.host.catalog import Catalog
from ui.labels import to_json
from ui.notify import QUIET
from ui.run import controls as parts
from ui.run.recorded import models_in_words, recording_of
from ui.run.settings import Settings

RECORDED = "Recorded with {models}, unless it says calculated."
LIVE = "Live, on this machine, with your prompt."
ANSWERS = "answers"
MOST_SEEN = 100
USED = ("prompt", "pair", "chat")  # the visitor's settings that lessons use


def build_learn(catalog: Catalog, controls: parts.Controls) -> None:
    """Build the tab inside the current Blocks context; lessons read the controls and change none."""
    events = ["sample", "measure", "halt"]
    target = catalog.of("").engine.about.models.get("target")

    def recorded(number: object) -> str:  # called by its name
        return recording(number, target)

    markup = render("learn", titles=titles(), lessons=LESSONS)
    view = component("learn", markup, events=events, server_functions=[recorded], label="Lessons")

    def live(event: gr.EventData, *values: Any) -> Iterator[Any]:
        yield from go_live(catalog, payload(event), values)

    inputs = parts.ordered(controls)
    going = [
        view.sample(live, inputs, view, concurrency_limit=4, **QUIET),
        # Timed experiments run one after another, across all tabs.
        view.measure(live, inputs, view, concurrency_id="measuring", concurrency_limit=1, **QUIET),
    ]
    view.halt(None, None, None, cancels=going, queue=False, **QUIET)


def recording(number: object, target: str | None = None) -> str:
    """A lesson's recording for this target, as JSON for the browser; empty for an unknown one."""
    lesson = lesson_of(number)
    if lesson is None:
        return ""
    found = recorded_lesson(lesson.number, recording_of(target)[0])
    return to_json(content(lesson, found, RECORDED.format(models=models_in_words(target)), RECORDING))


def answers() -> Route:
    """The route of the page with the answers to all exercises."""
    return Route(f"/{ANSWERS}", lambda _: HTMLResponse(answers_page()))


def lesson_of(number: object) -> Lesson | None:
    """The lesson of this number; None for an unknown one."""
    return next((lesson for lesson in LESSONS if lesson.number == number), None)


def go_live(catalog: Catalog, asked: dict[str, Any], values: tuple[Any, ...]) -> Iterator[Any]:
    """Run a lesson's experiment with the values of the controls, and yield messages for the browser. It asks for
    `{"lesson": number, "seen": [keys of results that the visitor has seen], "prompt": text}`; the prompt may be missing."""
    lesson = lesson_of(asked.get("lesson"))
    if lesson is None:
        return
    seen, prompt = asked.get("seen"), asked.get("prompt")
    keys = frozenset(map(str, seen[-MOST_SEEN:])) if isinstance(seen, list) else frozenset()
    cancel = threading.Event()
    found = None
    status = ""
    try:
        chosen = parts.read(values)
        settings = Settings(**{name: getattr(chosen, name) for name in USED}, seed=fresh_seed() % 2**30)
        if isinstance(prompt, str):
            settings = replace(settings, prompt=prompt)
        for status, data in lesson.measure(Trial(catalog, settings, cancel, keys)):
            found = content(lesson, data, LIVE) if data else found
            yield _message(lesson, status, found, done=False)
    except Exception as error:
        status = parts.failed(error)
    finally:
        cancel.set()
    yield _message(lesson, status, found, done=True)


def _message(lesson: Lesson, status: str, found: dict[str, Any] | None, *, done: bool) -> str:
    # Each message contains the whole result, because Gradio may drop all but the last.
    return to_json({"lesson": lesson.number, "said": status, "content": found, "done": done, "at": fresh_seed()})


def lesson_in(query: Any) -> int | None:
    """The number of the lesson that a link leads to; None for none."""
    number = str(query.get("lesson", ""))
    return int(number) if number.isdecimal() and lesson_of(int(number)) else None
