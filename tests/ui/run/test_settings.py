"""Settings: from controls, to the library, through a link and back, and from a run's trace."""

from dataclasses import asdict, replace
from urllib.parse import parse_qsl

import pytest

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import Event, EventKind
from tests.ui.handmade import run
from ui.run.runs import Run, Runs
from ui.run.settings import Settings, checked, from_query, settings_of, title
from ui.run.stage import _server_functions


def test_a_link_reproduces_the_settings():
    numbers = {"num_draft_tokens": 3, "auto": True, "temperature": 1.25, "seed": None, "chat": False}
    settings = Settings("A fox & a <hen>\nmet ☃", verify_strategy="greedy_match", stop="\\n\\n\nend", **numbers)
    linked = from_query(dict(parse_qsl(settings.query(Settings()), keep_blank_values=True)))
    assert replace(Settings(), **linked) == settings


def test_a_link_names_only_what_is_unusual_and_without_settings_the_page_keeps_its_own():
    assert Settings().query(Settings()) == ""
    assert Settings(seed=9).query(Settings()) == "seed=9"
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


@pytest.mark.parametrize(
    ("field", "value"), [("num_draft_tokens", None), ("temperature", None), ("max_tokens", 3.5), ("temperature", "hot")]
)
def test_empty_and_odd_fields_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=f"{field} .*{'and is empty' if value is None else 'got'}"):
        checked({**asdict(Settings()), field: value})


def test_parameters_are_the_library_s_and_stop_strings_are_lines_that_may_hold_line_breaks():
    params = Settings(temperature=0, top_p=0.9, top_k=8, min_p=0.1, stop="\\n\\n\n\nThe end", seed=3, max_tokens=7).params()
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0, 0.9, 8, 0.1)
    assert (list(params.stop), params.seed, params.max_tokens) == (["\n\n", "The end"], 3, 7)


def test_a_request_needs_a_prompt_and_an_empty_field_means_a_drawn_seed_or_the_pair_s_own_drafter():
    assert checked({**asdict(Settings()), "seed": None}).seed is None
    assert Settings(prompt="Once", auto=True).request().num_draft_tokens == "auto"
    assert Settings(prompt="Once", num_draft_tokens=3).request().num_draft_tokens == 3
    for chosen in ("", None, "model", "prompt_lookup"):
        assert checked({"prompt": "x", "drafter": chosen}).request().drafter == (chosen or None)
    with pytest.raises(ValueError, match="prompt is empty"):
        Settings(prompt=" \n").request()


def test_a_real_run_gives_back_what_was_requested(small_decoder):
    asked = Settings(
        prompt="Once upon a time", drafter="prompt_lookup", auto=True, temperature=0.4, max_tokens=9, seed=4, top_p=0.9,
        top_k=30, min_p=0.01, repetition_penalty=1.1, stop="king\nline\\nbreak", ignore_eos=True, num_draft_tokens=5,
    )  # fmt: skip
    request = asked.request()
    trace = small_decoder.generate(
        request.prompt,
        request.params,
        num_draft_tokens="auto",
        verify_strategy=request.verify_strategy,
        drafter=request.drafter,
    ).trace
    assert settings_of(Trace.from_jsonl(trace.to_jsonl())) == asked


def test_a_drawn_seed_is_reported(small_decoder):
    trace = small_decoder.generate("Once", SamplingParams(max_tokens=2)).trace
    assert settings_of(trace).seed == trace.started.seed


def test_traces_that_say_too_little_or_nonsense_give_none():
    assert settings_of(Trace([Event(EventKind.BONUS)])) is None
    assert settings_of(Trace([Event(EventKind.STARTED, schema_version=1)])) is None
    for odd in ({"temperature": "<b>"}, {"max_tokens": [1]}, {"stop": 5}, {"num_draft_tokens": {}}):
        assert settings_of(Trace([Event(EventKind.STARTED, settings={"verify_strategy": "greedy_match", **odd})])) is None


def test_a_link_repeats_prompt_and_seed_even_where_they_are_as_usual():
    runs = Runs()
    mine = Run(run([(2, 1)]).events)
    mine.settings = Settings(prompt="Once", seed=1)
    runs.add("visitor", mine)
    *_, link, _ = _server_functions(runs)
    assert link(mine.id) == "prompt=Once&seed=1"
    assert link("another") == link(None) == ""
    linked = from_query(dict(part.split("=") for part in link(mine.id).split("&")))
    assert linked == {"prompt": "Once", "seed": 1}


def test_a_copy_of_a_run_outlives_its_first_visitor(monkeypatch):
    runs = Runs()
    mine = Run(run([(2, 1)]).events, title="t")
    mine.settings, mine.measure = Settings(prompt="Once"), list
    runs.add("first", mine)
    theirs = mine.copy()
    runs.add("second", theirs)
    monkeypatch.setattr("ui.run.runs.LEFT_SECONDS", 0.0)
    runs.leave("first")
    assert runs.get(mine.id) is None
    kept = runs.get(theirs.id)
    assert (kept.events, kept.settings, kept.measure, kept.title) == (mine.events, mine.settings, list, "t")
    assert kept.id != mine.id


def test_the_title_names_the_settings():
    assert title(run([(2, 1)], temperature=0.7)) == "speculative sampling · k = 5 · temperature 0.7 · seed 7"
    assert title(run([(2, 1)], temperature=0.7, drafter="head")).startswith("draft head · speculative sampling · k = 5")
    assert title(run([(2, 1)], tree="4x2x1")) == "tree 4x2x1 · speculative sampling · temperature 1 · seed 7"  # it has no k
