"""Retired words stay out of docstrings, comments, messages and documents; the field has a word
for each of these things."""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RETIRED = re.compile(
    r"\b(guess(es|ed|ing)?|told|tells?|knows|(?<!look-)behind|beside|(some|any|no)body|whoever|dice"
    r"|sooner|anew|such an? one|(the|a) large one|asked for|(has|have) gone"
    r"|(tokens|drafts|runs|events) an? (second|step|run|row|round))\b",
    re.IGNORECASE,
)
PLACES = [
    "naive_speculate",
    "train",
    "benchmarks/*.py",
    "deploy",
    "app.py",
    ":(glob)*.md",
    "docs/*.md",
]
QUOTED = ("`dice`", "nobody in the village could", "There was nobody who knew")
"""A public name, and beginnings of stories, which are data."""
EMPTY = {"found", "given", "happened", "seen", "wanted"}
"""Names of variables and functions that do not say what they are."""
PUBLIC = {"result.py: found", "diagnosis.py: given", "text.py: found"}
STEP = ("step.py", "greedy.py")
"""The files of Algorithm 1, which keep their names."""


def files(patterns: list[str]) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [
        ROOT / name
        for name in listed.splitlines()
        if name.endswith((".py", ".md", ".js", ".css", ".yaml"))
    ]


def texts(path: Path) -> list[tuple[int, str]]:
    """Lines of a file's words: of Python comments and strings, of other files everything. None
    of a file without such words."""
    source = path.read_text(encoding="utf-8")
    if not RETIRED.search(source):
        return []
    if path.suffix != ".py":
        return list(enumerate(source.splitlines(), 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [
        (token.start[0], token.string)
        for token in tokens
        if token.type in (tokenize.COMMENT, tokenize.STRING)
    ]


def test_code_and_documents_use_the_words_of_the_field_and_so_do_comments_and_docstrings_of_tests():
    found = []
    for path in files([*PLACES, "tests/*.py"]):
        name = path.relative_to(ROOT)
        for line, text in texts(path):
            # of tests, comments and docstrings, but not the strings that are JavaScript
            prose = (
                name.parts[0] != "tests"
                or text.startswith("#")
                or (text.startswith('"""') and "=>" not in text)
            )
            for quoted in QUOTED:
                text = text.replace(quoted, "")
            if prose and name.name not in ("test_words.py", "test_plain_words.py"):
                found += [f"{name}:{line}: {match[0]}" for match in RETIRED.finditer(text)]
    assert not found, "\n".join(found)


def test_retired_words_are_found_and_no_others():
    retired = [
        "Drafts that somebody wrote",
        "it was told",
        "the large one",
        "BEHIND it",
        "tokens a second",
    ]
    others = ["untold", "placeholder", "a second token", "the largest one", "besides"]
    assert [text for text in [*retired, *others] if RETIRED.search(text)] == retired


def test_names_of_variables_and_functions_say_what_they_are():
    empty = set()
    for path in files(["naive_speculate", "ui", "train", "benchmarks"]):
        if path.suffix == ".py" and path.name not in STEP:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Name(name, ast.Store()) | ast.arg(name) | ast.FunctionDef(name):
                        pass
                    case ast.Attribute(_, name, ast.Store()):
                        pass
                    case _:
                        continue
                if name.strip("_") in EMPTY:
                    empty.add(f"{path.name}: {name}")
    assert empty == PUBLIC
