"""The glossary, and what the page says of the models: nothing that is written by hand."""

import re
from pathlib import Path

from starlette.applications import Starlette
from starlette.testclient import TestClient

from naive_speculate.pair import BUNDLED_PAIR
from naive_speculate.serving import LocalEngine
from tests.ui.handmade import run
from ui.assets import ROOT
from ui.charts.figures import BOARD
from ui.explain.glossary import TERMS, glossary, linked
from ui.explain.inspector import words
from ui.host.catalog import TALES, Catalog, ServedPair
from ui.run.pairs import CODE, MODEL_CARD, documents, models_in_short, models_markup, size
from ui.run.settings import OPTIONS
from ui.run.stage import TILES, template

KEYS = {term.key for term in TERMS}
LINK = re.compile(r"#term-([\w-]+)")


def linked_from_the_page() -> set[str]:
    sources = [template(), *(path.read_text() for path in (ROOT / "lessons").glob("*.md"))]
    sources += [path.read_text() for path in (ROOT.parent / "ui").rglob("*.py")]
    sources += [option.help for option in OPTIONS.values()]
    found = {key for source in sources for key in LINK.findall(source)}
    return found | {term for _, term, _ in BOARD.values()} | set(TILES.values())


def test_every_link_leads_to_a_term_and_every_term_is_linked():
    by_sentences = {term.key for term in TERMS if term.forms}
    assert linked_from_the_page() <= KEYS
    assert linked_from_the_page() | by_sentences == KEYS
    assert len(TERMS) == len(KEYS)


def test_pieces_make_up_the_sentence_name_each_term_once_and_a_model_s_words_are_none():
    sentence = "The draft model guessed “the draft”, and the draft is not the target."
    pieces = linked(sentence)
    assert "".join(text for text, _ in pieces) == sentence
    assert [piece for piece in pieces if piece[1]] == [
        ("draft model", "draft"),
        ("target", "target"),
    ]
    assert [piece[1] for piece in linked("It wrote “residual draft <b>”.")] == [None] * 3
    trace = run([(3, 1)])
    number = next(n for n, event in enumerate(trace) if event.kind == "discarded")
    assert "draft" in {piece[1] for said in words(trace, number)["sentences"] for piece in said}, (
        "the inspector links, too"
    )


def test_theorem_3_8_comes_with_its_paper():
    entry = glossary().split('id="term-theorem"')[1].split("</div>")[0]
    assert "Leviathan, Kalman and Matias 2023" in entry
    assert "https://arxiv.org/abs/2211.17192" in entry


def test_sizes_are_those_of_the_loaded_models_as_people_say_them(
    tiny_pair, tiny_engine: LocalEngine
):
    said = {
        812: "812",
        11_234_567: "11.2 million",
        8_030_000_000: "8.0 billion",
        494_000_000: "494 million",
    }
    assert {parameters: size(parameters) for parameters in said} == said
    catalog = Catalog({"tiny": ServedPair(tiny_engine)})
    assert size(tiny_pair.target.num_parameters) in models_markup(catalog)
    assert "tales" not in models_markup(catalog)  # only the bundled pair was trained on them
    assert models_in_short(catalog) == ""


def test_the_bundled_pair_comes_with_its_card_the_papers_and_the_code(bundled_engine: LocalEngine):
    catalog = Catalog({"bundled": ServedPair(bundled_engine)})
    shown = models_markup(catalog)
    assert "children's books" in shown
    assert "give it the start of a story" in shown
    assert "trained for this page, its target together with its drafters" in shown
    assert "give it the start of one" in models_in_short(catalog)
    assert "arxiv.org/abs/2211.17192" in shown
    assert shown.count(" parameters</td>") == len(bundled_engine.about.models) == 3
    client = TestClient(Starlette(routes=documents()))
    for name, path in (
        (MODEL_CARD, BUNDLED_PAIR / "README.md"),
        (CODE, Path("naive_speculate/speculate/step.py")),
    ):
        assert f'href="{name}"' in shown
        assert client.get(f"/{name}").text == path.read_text(encoding="utf-8")


def test_which_pair_s_words_are_filtered_is_said_unless_all_are(
    bundled_engine: LocalEngine, tiny_engine: LocalEngine
):
    bundled, tiny = ServedPair(bundled_engine, filter_words="classroom"), ServedPair(tiny_engine)
    assert "classroom are blocked:" in models_markup(Catalog({"bundled": bundled}))
    assert f"classroom are blocked for {TALES}:" in models_markup(
        Catalog({"bundled": bundled, "tiny": tiny})
    )
    assert "are blocked" not in models_markup(Catalog({"tiny": tiny}))


def test_no_size_is_written_into_the_page():
    files = [
        path
        for folder in ("ui", "assets/js", "assets/lessons")
        for path in Path(folder).rglob("*.*")
    ]
    sources = [
        path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".js", ".md")
    ]
    assert len(sources) > 30
    assert not any(re.search(r"\d (million|M) parameters", source) for source in sources)
