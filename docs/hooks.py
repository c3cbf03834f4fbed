"""MkDocs hook: includes files of the repository, and the page's lessons as text with the figures
recorded for them."""

import html
import re
from pathlib import Path
from typing import Any

from ui.experiments.learn import LESSONS, content, recorded_lesson, titles
from ui.experiments.lessons.lesson import Lesson

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)*(?:naive_speculate|ui|benchmarks|deploy|tests)/[^)]*\)"
)
"""Links to files that are not part of the site."""
TERM = re.compile(r'<a\b[^>]*href="(?:#term-|\?lesson=)[^>]*>(.*?)</a>')


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill `{{ include FILE }}` and `{{ lessons }}`; links of included files are relative to the
    repository's root."""
    markdown = re.sub(
        r"{{ include (\S+) }}",
        lambda found: (ROOT / found[1]).read_text(encoding="utf-8"),
        markdown,
    )
    if "{{ lessons }}" in markdown:
        lessons = "\n\n".join(
            lesson(title, each) for title, each in zip(titles(), LESSONS, strict=True)
        )
        markdown = markdown.replace("{{ lessons }}", lessons)
    return (
        OUTSIDE.sub(r"\1", markdown)
        .replace("](docs/", "](")
        .replace("](CONTRIBUTING.md", "](contributing.md")
    )


def lesson(title: str, each: Lesson) -> str:
    """One lesson: its steps, and each question with its answers."""
    parts = [f"## {each.number}. {html.escape(title)}"]
    for step in content(each, recorded_lesson(each.number), "")["steps"]:
        heading = [f"### {html.escape(step['title'])}"] if step["title"] != title else []
        parts += [*heading, TERM.sub(r"\1", step["html"])]
        if question := step["question"]:
            answers = [
                f"<li>{'<strong>' * right}{html.escape(choice)}{'</strong>' * right}</li>"
                for number, choice in enumerate(question["choices"])
                for right in [number == question["right"]]
            ]
            asked = TERM.sub(r"\1", question["ask"])
            parts.append(f"<blockquote><p>{asked}</p><ul>{''.join(answers)}</ul></blockquote>")
    return "\n\n".join(parts)
