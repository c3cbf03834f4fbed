"""What the page says of the models: what was loaded, and nothing that is written down beside them."""

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from naive_speculate.models import BUNDLED_PAIR
from naive_speculate.serving import LocalEngine
from ui.explain.models import CODE, MODEL_CARD, documents, models_in_short, models_markup, size
from ui.host.catalog import Catalog, ServedPair


@pytest.mark.parametrize(
    ("parameters", "said"),
    [(812, "812"), (11_234_567, "11.2 million"), (8_030_000_000, "8.0 billion"), (494_000_000, "494 million")],
)
def test_sizes_are_said_as_people_say_them(parameters, said):
    assert size(parameters) == said


def test_sizes_are_those_of_the_loaded_models(tiny_pair, tiny_engine: LocalEngine):
    catalog = Catalog({"tiny": ServedPair(tiny_engine)})
    for shown in (models_in_short(catalog), models_markup(catalog)):
        assert size(tiny_pair.target.num_parameters) in shown
        assert "tales" not in shown  # what the bundled pair was fed is nothing that others were


def test_the_bundled_pair_comes_with_its_card_the_papers_and_the_code(bundled_engine: LocalEngine):
    catalog = Catalog({"bundled": ServedPair(bundled_engine)})
    shown = models_markup(catalog)
    assert "children's books" in shown
    assert "Other prompts ramble" in shown
    assert "arxiv.org/abs/2211.17192" in shown
    client = TestClient(Starlette(routes=documents()))
    for name, path in ((MODEL_CARD, BUNDLED_PAIR / "README.md"), (CODE, Path("naive_speculate/speculate/step.py"))):
        assert f'href="{name}"' in shown
        assert client.get(f"/{name}").text == path.read_text(encoding="utf-8")


def test_no_size_is_written_into_the_page():
    files = [path for folder in ("ui", "assets/js", "assets/lessons") for path in Path(folder).rglob("*.*")]
    sources = [path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".js", ".md")]
    assert len(sources) > 30
    assert not any(re.search(r"\d (million|M) parameters", source) for source in sources)
