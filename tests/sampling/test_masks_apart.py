"""Grammars that take too long end their own run and no other; all others give the text that they
give without a limit."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import FinishReason
from naive_speculate.sampling import guided as guided_decoding
from naive_speculate.sampling.guided import GuideTooCostly
from naive_speculate.serving import LocalEngine, Request

ENDLESS = {"regex": r"(([a-z ]?){0,30}){0,33}x"}
"""Its first mask takes 9 s, later ones minutes."""
LATER = {"regex": r"[0-9]{3}(([a-z ]?){0,30}){0,33}x"}
"""The same after three digits."""
ORDINARY = [
    {"regex": r"( [a-z]+){5,12}\."},
    {"choice": [" in the forest.", " by the sea."]},
    {
        "json": {"properties": {"age": {"type": "integer"}}, "required": ["age"]},
        "disable_any_whitespace": True,
    },
    {"grammar": 'root ::= "a" root "b" | "c"'},
    {"json_object": True},
]


@pytest.fixture(scope="module")
def bounded(small_decoder):
    return SpeculativeDecoder(small_decoder.pair, mask_seconds=0.1)


def guided(guide, **more) -> SamplingParams:
    return SamplingParams(
        **{"max_tokens": 40, "temperature": 1.0, "seed": 4, "guided_decoding": guide, **more}
    )


def test_a_new_process_is_started_where_the_old_one_has_ended(bounded):
    masks = bounded.admission._grammar(guided(ORDINARY[0]))
    masks._server, its = socket.socketpair()
    its.close()  # as where its machine has no memory left
    assert bounded.generate("Once", guided(ORDINARY[0], max_tokens=3)).token_ids


def test_a_limit_changes_no_text(bounded, small_decoder):
    for guide, k in zip(ORDINARY, (5, 5, 0, 5, 0), strict=True):
        given = {
            "prompt": "Once upon a time",
            "params": guided(guide, max_tokens=16),
            "num_draft_tokens": k,
        }
        assert bounded.generate(**given).token_ids == small_decoder.generate(**given).token_ids, (
            guide
        )


def test_a_grammar_whose_first_mask_takes_too_long_is_refused_by_name(bounded, monkeypatch):
    monkeypatch.setattr(bounded.admission._grammar(guided(ENDLESS)), "_seconds", 0.02)
    with pytest.raises(
        GuideTooCostly,
        match=r"^guided_decoding regex takes too much time or memory to follow, got '\(\(\[a-z",
    ):
        bounded.generate("Once", guided(ENDLESS))


def test_runs_in_the_same_batch_lose_nothing(bounded, small_decoder):
    good = [
        Request("Once upon a time", SamplingParams(max_tokens=16, seed=seed)) for seed in range(3)
    ]
    good.append(Request("Once upon a time", guided(ORDINARY[0], max_tokens=16)))
    engine = LocalEngine(bounded)
    gate = threading.Barrier(5)

    def run(request: Request) -> Trace:
        gate.wait()
        return Trace(event for events in engine.submit(request) for event in events)

    with ThreadPoolExecutor(5) as pool:
        *fine, ended = pool.map(run, [*good, Request("Once", guided(LATER))])
    engine.close()
    assert ended.finished.finish_reason == FinishReason.ERROR
    assert ended.finished.message.startswith("guided_decoding regex takes too much time or memory")
    assert "\n" not in ended.finished.message
    for request, trace in zip(good, fine, strict=True):
        assert trace.token_ids == small_decoder.generate(request.prompt, request.params).token_ids


def test_what_cannot_be_compiled_is_said_as_without_a_limit(bounded, small_decoder, monkeypatch):
    monkeypatch.setattr(guided_decoding, "MAX_TIMES", 10_000)
    guide = {"json": {"type": "string", "pattern": "a{1,1100}"}}
    monkeypatch.setattr(bounded.admission._grammar(guided(guide)), "_seconds", 60)  # it takes some
    said = []
    for decoder in (bounded, small_decoder):
        with pytest.raises(ValueError, match=r"^guided_decoding json does not compile") as raised:
            decoder.generate("Once", guided(guide))
        said.append(str(raised.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "1", True])
def test_a_limit_that_is_none_is_refused(small_decoder, seconds):
    with pytest.raises(ValueError, match="mask_seconds must be a number above 0 or None, got"):
        SpeculativeDecoder(small_decoder.pair, mask_seconds=seconds)


def test_the_largest_guides_that_are_taken_are_bounded_too(bounded, monkeypatch):
    """They end by themselves, or with the line; and another run follows."""
    monkeypatch.setattr(bounded.admission._grammar(guided(ORDINARY[0])), "_seconds", 0.02)
    many = [f" {number:05d}" for number in range(1500)]
    schema = {
        "type": "object",
        "properties": {f"f{number}": {"type": "string", "maxLength": 9} for number in range(300)},
    }
    for guide in (
        {"choice": many},
        {"json": json.dumps(schema)},
        {"regex": "(a|aa|" * 90 + "b" + ")*" * 90},
    ):
        with suppress(GuideTooCostly):
            assert bounded.generate("Once", guided(guide, max_tokens=8)).finish_reason in (
                "stop",
                "length",
            )
    assert bounded.generate("Once", guided(ORDINARY[0], max_tokens=3)).token_ids
