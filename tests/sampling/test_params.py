"""Sampling parameters: vLLM's defaults and ranges, and errors that name field and value."""

import json
from dataclasses import fields
from enum import IntEnum

import numpy as np
import pytest

from naive_speculate import GuidedDecodingParams, SamplingParams

DEFAULTS = {
    "n": 1, "best_of": None, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1, "temperature": 1,
    "top_p": 1, "top_k": -1, "min_p": 0, "seed": None, "stop": (), "stop_token_ids": (), "bad_words": (),
    "include_stop_str_in_output": False, "ignore_eos": False, "max_tokens": 16, "min_tokens": 0, "logprobs": None,
    "prompt_logprobs": None, "detokenize": True, "skip_special_tokens": True, "spaces_between_special_tokens": True,
    "logits_processors": (), "truncate_prompt_tokens": None, "guided_decoding": None, "logit_bias": None,
    "allowed_token_ids": None, "filter_words": None,
}  # fmt: skip


def test_the_defaults_are_vllms():
    params = SamplingParams()
    assert {name: getattr(params, name) for name in DEFAULTS} == DEFAULTS
    assert params.num_sequences == 1


EDGES = {
    "n": [3], "best_of": [1], "presence_penalty": [-2, 2], "frequency_penalty": [-2.0], "repetition_penalty": [2.5, 0.01],
    "temperature": [0, 5.5], "top_p": [1, 0.001], "top_k": [-1, 0, 1], "min_p": [1], "seed": [0, 2**63 - 1],
    "max_tokens": [1, None], "logprobs": [-1, 0], "prompt_logprobs": [-1, 0], "truncate_prompt_tokens": [1], "stop": ["end"],
    "stop_token_ids": [[3]],
}  # fmt: skip
OUTSIDE = {
    "n": [0, 1.5, True, np.bool_(True), np.array([1]), 16_385], "best_of": [0, 10**9],
    "presence_penalty": [2.1], "frequency_penalty": [-2.1],
    "repetition_penalty": [0, float("inf")], "temperature": [-0.1, float("nan"), float("inf"), 10**400, "warm", None],
    "top_p": [0, 1.1, np.float32("nan")], "top_k": [-2, None, 2.0], "min_p": [-0.1, 1.1], "seed": [-2, 2**63, "lucky"],
    "max_tokens": [0, 16.0, np.int64(0)], "min_tokens": [-1, None], "logprobs": [-2, False], "prompt_logprobs": [-2],
    "truncate_prompt_tokens": [0], "stop": [[""], [3], 7, ["x"] * 65, ["x" * 513]], "stop_token_ids": [[-1], 5],
    "bad_words": [[""], "word"], "allowed_token_ids": [[], ["a"]], "ignore_eos": [1], "detokenize": [None],
    "logit_bias": [{-1: 0.0}, {1: float("nan")}, [1], {"a": 1.0}], "logits_processors": [["f"], len],
    "spaces_between_special_tokens": ["no"], "guided_decoding": [3],
}  # fmt: skip


def test_values_at_the_edge_of_their_range_are_taken_and_those_outside_refused_by_name():
    for name, outside in OUTSIDE.items():
        for value in EDGES.get(name, ()):
            SamplingParams(**{name: value})
        for value in outside:
            with pytest.raises(ValueError, match=name):
                pytest.fail(f"{SamplingParams(**{name: value})} is taken")


def test_vllms_other_ways_to_say_it_mean_the_same():
    for name, given, meant in (
        ("stop", None, ()), ("stop", "end", ("end",)), ("stop_token_ids", None, ()), ("stop_token_ids", {3}, (3,)),
        ("stop_token_ids", np.array([3, 4]), (3, 4)), ("bad_words", None, ()), ("logits_processors", None, ()),
        ("allowed_token_ids", [np.int32(7)], (7,)), ("logit_bias", {"42": -5}, {42: -5}),
        ("logit_bias", {np.int64(3): np.float32(1.5)}, {3: 1.5}), ("seed", -1, None), ("seed", np.int64(2**63 - 1), 2**63 - 1),
        ("logprobs", True, 1), ("prompt_logprobs", True, 1), ("n", np.int8(2), 2), ("best_of", np.uint16(2), 2),
        ("max_tokens", np.int64(9), 9), ("min_tokens", np.int64(2), 2), ("top_k", np.int64(0), 0),
        ("temperature", np.float64(0.5), 0.5), ("top_p", np.float16(0.5), 0.5), ("min_p", np.float32(0.5), 0.5),
        ("repetition_penalty", np.int64(3), 3), ("presence_penalty", np.float32(-1.5), -1.5),
        ("ignore_eos", np.bool_(True), True), ("detokenize", np.bool_(False), False),
    ):  # fmt: skip
        value = getattr(SamplingParams(**{name: given}), name)
        assert (value, type(value)) == (meant, type(meant)), (name, given)
        json.dumps(
            SamplingParams(**{name: given}).to_dict()
        )  # no NumPy is left in what a run reports


def test_contradictions_are_refused():
    for values, message in (
        (
            {"min_tokens": 5, "max_tokens": 4},
            "min_tokens must not exceed max_tokens, got min_tokens=5 and max_tokens=4",
        ),
        ({"repetition_penalty": 0}, "repetition_penalty must be a number, above 0, got 0"),
        ({"n": 3, "best_of": 2}, "best_of must be at least n, got best_of=2 and n=3"),
        ({"stop": ["x"], "detokenize": False}, "needs the text, but detokenize is False"),
        ({"stop": ["\udc00"]}, "stop is broken text"),
    ):
        with pytest.raises(ValueError, match=message):
            SamplingParams(**values)


def test_all_fields_become_plain_json():
    params = SamplingParams(
        stop="end",
        logit_bias={3: 1.5},
        guided_decoding=GuidedDecodingParams(regex="a+"),
        logits_processors=[lambda o, x: x],
    )
    plain = json.loads(json.dumps(params.to_dict()))
    assert plain["stop"] == ["end"]
    assert plain["logit_bias"] == {"3": 1.5}
    assert plain["guided_decoding"] == {"regex": "a+"}
    assert plain["logits_processors"] == 1
    assert plain.keys() == {field.name for field in fields(SamplingParams)}


def test_members_of_an_int_enum_are_token_ids_and_numbers():
    class Special(IntEnum):
        END = 5

    params = SamplingParams(
        stop_token_ids=[Special.END],
        allowed_token_ids=[Special.END],
        logit_bias={Special.END: Special.END},
    )
    assert (params.stop_token_ids, params.allowed_token_ids, params.logit_bias) == (
        (5,),
        (5,),
        {5: 5},
    )
