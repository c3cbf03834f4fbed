"""Settings and guides: from controls, to the library, through a link and back, and from a run's
trace."""

import asyncio
import json
import threading
from dataclasses import asdict, replace
from urllib.parse import parse_qsl

import pytest

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import Event, EventKind
from tests.ui.handmade import run
from ui.host.catalog import Catalog
from ui.host.measuring import BUSY, NotMeasured
from ui.run.controls import GUIDES
from ui.run.runs import Runs, ShownRun
from ui.run.settings import (
    TITLES,
    TREE,
    Settings,
    checked,
    controls_of,
    from_query,
    guide,
    settings_of,
    title,
)
from ui.run.stage import (
    UNREPEATED,
    _server_functions,
    acceptance,
    offline_page,
    seeded,
    template,
    without_guide,
)


def from_link(query: str) -> dict:
    return from_query(dict(parse_qsl(query, keep_blank_values=True)))


def test_a_link_reproduces_the_settings_and_names_only_what_is_unusual():
    numbers = {
        "num_draft_tokens": 3,
        "auto": True,
        "temperature": 1.25,
        "seed": None,
        "chat": False,
    }
    settings = Settings(
        "A fox & a <hen>\nmet ☃", verify_strategy="greedy_match", stop="\\n\\n\nend", **numbers
    )
    assert replace(Settings(), **from_link(settings.query(Settings()))) == settings
    assert (Settings().query(Settings()), Settings(seed=9).query(Settings())) == ("", "seed=9")
    assert from_query({"__theme": "dark"}) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", "abc"), ("temperature", "nan"), ("temperature", "warm"), ("auto", "perhaps"),
        ("max_tokens", "1.5"), ("verify_strategy", "mine"), ("verify_strategy", ""),
        ("drafter", "me"), ("guided", "poem"),
    ],
)  # fmt: skip
def test_a_link_that_makes_no_sense_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        from_query({name: value})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_draft_tokens": None}, "num_draft_tokens .*and is empty"),
        ({"temperature": None}, "temperature .*and is empty"),
        ({"max_tokens": 3.5}, "max_tokens .*got"),
        ({"temperature": "hot"}, "temperature .*got"),
        (
            {"guided": "regex", "guided_text": "([a-z"},
            "guided_decoding regex does not parse, got .*unterminated character set",
        ),
        (
            {"guided": "json", "guided_text": "{"},
            "guided_decoding json does not parse, got '{': Expecting property name",
        ),
        (
            {"guided": "json", "guided_text": '{"type": "nonsense"}'},
            "Invalid type: nonsense",
        ),
        ({"guided": "regex", "guided_text": "a{100000}"}, "may demand 10000"),
        (
            {"guided": "choice", "guided_text": "\n \n"},
            "guided_text is empty: write one of these texts there",
        ),
        (
            {"guided": "poem", "guided_text": "x"},
            "guided must be one of choice, regex, json, got 'poem'",
        ),
    ],
)
def test_fields_and_guides_that_cannot_be_are_refused_with_what_is_wrong(fields, said):
    with pytest.raises(ValueError, match=said):
        checked(asdict(Settings(prompt="x")) | fields).request()


def test_parameters_are_the_library_s_and_stop_strings_are_lines_that_may_hold_line_breaks():
    params = Settings(
        temperature=0, top_p=0.9, top_k=8, min_p=0.1, stop="\\n\\n\n\nThe end", seed=3, max_tokens=7
    ).params()
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


