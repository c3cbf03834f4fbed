"""The start of a run's text, drawn again: real draws of both kinds, and how far they differ."""

import math
from dataclasses import replace

import pytest

from naive_speculate import SamplingParams
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.serving import Request
from ui.run.samples import MOST, SHOWN, TOKENS, Samples, sentence


@pytest.fixture
def drawn(small_engine):
    asked = []

    def decode(request: Request):
        asked.append(request)
        return [event for some in small_engine.submit(request) for event in some]

    params = SamplingParams(max_tokens=40, seed=1, temperature=1.0)
    return Samples(decode, Request("Once upon a time", params, num_draft_tokens=2), rows=2), asked


def test_each_batch_adds_as_many_texts_with_drafts_as_without(drawn):
    samples, asked = drawn
    found = [samples.more() for _ in range(3)][-1]
    assert found["draws"] == samples.drafted.total() == samples.plain.total() == 6
    assert [request.num_draft_tokens for request in asked] == [2, 0] * 3
    assert {request.params.max_tokens for request in asked} == {TOKENS}
    assert len({request.params.seed for request in asked}) == len(asked), "draws of their own"
    assert found["more"]
    for name in ("drafts", "plain"):
        assert sum(row[name] for row in found["rows"]) == pytest.approx(1)
    assert len(found["rows"]) <= SHOWN + 1


def test_the_texts_are_those_that_the_engine_wrote(drawn, small_engine):
    samples, asked = drawn
    samples.more()
    first = replace(asked[0], detail="none")
    texts = {0: "", 1: ""}
    for some in small_engine.submit(first):
        for event in some:
            if event.kind in OUTPUT_KINDS:
                texts[event.row] += event.text
    assert samples.drafted.total() == 2
    assert set(samples.drafted) == set(texts.values())


def test_it_ends_with_the_most_texts(drawn):
    samples, _ = drawn
    samples.plain["a"] = samples.drafted["a"] = MOST - 1
    found = samples.more()
    assert (found["draws"], found["more"]) == (MOST, False)


def test_it_says_how_far_two_samples_of_one_distribution_differ():
    rows = [
        {"text": text, "drafts": share, "plain": 1 - share}
        for text, share in (("a", 0.6), ("b", 0.4))
    ]
    chance = math.sqrt(2 / math.pi * 0.25 * (1 / 50 + 1 / 50))
    said = sentence(rows, {"drafts": 50, "plain": 50})
    assert said.startswith("The two differ by 0.2 (total variation)")
    assert said.endswith(f"by about {chance:.2g}.")
