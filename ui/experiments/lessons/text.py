"""A lesson's text: a Markdown file, split into steps, with the experiment's results in place of `{names}`.

`## Title` starts the lesson, `### Title` each step. A step may end with a question: a line that starts with `? `, followed
by a list of choices. The next step has the answer.
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
