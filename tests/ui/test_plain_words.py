"""The page uses one word for each thing: the field's. Retired words stay out of its texts, docstrings and comments."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

RETIRED = {
    "step": r"rounds?",
    "draft token": r"guess(?:es|ed)?",
    "accepted": r"kept",
    "rejected": r"refus(?:ed|es|al)",
    "discarded": r"never reached|thrown away",
    "position": r"places?",
    "draw": r"di[ce]e?",
    "relative to, after": r"beside|behind|in front of",
    "again": r"anew",
    "faster": r"sooner",
}
"""Words that the page's texts no longer use, by the word to use instead."""
OF_PROSE = {name: RETIRED[name] for name in ("draft token", "discarded", "relative to, after", "again", "faster")}
"""The retired words that docstrings and comments have no other use for."""
JINJA = re.compile(r"{[{%].*?[}%]}", re.DOTALL)
TAGS = re.compile(r"<script.*?</script>|<svg.*?</svg>|<[^>]*>", re.DOTALL)


def of_page() -> Iterator[tuple[str, str]]:
    for path in Path("ui/templates").glob("*.html"):
        yield path.name, TAGS.sub(" ", JINJA.sub("", path.read_text("utf-8")))
    for path in Path("assets/lessons").glob("*.md"):
        yield path.name, re.sub(r"\{\w+\}|#term-[\w-]+", "", path.read_text("utf-8"))
    for key, term in tomllib.loads(Path("assets/glossary.toml").read_text("utf-8")).items():
        yield f"glossary, {key}", f"{term['name']}: {term['meaning']}"


def of_sources() -> Iterator[tuple[str, str]]:
    for path in [*Path("ui").rglob("*.py"), Path("app.py")]:
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        texts = (node.value.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        yield str(path), " ".join(text for text in texts if isinstance(text, str))
    for path in Path("assets/js").glob("*.js"):
        yield path.name, " ".join(re.findall(r"// .*", path.read_text("utf-8")))


@pytest.mark.parametrize(("texts", "retired"), [(of_page, RETIRED), (of_sources, OF_PROSE)])
def test_texts_docstrings_and_comments_use_the_field_s_words(texts, retired):
    every = list(texts())
    found = [
        f"{name}: {word}, say: {instead}"
        for instead, pattern in retired.items()
        for name, text in every
        for word in re.findall(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
    ]
    assert found == []


def test_no_function_of_the_page_is_longer_than_sixty_lines():
    long = [
        f"{path}: {node.name}"
        for path in [*Path("ui").rglob("*.py"), Path("app.py")]
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 60
    ]
    assert long == []
