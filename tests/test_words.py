"""Retired words stay out of docstrings, comments, messages and documents; the field has a word for each of these things."""

import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RETIRED = re.compile(
    r"\b(guess(es|ed|ing)?|told|tells?|knows|behind|beside|(some|any|no)body|whoever|dice|sooner|anew|such an? one|"
    r"(the|a) large one|asked for|(has|have) gone|(tokens|drafts|runs|events) an? (second|step|run|row|round))\b",
    re.IGNORECASE,
)
ROOMS = {
    "infer": ["naive_speculate/infer"],
    "serving": ["naive_speculate/serving"],
    "events": ["naive_speculate/events"],
    "speculate": ["naive_speculate/speculate"],
    "sampling": ["naive_speculate/sampling"],
    "train": ["train"],
    "documents": ["app.py", ":(glob)*.md", "docs/*.md", "train/*.md"],
    "testing": ["naive_speculate/testing"],
    "bench": ["naive_speculate/bench"],
    "proving": ["naive_speculate/proving"],
    "doctor": ["naive_speculate/doctor"],
    "top level": [":(glob)naive_speculate/*.py"],
    "benchmarks": ["benchmarks/*.py", "deploy"],
}
"""Folders and patterns of the rooms whose words are checked."""
QUOTED = ("`dice`", "nobody in the village could", "There was nobody who knew")
"""A public name, and beginnings of stories, which are data."""


def files(patterns: list[str]) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if name.endswith((".py", ".md", ".js", ".css", ".yaml"))]


def texts(path: Path) -> list[tuple[int, str]]:
    """Lines of a file's words: of Python comments and strings, of other files everything."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return list(enumerate(source.splitlines(), 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [(token.start[0], token.string) for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING)]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_uses_the_words_of_the_field(room):
    found = []
    for path in files(ROOMS[room]):
        for line, text in texts(path):
            for quoted in QUOTED:
                text = text.replace(quoted, "")
            found += [f"{path.relative_to(ROOT)}:{line}: {match[0]}" for match in RETIRED.finditer(text)]
    assert not found, "\n".join(found)


def test_comments_and_docstrings_of_tests_use_them_too():
    found = []
    for path in files(["tests/*.py"]):
        for line, text in texts(path):
            prose = text.startswith("#") or (text.startswith('"""') and "=>" not in text)  # those strings are JavaScript
            if prose and path.name not in ("test_words.py", "test_plain_words.py") and (match := RETIRED.search(text)):
                found.append(f"{path.relative_to(ROOT)}:{line}: {match[0]}")
    assert not found, "\n".join(found)


def test_retired_words_are_found_and_no_others():
    retired = ["Drafts that somebody wrote", "it was told", "the large one", "BEHIND it", "tokens a second"]
    others = ["untold", "placeholder", "a second token", "the largest one", "besides"]
    assert [text for text in [*retired, *others] if RETIRED.search(text)] == retired
