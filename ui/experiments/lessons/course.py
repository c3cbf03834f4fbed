"""The course: all lessons in order, their texts, and a lesson's content for the browser.

A lesson's text is a Markdown file, with the experiment's results in place of `{names}`. `## Title` starts the lesson, `### `
each step. A step may end with a question: a line that starts with `? `, followed by a list of choices. The next step has the
answer.
"""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from ui.assets import ROOT, render, styles
from ui.experiments.lessons import accept, batch, drafters, overlap, slow, slower, temperature, ties, unchanged, verify, window
from ui.experiments.lessons.lesson import Data, Lesson

_IN_ORDER = (slow, verify, accept, unchanged, overlap, window, temperature, batch, slower, drafters, ties)
HERE, RECORDING = "this machine", "the recording machine"
LESSONS: tuple[Lesson, ...] = tuple(module.LESSON for module in _IN_ORDER)
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_HEADING = re.compile(r"^##(#?) (.+)$", re.MULTILINE)
_QUESTION = re.compile(r"^\? (.+(?:\n(?!- ).+)*)\n\n?((?:^- .+\n?)+)\Z", re.MULTILINE)
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Question:
    """A question as Markdown, and its choices."""

    ask: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A title, a text as Markdown, and the question at its end, if any."""

    title: str
    text: str
    question: Question | None = None


def read_steps(lesson: int) -> list[Step]:
    """The steps of a lesson; the first is its opening, whose title is the lesson's."""
    return parse((ROOT / "lessons" / f"{lesson}.md").read_text(encoding="utf-8"))


def parse(text: str) -> list[Step]:
    """The steps of a file's content. Raises ValueError if it does not start with the lesson's title."""
    found = list(_HEADING.finditer(text))
    if not found or found[0].start() or found[0][1]:
        raise ValueError(f"a lesson must start with a line '## Title', got {text[:40]!r}")
    ends = [heading.start() for heading in found[1:]] + [len(text)]
    return [_step(heading[2], text[heading.end() : end].strip()) for heading, end in zip(found, ends, strict=True)]


def _step(title: str, text: str) -> Step:
    asked = _QUESTION.search(text)
    if asked is None:
        return Step(title, text)
    choices = tuple(line.removeprefix("- ") for line in asked[2].strip().splitlines())
    return Step(title, text[: asked.start()].strip(), Question(" ".join(asked[1].split()), choices))


def to_html(text: str, words: Mapping[str, str], *, one_line: bool = False) -> str:
    """Markdown as HTML, one line without a paragraph. The `{names}` are replaced by escaped text, which a model may have
    written. Raises KeyError if a name has no value."""
    rendered = _MARKDOWN.renderInline(text) if one_line else _MARKDOWN.render(text)
    return filled(rendered, {name: html.escape(word) for name, word in words.items()})


def filled(text: str, words: Mapping[str, str]) -> str:
    """Plain text with its names replaced."""
    return _NAME.sub(lambda name: words[name[1]], text)


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
