"""Pairs that are loaded after the page answers: what the page says of them before and
afterwards; and the menu of drafters."""

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder
from naive_speculate.models.known import KNOWN
from naive_speculate.serving import Engine, Later, LocalEngine, Request
from naive_speculate.serving.protocol import About
from naive_speculate.serving.visit import Trouble
from naive_speculate.speculate.draft import DRAFTERS
from ui.host.catalog import TALES, Catalog, ServedPair, expected
from ui.page import build_page
from ui.run.controls import drafter_choices
from ui.run.pairs import models_in_short, models_markup
from ui.run.runs import Runs

LOADING = "SmolLM2 is loading. Its runs start as soon as it is ready."


def smollm2(load: Callable[[], SpeculativeDecoder]) -> LocalEngine:
    return LocalEngine(Later(load, expected(KNOWN["smollm2"], 4), LOADING), max_rows=4)


def awaiting(load: Callable[[], SpeculativeDecoder], other: Engine) -> Catalog:
    engine = smollm2(load)
    pairs = {
        "SmolLM2": ServedPair(engine, measurable=True, filter_words="classroom"),
        "bundled": ServedPair(other, measurable=True, filter_words="classroom"),
    }
    return Catalog(pairs, deferred={"SmolLM2": engine})


def missing() -> SpeculativeDecoder:
    raise ValueError("target='smollm2' is neither in the package\nnor on the Hub")


def shown(page: Any) -> tuple[dict[str, Any], list[bool]]:
    """What is sent to a browser: the attributes of each component by its id in the page, and
    whether the rows of questions and of beginnings of stories are visible."""
    every = [one["props"] for one in page.get_config_file()["components"]]
    examples = [
        props["visible"] for props in every if "ns-examples" in props.get("elem_classes", ())
    ]
    return {props["elem_id"]: props for props in every if props.get("elem_id")}, examples


def test_until_it_is_loaded_the_page_says_so_and_afterwards_it_does_not(
    tiny_decoder, bundled_engine
):
    catalog = awaiting(lambda: tiny_decoder, bundled_engine)
    page = build_page(catalog, Runs())
    page.config = page.get_config_file()
    assert catalog.notices == [catalog.load().reason] == [catalog.queue("")] == [LOADING]
    assert catalog.load().ready
    assert catalog.queue("bundled") == ""
    found, examples = shown(page)
    assert examples == [True, False]
    assert LOADING in found["loading"]["value"]
    assert "data-loading" in found["loading"]["value"]
    assert [tuple(choice) for choice in found["pair"]["choices"]] == [
        ("SmolLM2 (loading)", ""),
        (TALES, "bundled"),
    ]
    assert KNOWN["smollm2"].target in found["about"]["value"]
    catalog.load_later()
    found, examples = shown(page)
    assert (catalog.notices, catalog.load().reason, found["loading"]["value"]) == ([], "", "")
    assert [tuple(choice) for choice in found["pair"]["choices"]] == [
        ("SmolLM2", ""),
        (TALES, "bundled"),
    ]
    assert page.config["components"] == page.get_config_file()["components"]
    assert examples == [False, True], "the tiny model does not chat"


def test_a_pair_on_demand_is_loaded_when_it_becomes_the_default_and_is_what_was_expected(
    small_decoder, bundled_engine
):
    assert (expected(None, 4).models, expected(None, 4).chat) == (
        bundled_engine.about.models,
        bundled_engine.about.chat,
    )
    for load, loaded in ((lambda: small_decoder, False), (missing, True)):
        first = smollm2(load)
        tales = LocalEngine(Later(lambda: small_decoder, expected(None, 4), "", on_demand=True))
        pairs = {
            "SmolLM2": ServedPair(first, measurable=True),
            "bundled": ServedPair(tales, measurable=True),
        }
        catalog = Catalog(pairs, deferred={"SmolLM2": first, "bundled": tales})
        assert list(catalog.labels.values()) == ["SmolLM2", TALES]
        catalog.load_later()
        catalog.warm_up()
        assert tales.loaded == loaded
        catalog.close()