def test_a_real_run_gives_back_what_was_requested_and_a_drawn_seed(small_decoder):
    asked = Settings(
        prompt="Once upon a time", drafter="prompt_lookup", auto=True, temperature=0.4,
        max_tokens=9, seed=4, top_p=0.9, top_k=30, min_p=0.01, repetition_penalty=1.1,
        stop="king\nline\\nbreak", ignore_eos=True, num_draft_tokens=5,
    )  # fmt: skip
    request = asked.request()
    options = {
        "verify_strategy": request.verify_strategy,
        "drafter": request.drafter,
        "num_draft_tokens": "auto",
    }
    trace = small_decoder.generate(request.prompt, request.params, **options).trace
    assert settings_of(Trace.from_jsonl(trace.to_jsonl())) == asked
    drawn = small_decoder.generate("Once", SamplingParams(max_tokens=2)).trace
    assert settings_of(drawn).seed == drawn.started.seed


UNSAYABLE = [
    {"grammar": 'root ::= "a"'},
    {"json_object": True},
    {"json": {}},
    {"choice": [1]},
    {"odd": 1},
]
NONSENSE = [{"temperature": "<b>"}, {"max_tokens": [1]}, {"stop": 5}, {"num_draft_tokens": {}}]


def test_traces_that_say_too_little_or_nonsense_or_have_a_guide_without_controls_give_none():
    assert (
        settings_of(Trace([Event(EventKind.BONUS)]))
        is settings_of(Trace([Event(EventKind.STARTED, schema_version=1)]))
        is None
    )
    for odd in (*NONSENSE, *({"guided_decoding": odd} for odd in UNSAYABLE)):
        assert settings_of(run([(2, 1)], **odd)) is None, odd


def test_a_link_repeats_prompt_and_seed_and_a_copy_of_a_run_outlives_its_first_visitor(
    monkeypatch,
):
    runs, mine = Runs(), ShownRun(run([(2, 1)]).events, title="t")
    mine.settings, mine.measure = Settings(prompt="Once", seed=1), list
    runs.add("first", mine)
    *_, link, _, _ = _server_functions(runs)
    assert (link(mine.id), link("another"), link(None)) == ("prompt=Once&seed=1", "", "")
    assert from_link(link(mine.id)) == {"prompt": "Once", "seed": 1}
    theirs = mine.copy()
    runs.add("second", theirs)
    monkeypatch.setattr("ui.run.runs.LEFT_SECONDS", 0.0)
    runs.leave("first")
    assert runs.get(mine.id) is None
    kept = runs.get(theirs.id)
    assert (kept.events, kept.settings, kept.measure, kept.title) == (
        mine.events,
        mine.settings,
        list,
        "t",
    )
    assert kept.id != mine.id


def test_the_title_names_the_settings():
    assert (
        title(run([(2, 1)], temperature=0.7))
        == "speculative sampling · k = 5 · temperature 0.7 · seed 7"
    )
    assert title(run([(2, 1)], temperature=0.7, drafter="head")).startswith(
        "draft head · speculative sampling · k = 5"
    )
    assert (
        title(run([(2, 1)], tree="4x2x1"))
        == "tree 4x2x1 · speculative sampling · temperature 1 · seed 7"
    )  # it has no k


ASKED = Settings(prompt="Once upon a time there was a little fox who lived", max_tokens=60, seed=3)


def decoded(catalog: Catalog, settings: Settings) -> Trace:
    return Trace(catalog.stream("", settings.request(), threading.Event()))


@pytest.mark.parametrize("kind", TITLES)
def test_every_example_guides_a_run_to_its_end_and_comes_back_from_its_trace_and_its_link(
    catalog, kind
):
    asked = replace(ASKED, guided=kind, guided_text=GUIDES[kind])
    trace = decoded(catalog, asked)
    assert trace.finished.finish_reason == "stop"
    if kind == "json":
        assert json.loads(trace.text)["animal"] in ("fox", "bear", "hedgehog")
    if kind == "choice":
        assert trace.text in GUIDES["choice"].split("\n")
    found = settings_of(Trace.from_jsonl(trace.to_jsonl()))
    assert (found.guided, found.guided_text) == (kind, GUIDES[kind])
    assert replace(Settings(), **from_link(asked.query(Settings()))) == asked
    made = ShownRun(trace)
    assert json.dumps(json.dumps(GUIDES[kind]))[3:-3][:10] in offline_page(made, template()), (
        "a saved page tells the guide"
    )


