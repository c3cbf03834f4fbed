"""Settings: from controls, to the library, and through a link and back."""

from dataclasses import asdict, replace
from urllib.parse import parse_qsl

import pytest

from ui.run.settings import Settings, checked, from_query


def test_a_link_reproduces_the_settings():
    numbers = {"num_draft_tokens": 3, "auto": True, "temperature": 1.25, "seed": None, "chat": False}
    settings = Settings("A fox & a <hen>\nmet ☃", verify_strategy="greedy_match", stop="\\n\\n\nend", **numbers)
    linked = from_query(dict(parse_qsl(settings.query(Settings()), keep_blank_values=True)))
    assert replace(Settings(), **linked) == settings


def test_a_link_names_only_what_is_unusual():
    assert Settings().query(Settings()) == ""
    assert Settings(seed=9).query(Settings()) == "seed=9"


def test_a_page_without_settings_in_its_link_keeps_its_own():
    assert from_query({"__theme": "dark"}) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", "abc"), ("temperature", "nan"), ("temperature", "warm"), ("auto", "perhaps"), ("max_tokens", "1.5"),
        ("verify_strategy", "mine"), ("verify_strategy", ""), ("drafter", "me"), ("guided", "poem"),
    ],
)  # fmt: skip
def test_a_link_that_makes_no_sense_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        from_query({name: value})


def test_stop_strings_are_lines_and_may_hold_line_breaks():
    assert Settings(stop="\\n\\n\n\nThe end").stop_strings == ["\n\n", "The end"]


def test_parameters_are_the_library_s():
    params = Settings(temperature=0, top_p=0.9, top_k=8, min_p=0.1, stop="x", seed=3, max_tokens=7).params()
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0, 0.9, 8, 0.1)
    assert (list(params.stop), params.seed, params.max_tokens) == (["x"], 3, 7)


@pytest.mark.parametrize(
    ("field", "value"), [("num_draft_tokens", None), ("temperature", None), ("max_tokens", 3.5), ("temperature", "hot")]
)
def test_empty_and_odd_fields_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        checked({**asdict(Settings()), field: value})


def test_an_empty_seed_means_a_drawn_one():
    assert checked({**asdict(Settings()), "seed": None}).seed is None


def test_auto_takes_the_place_of_k():
    assert Settings(prompt="Once", auto=True).request().num_draft_tokens == "auto"
    assert Settings(prompt="Once", num_draft_tokens=3).request().num_draft_tokens == 3


def test_a_request_needs_a_prompt():
    with pytest.raises(ValueError, match="prompt is empty"):
        Settings(prompt=" \n").request()


@pytest.mark.parametrize(
    ("chosen", "asked"), [("", None), (None, None), ("model", "model"), ("prompt_lookup", "prompt_lookup")]
)
def test_no_drafter_is_the_pair_s_own(chosen, asked):
    assert checked({"prompt": "x", "drafter": chosen}).request().drafter == asked
    assert Settings(prompt="x").request().drafter is None