def test_if_a_pair_cannot_be_loaded_the_next_is_the_default_and_page_log_and_health_say_why(
    bundled_engine, caplog
):
    catalog, waited = awaiting(missing, bundled_engine), SimpleQueue()
    page, request = (
        build_page(catalog, Runs()),
        Request("Once", SamplingParams(max_tokens=2, seed=1)),
    )
    catalog.start("", request, threading.Event(), waited.put)
    catalog.load_later()
    why = (
        "SmolLM2 cannot be loaded: target='smollm2' is neither in the package nor on the Hub. The"
        f" default is now {TALES}."
    )
    assert [record.getMessage() for record in caplog.records] == [f"app.py: {why}"]
    assert (catalog.notices, catalog.load().reason, catalog.load().ready) == ([why], why, True)
    reason = waited.get(timeout=300)
    assert (type(reason), "is neither in the package" in str(reason)) == (Trouble, True)
    found, examples = shown(page)
    assert "target=&#39;smollm2&#39; is neither" in found["loading"]["value"]
    assert "data-loading" not in found["loading"]["value"]
    assert [tuple(choice) for choice in found["pair"]["choices"]] == [(TALES, "")]
    assert not found["pair"]["visible"]
    assert examples == [False, True]
    assert list(catalog.stream("", request, threading.Event()))[-1].finish_reason == "length"
    with pytest.raises(ValueError, match="pair must be one of bundled, got 'SmolLM2'"):
        catalog.stream("SmolLM2", request, threading.Event())


def test_the_page_says_which_weights_a_target_has_and_who_was_trained_with_its_drafters(
    tiny_decoder, bundled_engine
):
    catalog = awaiting(lambda: tiny_decoder, bundled_engine)
    about = replace(
        catalog.of("").engine.about,
        num_parameters={"target": 2 * 10**6},
        weights="Q4_1 weights of <b>",
    )
    catalog.pairs["SmolLM2"] = ServedPair(LocalEngine(Later(missing, about, LOADING)))
    assert "<td>2.0 million parameters, Q4_1 weights of &lt;b&gt;</td>" in models_markup(catalog)
    assert "give it the start of one" in models_in_short(catalog, "bundled")
    assert "give it the start of one" not in models_in_short(catalog)
    assert f'<th scope="row">Target, {TALES}</th>' in re.sub(
        r"</?a\b[^>]*>", "", models_markup(catalog)
    )


def test_a_drafter_that_a_pair_lacks_is_refused_in_the_page_s_words(small_engine):
    served = ServedPair(small_engine, filter_words="classroom")
    with pytest.raises(
        ValueError,
        match=r"^drafter must be one of Draft model, .*Prompt",
    ):
        served.suited(Request("Once", drafter="head"))
    assert served.suited(Request("Once", drafter="head", num_draft_tokens=0)).drafter == "head"


ALONE = About(models={"target": "t"}, device="cpu", chat=False, capacity=1)


def drafters(*models: str) -> list[str]:
    about = replace(ALONE, models=ALONE.models | dict.fromkeys(models, "m"))
    return ServedPair(SimpleNamespace(about=about)).drafters


def test_the_menu_has_what_the_pair_has_what_it_takes_for():
    assert drafters() == ["suffix", "prompt_lookup"]
    assert drafters("draft") == ["model", "suffix", "prompt_lookup"]
    assert drafters("draft", "head") == ["model", "head", "suffix", "suffix+head", "prompt_lookup"]
    assert drafters("block") == ["block", "suffix", "prompt_lookup"]
    assert drafters("mtp") == ["mtp", "suffix", "prompt_lookup"]
    assert drafters("assistant") == ["assistant", "suffix", "prompt_lookup"]


def test_each_choice_says_in_a_second_line_what_it_is():
    own, *others = drafter_choices(list(DRAFTERS))
    assert own[1] == ""
    assert [value for _, value in others] == list(DRAFTERS)
    for label, value in others:
        assert label.split("\n") == [DRAFTERS[value].title, DRAFTERS[value].about]
