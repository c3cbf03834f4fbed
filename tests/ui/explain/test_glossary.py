"""The glossary: every link leads to a term, every term can be reached, and a model's words are never taken for one."""

import re

from tests.ui.handmade import run
from ui.assets import ROOT
from ui.charts.figures import BOARD
from ui.explain.glossary import TERMS, glossary, linked
from ui.explain.inspector import words
from ui.run.stage import TILES, template

KEYS = {term.key for term in TERMS}
LINK = re.compile(r"#term-([\w-]+)")


def linked_from_the_page() -> set[str]:
    sources = [template(), *(path.read_text() for path in (ROOT / "lessons").glob("*.md"))]
    sources += [path.read_text() for path in (ROOT.parent / "ui").rglob("*.py")]
    found = {key for source in sources for key in LINK.findall(source)}
    return found | {term for _, term, _ in BOARD.values()} | set(TILES.values())


def test_every_link_leads_to_a_term_and_every_term_is_linked():
    by_sentences = {term.key for term in TERMS if term.forms}
    assert linked_from_the_page() <= KEYS
    assert linked_from_the_page() | by_sentences == KEYS
    assert len(TERMS) == len(KEYS)


def test_the_inspector_links_its_terms():
    trace = run([(3, 1)])
    number = next(n for n, event in enumerate(trace) if event.kind == "discarded")
    pieces = [piece for sentence in words(trace, number)["sentences"] for piece in sentence]
    assert "draft" in {term for _, term in pieces}


def test_pieces_make_up_the_sentence_and_name_each_term_once():
    sentence = "The draft model guessed “the draft”, and the draft is not the target."
    pieces = linked(sentence)
    assert "".join(text for text, _ in pieces) == sentence
    assert [piece for piece in pieces if piece[1]] == [("draft model", "draft"), ("target", "target")]


def test_a_model_s_words_are_no_terms():
    assert [term for _, term in linked("It wrote “residual draft <b>”.")] == [None] * 3


def test_theorem_3_8_comes_with_its_paper():
    entry = glossary().split('id="term-theorem"')[1].split("</div>")[0]
    assert "Leviathan, Kalman and Matias 2023" in entry
    assert "https://arxiv.org/abs/2211.17192" in entry
