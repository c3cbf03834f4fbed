"""The Learn tab: lessons of a few steps each with a picture; recorded at first, live on demand.

`assets/js/learn.js` draws them and requests a lesson when it is opened. A lesson's experiment
has its own settings and leaves the controls of the other tabs unchanged.

A lesson's texts are a Markdown file, with the experiment's results in place of `{names}`. Its
first lines are labels: of the button that runs the lesson live, a note on that run, the chart's
title if there are charts, and the settings of what was measured. `## Title` starts the lesson,
`### ` each step. A step may end with a question: a line that starts with `? `, followed by a list
of choices. The next step has the answer.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr
from markdown_it import MarkdownIt

from naive_speculate.sampling.random_source import fresh_seed
from ui.assets import ROOT, component, render
from ui.experiments.lessons import (
    accept,
    batch,
    drafters,
    overlap,
    rounding,
    rules,
    slow,
    slower,
    temperature,
    ties,
    unchanged,
    verify,
    window,
)
from ui.experiments.lessons.lesson import Data, Lesson, Trial
from ui.host.catalog import Catalog
from ui.host.process import payload
from ui.labels import to_json
from ui.notify import QUIET
from ui.run import controls as parts
from ui.run.recorded import FOLDER, models_in_words, recording_of
from ui.run.settings import Settings

LESSONS_FILE = "lessons.json"
RECORDED = "Recorded with {models}, unless it says calculated."
LIVE = "Live, on this machine, with your prompt."
MOST_SEEN = 100
USED = ("prompt", "pair", "chat")  # the visitor's settings that lessons use
HERE, RECORDING = "this machine", "the recording machine"
LESSONS: tuple[Lesson, ...] = tuple(
    module.LESSON
    for module in (
        slow,
        verify,
        accept,
        unchanged,
        overlap,
        window,
        temperature,
        batch,
        slower,
        drafters,
        ties,
        rules,
        rounding,
    )
)
PATH = (1, 2, 3, 4, 6, 8)
"""The lessons that a class of 20 minutes takes, in order; `?lesson=1&path=1` leads through
them."""
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_LABEL = re.compile(r"^([a-z]+): (.+)$", re.MULTILINE)
_HEADING = re.compile(r"^##(#?) (.+)$", re.MULTILINE)
_QUESTION = re.compile(r"^\? (.+(?:\n(?!- ).+)*)\n\n?((?:^- .+\n?)+)\Z", re.MULTILINE)
_ANSWERS = (ROOT / "lessons" / "answers.md").read_text(encoding="utf-8")  # to all exercises
_NAME = re.compile(r"\{(\w+)\}")


def build_learn(catalog: Catalog, controls: parts.Controls) -> None:
    """Build the tab inside the current Blocks context; lessons read the controls and change
    none."""
    events = ["sample", "measure", "halt"]
    target = catalog.of("").engine.about.models.get("target")

    def recorded(number: object) -> str:  # called by its name
        return recording(number, target)

    charts = {lesson.number: read_labels(lesson).get("chart") for lesson in LESSONS}
    markup = render("learn", titles=titles(), charts=charts, path=PATH)
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
    recorded = recorded_lesson(lesson.number, recording_of(target)[0])
    return to_json(
        content(lesson, recorded, RECORDED.format(models=models_in_words(target)), RECORDING)
    )


def recorded_lesson(number: int, folder: Path = FOLDER) -> dict[str, Any]:
    """A lesson's recording in this folder, as data for `Lesson`."""
    data: dict[str, Any] = json.loads((folder / LESSONS_FILE).read_text(encoding="utf-8"))[
        str(number)
    ]
    return data


def lesson_of(number: object) -> Lesson | None:
    """The lesson of this number; None for an unknown one."""
    return next((lesson for lesson in LESSONS if lesson.number == number), None)


def go_live(catalog: Catalog, asked: dict[str, Any], values: tuple[Any, ...]) -> Iterator[Any]:
    """Run a lesson's experiment with the values of the controls, and yield messages for the
    browser. It asks for `{"lesson": number, "seen": [keys of results that the visitor has seen],
    "prompt": text}`; the prompt may be missing."""
    lesson = lesson_of(asked.get("lesson"))
    if lesson is None:
        return
    earlier, prompt = asked.get("seen"), asked.get("prompt")
    keys = frozenset(map(str, earlier[-MOST_SEEN:])) if isinstance(earlier, list) else frozenset()
    result, status = None, ""
    try:
        chosen = parts.read(values)
        settings = Settings(
            **{name: getattr(chosen, name) for name in USED}, seed=fresh_seed() % 2**30
        )
        if isinstance(prompt, str):
            settings = replace(settings, prompt=prompt)
        for status, data in lesson.measure(Trial(catalog, settings, keys)):
            result = content(lesson, data, LIVE) if data else result
            yield _message(lesson, status, result, done=False)
    except Exception as error:
        status = parts.failed(error)
    yield _message(lesson, status, result, done=True)


