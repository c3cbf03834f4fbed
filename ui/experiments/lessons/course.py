"""The course: all lessons in order, and a lesson's content for the browser."""

import re
from typing import Any

from markupsafe import Markup

from ui.assets import ROOT, render, styles
from ui.experiments.lessons import accept, batch, drafters, overlap, slow, slower, temperature, ties, unchanged, verify, window
from ui.experiments.lessons.lesson import Data, Lesson
from ui.experiments.lessons.text import filled, read_steps, to_html

_IN_ORDER = (slow, verify, accept, unchanged, overlap, window, temperature, batch, slower, drafters, ties)
HERE, RECORDING = "this machine", "the recording machine"
LESSONS: tuple[Lesson, ...] = tuple(module.LESSON for module in _IN_ORDER)


def titles() -> list[str]:
    """The titles of all lessons."""
    return [read_steps(lesson.number)[0].title for lesson in LESSONS]


def _answers() -> str:
    return (ROOT / "lessons" / "answers.md").read_text(encoding="utf-8")


def answers_page() -> str:
    """The answers to all exercises, as an HTML document."""
    return str(render("answers", styles=Markup(styles()), body=Markup(to_html(_answers(), {}))))


def content(lesson: Lesson, data: Data, source: str, machine: str = HERE) -> dict[str, Any]:
    """A lesson with its experiment's result, for `assets/js/learn.js`; `source` is a sentence about the result's origin, and
    `machine` names where it was measured. Raises ValueError if the numbers of views and steps, or of answers and questions,
    differ."""
    steps = read_steps(lesson.number)
    words = {**lesson.words(data), "machine": machine}
    views, answers = lesson.views(data), iter(lesson.right(data))
    views = [*views, views[-1]]
    asked_at = [number for number, step in enumerate(steps) if step.question]
    contents = []
    for number, (step, view) in enumerate(zip(steps, views, strict=True)):
        asked = step.question
        question = asked and {
            "ask": to_html(asked.ask, words, one_line=True),
            "choices": [filled(choice, words) for choice in asked.choices],
            "right": next(answers),
        }
        # The opening's question is answered by the whole lesson, every other one by the next step.
        resolved = [at for at in asked_at if number == (at + 1 if at else len(steps) - 2)]
        text = {"title": step.title, "html": to_html(step.text, words)}
        contents.append({**text, "question": question, "view": view, "resolves": resolved})
    if next(answers, None) is not None:
        raise ValueError(f"lesson {lesson.number} has more answers than questions")
    return {
        "lesson": lesson.number,
        "steps": contents,
        "answers": to_html(re.split(r"^## .*$", _answers(), flags=re.MULTILINE)[lesson.number], {}),
        "markup": lesson.markup(data) if lesson.markup else "",
        "source": source,
        "settings": lesson.settings,
        "button": lesson.button,
        "note": lesson.note,
        "timed": lesson.timed,
        "key": data.get("key", ""),
    }
