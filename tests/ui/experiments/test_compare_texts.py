"""The room for two texts that differ: what it answers, and what it refuses before it costs anything."""

import pytest

from ui.experiments.compare_texts import findings
from ui.host.catalog import Catalog, ServedPair

ASKED = {"prompt": "Once upon a time", "a": " there was a <b>fox</b>.", "b": " there was a hen.", "greedy": "on"}


@pytest.fixture(scope="module")
def catalog(bundled_engine, small_pair):
    return Catalog({"small": ServedPair(bundled_engine, target=str(small_pair[0]))})


def test_the_answer_names_verdict_tokens_and_margins_and_escapes_the_texts(catalog):
    found = findings(catalog, ASKED | {"chat": "on"}, "")["words"]  # this pair has no template, which is no error
    assert "<h3>Unexplained</h3>" in found
    assert found.count('<th scope="row">float32') == found.count('<th scope="row">bfloat16') == 2
    assert "<b>fox" not in found
    assert "<h3>Same</h3>" in findings(catalog, ASKED | {"a": ASKED["b"]}, "")["words"]
    sampled = ASKED | {"a": " there was a king", "b": " there was a fox", "greedy": ""}
    assert "<h3>Sampling</h3>" in findings(catalog, sampled, "")["words"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "the prompt is empty"),
        (ASKED | {"a": " "}, "text A is empty"),
        (ASKED | {"b": ["list"]}, "text B is empty"),
        (ASKED | {"b": "x" * 801}, "text B may have at most 800 characters, got 801"),
        (ASKED | {"a": "🦊" * 600}, "the prompt and text A may have at most 160 tokens together, got"),
    ],
)
def test_bad_texts_are_refused(catalog, asked, words):
    with pytest.raises(ValueError, match=words):
        findings(catalog, asked, "")