def _message(lesson: Lesson, status: str, result: dict[str, Any] | None, *, done: bool) -> str:
    # Each message contains the whole result, because Gradio may drop all but the last.
    return to_json(
        {
            "lesson": lesson.number,
            "said": status,
            "content": result,
            "done": done,
            "at": fresh_seed(),
        }
    )


def lesson_in(query: Any) -> int | None:
    """The number of the lesson that a link leads to; None for none."""
    number = str(query.get("lesson", ""))
    return int(number) if number.isdecimal() and lesson_of(int(number)) else None


@dataclass(frozen=True, slots=True)
class LessonStep:
    """A title, a text as Markdown, and the question at its end with its choices, if any."""

    title: str
    text: str
    ask: str = ""
    choices: tuple[str, ...] = ()


def read_labels(lesson: Lesson) -> dict[str, str]:
    """The labels of a lesson by name."""
    before, *_ = _HEADING.split(_text(lesson.number))
    return {name: filled(text, lesson.numbers) for name, text in _LABEL.findall(before)}


def read_steps(lesson: int) -> list[LessonStep]:
    """The steps of a lesson; the first is its opening, whose title is the lesson's."""
    return parse(_text(lesson))


def _text(lesson: int) -> str:
    return (ROOT / "lessons" / f"{lesson}.md").read_text(encoding="utf-8")


def parse(text: str) -> list[LessonStep]:
    """The steps of a file's content. Raises ValueError if the labels are not followed by the
    lesson's title."""
    before, *parts = _HEADING.split(text)
    if _LABEL.sub("", before).strip() or not parts or parts[0]:
        raise ValueError(f"a lesson must start with a line '## Title', got {text[:40]!r}")
    steps = []
    for title, body in zip(parts[1::3], parts[2::3], strict=True):
        words, *question = _QUESTION.split(body.strip())
        ask, choices = question[:2] if question else ("", "")
        lines = (line.removeprefix("- ") for line in choices.strip().splitlines())
        steps.append(LessonStep(title, words.strip(), " ".join(ask.split()), tuple(lines)))
    return steps


def to_html(text: str, words: Mapping[str, str], *, one_line: bool = False) -> str:
    """Markdown as HTML, one line without a paragraph. The `{names}` are replaced by escaped
    text, which a model may have written. Raises KeyError if a name has no value."""
    rendered = _MARKDOWN.renderInline(text) if one_line else _MARKDOWN.render(text)
    return filled(rendered, {name: html.escape(word) for name, word in words.items()})


def filled(text: str, words: Mapping[str, Any]) -> str:
    return _NAME.sub(lambda name: str(words[name[1]]), text)


def titles() -> list[str]:
    return [read_steps(lesson.number)[0].title for lesson in LESSONS]


def content(lesson: Lesson, data: Data, source: str, machine: str = HERE) -> dict[str, Any]:
    """A lesson with its experiment's result, for `assets/js/learn.js`; `source` is a sentence
    about the result's origin, and `machine` names where it was measured. Raises ValueError if
    the numbers of views and steps, or of answers and questions, differ."""
    labels, steps, views = read_labels(lesson), read_steps(lesson.number), lesson.views(data)
    words = {**lesson.words(data), "machine": machine}
    asked_at = [number for number, step in enumerate(steps) if step.ask]
    right = dict(zip(asked_at, lesson.right(data), strict=True))
    contents = []
    for number, (step, view) in enumerate(zip(steps, [*views, views[-1]], strict=True)):
        question = step.ask and {
            "ask": to_html(step.ask, words, one_line=True),
            "choices": [filled(choice, words) for choice in step.choices],
            "right": right[number],
        }
        # The opening's question is answered by the whole lesson, every other one by the next step.
        resolved = [at for at in asked_at if number == (at + 1 if at else len(steps) - 2)]
        text = {"title": step.title, "html": to_html(step.text, words)}
        contents.append({**text, "question": question or None, "view": view, "resolves": resolved})
    return {
        "lesson": lesson.number,
        "steps": contents,
        "answers": to_html(re.split(r"^## .*$", _ANSWERS, flags=re.MULTILINE)[lesson.number], {}),
        "markup": lesson.markup(data) if lesson.markup else "",
        "source": source,
        "settings": labels.get("settings", ""),
        "button": labels["button"],
        "note": labels["note"],
        "timed": lesson.timed,
        "key": data.get("key", ""),
    }
