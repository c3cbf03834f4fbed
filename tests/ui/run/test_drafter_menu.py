"""The menu of drafters: what a pair has what it takes for, with a line each."""

from dataclasses import replace
from types import SimpleNamespace

from naive_speculate.serving.protocol import About
from naive_speculate.speculate.draft import DRAFTERS
from ui.host.catalog import ServedPair
from ui.run.controls import drafter_choices

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


def test_each_choice_says_in_a_second_line_what_it_is():
    own, *others = drafter_choices(list(DRAFTERS))
    assert own[1] == ""
    assert [value for _, value in others] == list(DRAFTERS)
    for label, value in others:
        assert label.split("\n") == [DRAFTERS[value].title, DRAFTERS[value].about]
