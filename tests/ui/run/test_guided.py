"""A guide: from its controls to the library and back, and what it did to acceptance."""

import asyncio
import json
import threading
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest

from naive_speculate import Trace
from naive_speculate.events import EventKind
from tests.ui.handmade import run
from ui.host.catalog import Catalog, ServedPair
from ui.host.measuring import BUSY, NotMeasured
from ui.run.controls import GUIDES
from ui.run.messages import offline_page
from ui.run.runs import Run, Runs
from ui.run.settings import TITLES, Settings, controls_of, from_query, guide, settings_of
from ui.run.stage import UNREPEATED, _server_functions, acceptance, seeded, template, without_guide

ASKED = Settings(prompt="Once upon a time there was a little fox who lived", max_tokens=60, seed=3)


@pytest.fixture(scope="module")
def catalog(small_engine) -> Catalog:
    return Catalog({"bundled": ServedPair(small_engine, small_engine)})


def decoded(catalog: Catalog, settings: Settings) -> Trace:
    return Trace(catalog.stream("", settings.request(), threading.Event()))


@pytest.mark.parametrize("kind", TITLES)
def test_every_example_guides_a_run_to_its_end_and_comes_back_from_its_trace_and_its_link(catalog, kind):
    asked = replace(ASKED, guided=kind, guided_text=GUIDES[kind])
    trace = decoded(catalog, asked)
    assert trace.finished.finish_reason == "stop"
    if kind == "json":
        assert json.loads(trace.text)["animal"] in ("fox", "bear", "hedgehog")
    if kind == "choice":
        assert trace.text in GUIDES["choice"].split("\n")
    found = settings_of(Trace.from_jsonl(trace.to_jsonl()))
    assert (found.guided, found.guided_text) == (kind, GUIDES[kind])
    linked = from_query(dict(parse_qsl(asked.query(Settings()), keep_blank_values=True)))
    assert replace(Settings(), **linked) == asked
    made = Run(trace)
    assert json.dumps(json.dumps(GUIDES[kind]))[3:-3][:10] in offline_page(made, template()), "a saved page tells the guide"


def test_no_kind_is_no_guide_whatever_stands_in_the_field():
    assert guide("", "([a-z") is None
    assert controls_of(None) == controls_of({}) == {}
    assert Settings(prompt="x", guided_text="([a-z").request().params.guided_decoding is None


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("regex", "([a-z", "guided_decoding regex does not parse, got .*Unclosed"),
        ("json", "{", "guided_decoding json does not parse, got '{': Expecting property name"),
        ("json", '{"type": "nonsense"}', 'Unsupported type "nonsense"'),
        ("regex", "a{1,100000}", "up to 1000 times"),
        ("choice", "\n \n", "“Guide” is empty: write one of these texts there"),
        ("poem", "x", "guided must be one of choice, regex, json, got 'poem'"),
    ],
)
def test_a_guide_that_cannot_be_is_refused_with_what_is_wrong(kind, text, said):
    with pytest.raises(ValueError, match=said):
        Settings(prompt="x", guided=kind, guided_text=text).request()


def test_texts_are_lines_with_their_spaces_and_may_hold_line_breaks():
    assert guide("choice", " a\n\n\\nb \n") == {"choice": [" a", "\nb "]}
    assert controls_of({"choice": [" a", "\nb "]}) == {"guided": "choice", "guided_text": " a\n\\nb "}


@pytest.mark.parametrize(
    "other", [{"grammar": 'root ::= "a"'}, {"json_object": True}, {"json": {}}, {"choice": [1]}, {"odd": 1}]
)
def test_a_run_whose_guide_the_controls_cannot_say_is_not_repeated_without_it(other):
    trace = run([(2, 1)], guided_decoding=other)
    assert settings_of(trace) is None


def test_judged_are_those_that_were_kept_and_the_first_that_was_not():
    assert acceptance(run([(3, 3), (3, 1), (2, 0), (0, 0)]).events) == {"accepted": 4, "judged": 6, "cut": False}


def test_a_run_without_its_guide_is_cut_after_a_while_and_waits_while_others_decode(catalog, monkeypatch):
    monkeypatch.setattr("ui.host.measuring.MOST_SECONDS", 0.0)
    assert acceptance(catalog.events("", ASKED.request()))["cut"]
    monkeypatch.setattr("ui.host.catalog.Catalog._quiet", lambda self: False)
    with pytest.raises(NotMeasured, match="only while nobody else"):
        Catalog(catalog.pairs).events("", ASKED.request())


def test_the_same_run_without_its_guide_is_decoded_with_its_seed_and_counted(catalog):
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

    runs, mine = Runs(), Run(run([(2, 1)]).events)
    runs.add("visitor", mine)
    tell = next(function for function in _server_functions(runs) if function.__name__ == "unguided")
    assert without_guide(mine) == {"reason": UNREPEATED, "again": False}
    mine.unguided = busy
    assert without_guide(mine) == {"reason": BUSY, "again": True}
    mine.unguided = lambda: {"accepted": 3, "judged": 4, "cut": False}
    assert json.loads(asyncio.run(tell(mine.id))) == {"accepted": 3, "judged": 4, "cut": False}
    assert asyncio.run(tell("another")) == asyncio.run(tell(None)) == ""
    assert mine.copy().unguided is mine.unguided
