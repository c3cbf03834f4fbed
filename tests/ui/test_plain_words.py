"""What the page's sources contain: the field's words, and no undocumented parts of Gradio."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import gradio as gr
import pytest
from gradio import route_utils
from gradio.blocks import Blocks
from gradio.context import LocalContext
from gradio.queueing import Queue

from ui.host.process import CHECKED, payload
from ui.page import open_queue

RETIRED = {
    "step": r"rounds?(?! or draft| the weights|\*\* the weights)",
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
OF_PROSE = {
    name: RETIRED[name]
    for name in ("draft token", "discarded", "relative to, after", "again", "faster")
}
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


@cache
def nodes() -> list[tuple[Path, list[ast.AST]]]:
    """The page's modules with all that is in them."""
    paths = [*Path("ui").rglob("*.py"), Path("app.py")]
    return [(path, [*ast.walk(ast.parse(path.read_text("utf-8")))]) for path in paths]


def of_sources() -> Iterator[tuple[str, str]]:
    for path, there in nodes():
        texts = (
            node.value.value
            for node in there
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        )
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


PRIVATE = re.compile(
    r"\._queue\b|\._data\b|_is_server_fn|getfile|get_root_url|LocalContext|GradioMCPServer"
    r"|process_api|validate_inputs|sleep_when"
)
APART = {
    Path("ui/host/process.py"),
    Path("ui/host/errors.py"),
    Path("ui/host/queue.py"),
}  # two subclasses, as the first says


def test_the_installed_gradio_is_the_one_that_the_patches_were_checked_against():
    assert gr.__version__ == CHECKED


def test_no_other_module_of_the_page_uses_what_gradio_does_not_document():
    found = [
        path
        for path in Path("ui").rglob("*.py")
        if path not in APART and PRIVATE.search(path.read_text("utf-8"))
    ]
    assert found == []


def test_gradio_still_has_what_is_patched_and_its_queue_leaves_the_interpreter_to_the_decoder():
    """By default its loops look 1,000 and 100 times a second."""
    assert all(hasattr(Blocks, name) for name in ("process_api", "validate_inputs", "queue"))
    assert callable(route_utils.get_root_url)
    assert all(hasattr(LocalContext, name) for name in ("request", "blocks", "event_id"))
    with gr.Blocks() as page:
        gr.Button().click(lambda: None)
    page.queue()
    assert {
        "sleep_when_free",
        "progress_update_sleep_when_free",
        "event_queue_per_concurrency_id",
    } <= vars(page._queue).keys()
    open_queue(page, 8)
    assert isinstance(page._queue, Queue)
    assert (page._queue.sleep_when_free, page._queue.progress_update_sleep_when_free) == (
        0.02,
        0.05,
    )


def test_what_is_no_object_has_no_fields():
    assert payload(gr.EventData(None, {"lesson": 2})) == {"lesson": 2}
    assert payload(gr.EventData(None, "hostile")) == payload(gr.EventData(None, None)) == {}