def test_no_kind_is_no_guide_whatever_the_field_has_and_texts_are_lines_with_line_breaks():
    assert (
        guide("", "([a-z")
        is Settings(prompt="x", guided_text="([a-z").request().params.guided_decoding
        is None
    )
    assert controls_of(None) == controls_of({}) == {}
    assert guide("choice", " a\n\n\\nb \n") == {"choice": [" a", "\nb "]}
    assert controls_of({"choice": [" a", "\nb "]}) == {
        "guided": "choice",
        "guided_text": " a\n\\nb ",
    }


def test_a_run_without_its_guide_is_cut_after_a_while_and_waits_while_others_decode(
    catalog, monkeypatch
):
    monkeypatch.setattr("ui.host.measuring.MOST_SECONDS", 0.0)
    assert acceptance(catalog.events("", ASKED.request()))["cut"]
    monkeypatch.setattr("ui.host.catalog.Catalog._quiet", lambda self: False)
    with pytest.raises(NotMeasured, match="only while nobody else"):
        Catalog(catalog.pairs).events("", ASKED.request())


def test_a_run_without_its_guide_is_decoded_with_its_seed_and_counted_as_far_as_judged(
    catalog,
):
    assert acceptance(run([(3, 3), (3, 1), (2, 0), (0, 0)]).events) == {
        "accepted": 4,
        "judged": 6,
        "cut": False,
    }
    asked = replace(ASKED, guided="regex", guided_text=GUIDES["regex"], seed=None)
    guided = decoded(catalog, asked)
    plain = seeded(asked.request(), guided.started.seed, guided_decoding=None)
    without = acceptance(catalog.events("", plain))
    assert without == acceptance(decoded(catalog, replace(ASKED, seed=guided.started.seed)).events)
    with_guide = acceptance(guided.events)
    assert with_guide["judged"] < without["judged"]  # the guide ends the text earlier
    assert with_guide["accepted"] == sum(event.kind == EventKind.ACCEPTED for event in guided)


def test_the_page_is_given_the_figure_or_why_there_is_none():
    def busy() -> dict:
        raise NotMeasured(BUSY)

    runs, mine = Runs(), ShownRun(run([(2, 1)]).events)
    runs.add("visitor", mine)
    tell = next(function for function in _server_functions(runs) if function.__name__ == "unguided")
    assert without_guide(mine) == {"reason": UNREPEATED, "again": False}
    mine.unguided = busy
    assert without_guide(mine) == {"reason": BUSY, "again": True}
    mine.unguided = lambda: {"accepted": 3, "judged": 4, "cut": False}
    assert json.loads(asyncio.run(tell(mine.id))) == {"accepted": 3, "judged": 4, "cut": False}
    assert asyncio.run(tell("another")) == asyncio.run(tell(None)) == ""
    assert mine.copy().unguided is mine.unguided


def test_a_tree_with_more_nodes_than_are_drafted_is_refused_with_their_number():
    with pytest.raises(ValueError, match=r"^tree must be at most 16 nodes, .*got 4x2x1 \(20\)$"):
        checked({"prompt": "Once", "tree": "4x2x1"}).request()
    assert checked({"prompt": "Once", "tree": TREE}).request().tree == TREE


def test_a_refusal_counts_and_shows_only_what_was_written():
    lines = "\n".join(["a"] * 70)
    with pytest.raises(ValueError, match=r"got 70, one of 1 characters$"):
        checked({"prompt": "Once", "stop": lines}).request()
    texts = "\n".join(f"{number:05}" for number in range(4001))
    with pytest.raises(ValueError, match="may be 20000 characters long, got 24005"):
        checked({"prompt": "Once", "guided": "choice", "guided_text": texts}).request()
