"""The course: all lessons in order, and a lesson's content for the browser."""

from typing import Any

from ui.experiments.lessons import accept, drafters, slow, slower, unchanged, verify, window_length
from ui.experiments.lessons.lesson import Data, Lesson
from ui.experiments.lessons.text import filled, inline, read_steps, to_html

LESSONS: tuple[Lesson, ...] = (
    slow.LESSON,
    verify.LESSON,
    accept.LESSON,
    unchanged.LESSON,
    window_length.LESSON,
    slower.LESSON,
    drafters.LESSON,
)


def titles() -> list[str]:
    """The titles of all lessons."""
    return [read_steps(lesson.number)[0].title for lesson in LESSONS]


def content(lesson: Lesson, data: Data, source: str) -> dict[str, Any]:
    """A lesson with its experiment's result, for `assets/js/learn.js`; `source` is a sentence about the result's origin.

    Raises:
        ValueError: If the numbers of views and steps, or of answers and questions, differ.
    """
    steps = read_steps(lesson.number)
    words, views, answers = lesson.words(data), lesson.views(data), iter(lesson.right(data))
    contents = []
    for step, view in zip(steps, views, strict=True):
        asked = step.question
        question = asked and {
            "ask": inline(asked.ask, words),
            "choices": [filled(choice, words) for choice in asked.choices],
            "right": next(answers),
        }
        contents.append({"title": step.title, "html": to_html(step.text, words), "question": question, "view": view})
    if next(answers, None) is not None:
        raise ValueError(f"lesson {lesson.number} has more answers than questions")
    return {
        "lesson": lesson.number,
        "steps": contents,
        "markup": lesson.markup(data) if lesson.markup else "",
        "source": source,
        "button": lesson.button,
        "note": lesson.note,
        "timed": lesson.timed,
        "key": data.get("key", ""),
    }
