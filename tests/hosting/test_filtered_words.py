"""The host decides whose runs are filtered; visitors see it in `started` and below the page."""

import threading

import pytest

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import Event
from naive_speculate.serving import Request
from tests.tiny import save_model, tiny_llama
from ui.host.catalog import TALES, Catalog, load_catalog
from ui.host.configuration import BUNDLED, USUAL, Configuration, PairChoice
from ui.run.pairs import FILTERED, models_markup

REQUEST = Request("Once upon a time there was", SamplingParams(max_tokens=4, seed=1), num_draft_tokens=0)


@pytest.fixture
def other(tmp_path) -> PairChoice:
    save_model(tiny_llama(1, seed=0), tmp_path)
    return PairChoice("other", str(tmp_path))


def test_the_bundled_pair_alone_is_filtered_by_default(other):
    catalog = load_catalog(Configuration((PairChoice(BUNDLED), other), device="cpu"))
    assert [filter_of(catalog, pair) for pair in (BUNDLED, "other")] == ["classroom", None]
    assert FILTERED.format(f" for {TALES}") in models_markup(catalog)
    found, ended = list[Event](), threading.Event()
    catalog.start("", REQUEST, threading.Event(), lambda said: found.extend(said) if isinstance(said, list) else ended.set())
    assert ended.wait(60)
    assert found[0].settings["filter_words"] == "classroom"
    catalog.close()


@pytest.mark.parametrize(("chosen", "words"), [("all", "classroom"), ("none", None)])
def test_the_host_may_filter_every_pair_or_none(other, chosen, words):
    catalog = load_catalog(Configuration((other,), device="cpu", filter_words=chosen))
    assert filter_of(catalog, "other") == words
    assert (FILTERED.format("") in models_markup(catalog)) == (chosen == "all")
    catalog.close()


@pytest.mark.parametrize(("chosen", "words"), [("bundled", "classroom"), ("all", "classroom"), ("none", None)])
def test_the_filter_of_the_pairs_that_ship_covers_smollm2(chosen, words):
    catalog = load_catalog(Configuration(USUAL, device="cpu", filter_words=chosen))
    assert {name: served.filter_words for name, served in catalog.pairs.items()} == {"SmolLM2": words, BUNDLED: words}
    catalog.close()


def filter_of(catalog: Catalog, pair: str) -> str | None:
    """As a run's first event states it."""
    return Trace(catalog.stream(pair, REQUEST, threading.Event())).started.settings["filter_words"]
