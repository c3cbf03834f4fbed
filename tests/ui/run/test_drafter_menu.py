"""The menu of drafters: what a pair has what it takes for, with a line each."""

from dataclasses import replace
from types import SimpleNamespace

from naive_speculate.serving.protocol import About
from naive_speculate.speculate.draft import DRAFTERS
from ui.host.catalog import Catalog, ServedPair
from ui.run.controls import drafter_choices

ALONE = About(models={"target": "t"}, device="cpu", chat=False, capacity=1)


def catalog(*models: str) -> Catalog:
    about = replace(ALONE, models=ALONE.models | dict.fromkeys(models, "m"))
    return Catalog({"pair": ServedPair(SimpleNamespace(about=about))})


def test_the_menu_has_what_the_pair_has_what_it_takes_for():
    assert catalog().drafters == ["suffix", "prompt_lookup"]
    assert catalog("draft").drafters == ["model", "suffix", "prompt_lookup"]
    assert catalog("draft", "head").drafters == ["model", "head", "suffix", "suffix+head", "prompt_lookup"]
    assert catalog("block").drafters == ["block", "suffix", "prompt_lookup"]
    assert catalog("mtp").drafters == ["mtp", "suffix", "prompt_lookup"]


def test_each_choice_says_in_a_second_line_what_it_is():
    own, *others = drafter_choices(list(DRAFTERS))
    assert own[1] == ""
    assert [value for _, value in others] == list(DRAFTERS)
    for label, value in others:
        assert label.split("\n") == [DRAFTERS[value].title, DRAFTERS[value].about]
