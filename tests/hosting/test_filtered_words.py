"""The host decides whose runs are filtered; visitors see it in `started` and below the page."""

import threading

import pytest

from naive_speculate import SamplingParams, Trace
from naive_speculate.serving import Request
from tests.tiny import save_model, tiny_llama
from ui.explain.models import FILTERED, models_markup
from ui.host.catalog import TALES, Catalog, load_catalog
from ui.host.configuration import BUNDLED, USUAL, Configuration, PairChoice

REQUEST = Request("Once upon a time there was", SamplingParams(max_tokens=4, seed=1), num_draft_tokens=0)


@pytest.mark.parametrize(
    ("chosen", "filtered"),
    [({}, [True, False]), ({"filter_words": "all"}, [True, True]), ({"filter_words": "none"}, [False, False])],
    ids=["bundled", "all", "none"],
)
def test_the_bundled_pair_is_filtered_unless_the_host_says_otherwise(chosen, filtered, tmp_path):
    save_model(tiny_llama(1, seed=0), tmp_path)
    choices = (PairChoice(BUNDLED), PairChoice("other", str(tmp_path)))
    catalog = load_catalog(Configuration(choices, device="cpu", **chosen))
    told = [started(catalog, choice.name).settings["filter_words"] for choice in choices]
    assert told == ["classroom" if some else None for some in filtered]
    whose = "" if all(filtered) else f" for {TALES}"
    assert (FILTERED.format(whose) in models_markup(catalog)) == any(filtered)
    catalog.close()


@pytest.mark.parametrize(("chosen", "words"), [("bundled", "classroom"), ("all", "classroom"), ("none", None)])
def test_the_filter_of_the_pairs_that_ship_covers_smollm2(chosen, words):
    catalog = load_catalog(Configuration(USUAL, device="cpu", filter_words=chosen))
    assert {name: served.filter_words for name, served in catalog.pairs.items()} == {"SmolLM2": words, BUNDLED: words}
    catalog.close()


def started(catalog: Catalog, pair: str):
    return Trace(catalog.stream(pair, REQUEST, threading.Event())).started


def test_what_is_delivered_is_filtered_like_what_is_streamed():
    catalog, delivered, ended = load_catalog(Configuration(device="cpu")), [], threading.Event()

    def deliver(said) -> None:
        if isinstance(said, list):
            delivered.extend(said)
        else:
            ended.set()

    catalog.start("", REQUEST, threading.Event(), deliver)
    assert ended.wait(60)
    assert Trace(delivered).started.settings["filter_words"] == "classroom"
    catalog.close()
