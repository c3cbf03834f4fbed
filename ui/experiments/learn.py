"""The Learn tab: lessons of a few steps each, beside a picture that every step sets; recorded at first, live on demand.

Words, steps and pictures are drawn by `assets/js/learn.js`, which asks for a lesson when it is opened. A lesson's experiment
runs with settings of its own, so that the controls of the other tabs are after a lesson what they were before it.
"""

import html
import threading
from collections.abc import Iterator
from typing import Any

import gradio as gr

from naive_speculate.sampling.random_source import fresh_seed
from ui.assets import component, markup_of
from ui.charts.plot import place
from ui.experiments.learn_recordings import recorded_lesson
from ui.experiments.lessons.course import LESSONS, content, titles
from ui.experiments.lessons.lesson import Lesson, Trial
from ui.host.catalog import Catalog
from ui.host.errors import in_words
from ui.labels import to_json
from ui.notify import QUIET, warn
from ui.run import controls as parts
from ui.run.settings import Settings

RECORDED = "A recorded run of the two models that come with the page."
LIVE = "Live, on this machine, with the prompt of the Run tab."
MOST_SEEN = 100
USED = ("prompt", "pair", "chat")
"""What lessons take from the visitor's settings."""


def build_learn(catalog: Catalog, controls: parts.Controls) -> None:
    """Build the tab inside the current Blocks context; lessons read the controls and turn none."""
    events = ["sample", "measure", "halt"]
    view = component("learn", template(), events=events, server_functions=[recorded], label="Lessons")

    def live(event: gr.EventData, *values: Any) -> Iterator[Any]:
        yield from go_live(catalog, event._data, values)

    inputs = parts.ordered(controls)
    going = [
        view.sample(live, inputs, view, concurrency_limit=4, **QUIET),
        # Times are measured one after the other, also of other tabs.
        view.measure(live, inputs, view, concurrency_id="measuring", concurrency_limit=1, **QUIET),
    ]
    view.halt(None, None, None, cancels=going, queue=False, **QUIET)


def template() -> str:
    """The component's markup, with the list of all lessons."""
    items = "".join(
        f'<li><button type="button" data-lesson="{number}">{html.escape(title)}</button></li>'
        for number, title in enumerate(titles(), start=1)
    )
    charts = "".join(
        f'<div data-chart="{lesson.number}" hidden>{place("", lesson.chart, "ns-chart ns-chart-alone")}</div>'
        for lesson in LESSONS
        if lesson.chart
    )
    return markup_of("learn", lessons=items, charts=charts)


def recorded(number: object) -> str:
    """A lesson as it was recorded, as JSON for the browser; empty for one that is not there."""
    lesson = lesson_of(number)
    return to_json(content(lesson, recorded_lesson(lesson.number), RECORDED)) if lesson else ""


def lesson_of(number: object) -> Lesson | None:
    """The lesson of that number, if there is one."""
    return next((lesson for lesson in LESSONS if lesson.number == number), None)


def go_live(catalog: Catalog, asked: Any, values: tuple[Any, ...]) -> Iterator[Any]:
    """Run a lesson's experiment; yields messages for the browser, which asked for
    `{"lesson": number, "seen": [keys of results that the visitor has had]}` with these values of the controls."""
    lesson = lesson_of(asked.get("lesson") if isinstance(asked, dict) else None)
    if lesson is None:
        return
    seen = asked.get("seen")
    keys = frozenset(map(str, seen[-MOST_SEEN:])) if isinstance(seen, list) else frozenset()
    cancel = threading.Event()
    found = None
    said = ""
    try:
        chosen = parts.read(values)
        settings = Settings(**{name: getattr(chosen, name) for name in USED}, seed=fresh_seed() % 2**30)
        for said, data in lesson.measure(Trial(catalog, settings, cancel, keys)):
            found = content(lesson, data, LIVE) if data else found
            yield _message(lesson, said, found, done=False)
    except ValueError as error:
        warn(error)
        said = ""
    except Exception as error:
        said = f"It ended in an error: {in_words(error)}."
    finally:
        cancel.set()
    yield _message(lesson, said, found, done=True)


def _message(lesson: Lesson, said: str, found: dict[str, Any] | None, *, done: bool) -> str:
    # What was found is sent again each time, for updates may coalesce on the way.
    return to_json({"lesson": lesson.number, "said": said, "content": found, "done": done, "at": fresh_seed()})


def lesson_in(query: Any) -> int | None:
    """The number of the lesson that a link leads to; None where it leads to none."""
    number = str(query.get("lesson", ""))
    return int(number) if number.isdecimal() and lesson_of(int(number)) else None
