"""The words of a lesson: a file of Markdown, cut into steps, with what the experiment found in the places of `{names}`.

`## Title` begins the lesson, `### Title` each of its steps. A step may end with a question: a line that begins with `? `, and
the choices below it as a list. What comes of it is told by the step after.
"""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass

from markdown_it import MarkdownIt

from ui.assets import ROOT

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_HEADING = re.compile(r"^##(#?) (.+)$", re.MULTILINE)
_QUESTION = re.compile(r"^\? (.+(?:\n(?!- ).+)*)\n\n?((?:^- .+\n?)+)\Z", re.MULTILINE)
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Question:
    """What the reader is asked, as Markdown, before it is shown, and what may be answered."""

    ask: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A title, a text as Markdown, and the question at its end, if there is one."""

    title: str
    text: str
    question: Question | None = None


def read_steps(lesson: int) -> list[Step]:
    """The steps of a lesson; the first is its opening, whose title is the lesson's."""
    return parse((ROOT / "lessons" / f"{lesson}.md").read_text(encoding="utf-8"))


def parse(text: str) -> list[Step]:
    """The same of a file's content.

    Raises:
        ValueError: If it does not begin with the lesson's title.
    """
    found = list(_HEADING.finditer(text))
    if not found or found[0].start() or found[0][1]:
        raise ValueError(f"a lesson must begin with a line '## Title', got {text[:40]!r}")
    ends = [heading.start() for heading in found[1:]] + [len(text)]
    return [_step(heading[2], text[heading.end() : end].strip()) for heading, end in zip(found, ends, strict=True)]


def _step(title: str, text: str) -> Step:
    asked = _QUESTION.search(text)
    if asked is None:
        return Step(title, text)
    choices = tuple(line.removeprefix("- ") for line in asked[2].strip().splitlines())
    return Step(title, text[: asked.start()].strip(), Question(" ".join(asked[1].split()), choices))


def to_html(text: str, words: Mapping[str, str]) -> str:
    """Markdown as HTML; for the `{names}` in it stands plain text, which a model may have written.

    Raises:
        KeyError: If a name stands for nothing.
    """
    return _NAME.sub(lambda name: html.escape(words[name[1]]), _MARKDOWN.render(text))


def inline(text: str, words: Mapping[str, str]) -> str:
    """The same of one line, without a paragraph around it."""
    return _NAME.sub(lambda name: html.escape(words[name[1]]), _MARKDOWN.renderInline(text))


def filled(text: str, words: Mapping[str, str]) -> str:
    """Plain text with its names replaced."""
    return _NAME.sub(lambda name: words[name[1]], text)
