"""The doctor's room on the server: words, charts, and what it refuses."""

import re
from itertools import cycle

import pytest

from naive_speculate.doctor import read
from tests import engine_samples as samples
from ui.experiments.doctor import EXAMPLES, example, findings

ALL = {name: text for name, text in vars(samples).items() if name.isupper()}


def test_the_examples_are_the_samples_of_the_tests():
    assert [example(engine) for engine in EXAMPLES] == [samples.VLLM_LOG, samples.LLAMACPP_STATISTICS, samples.SGLANG_META_INFO]
    assert example("../pair/costs.json") == example(None) == ""


@pytest.mark.parametrize(("name", "cost"), zip(ALL, cycle(["", "0.1", "0.6B / 8B"]), strict=False))
def test_every_format_is_reported_and_drawn(name, cost):
    found = findings({"log": ALL[name], "draft_cost": cost, "verify_cost": "1, 1.02, 1.05" if cost else ""})
    assert read(ALL[name]).engine in found["words"]
    options = set(re.findall(r"--[a-z-]+", found["words"])) - {"--draft-p-min"}  # that one is llama.cpp's
    assert not options, "the page has fields instead of options"
    assert "target pass" in found["report"] or "the window is missing" in found["report"]
    for figure in found["charts"].values():
        assert figure["layout"]["meta"]
        for trace in figure["data"]:
            assert len(trace["x"]) == len(trace["y"]) > 0
            assert None not in trace["y"]


def test_markup_in_a_log_is_only_text():
    evil = samples.LLAMACPP_EXAMPLE + "<script>window.hit=1</script>"
    assert "<script" not in findings({"log": evil})["words"]
    with pytest.raises(ValueError, match="none of the supported formats"):
        findings({"log": "<script>"})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"log": ""}, "the text is empty"),
        ({}, "the text is empty"),
        ({"log": "x" * 100_001}, "100,000 characters, got 100,001"),
        ({"log": samples.VLLM_LOG, "draft_cost": "1" * 61}, "“Draft cost” may have at most 60 characters, got 61"),
        ({"log": samples.VLLM_LOG, "verify_cost": "1," * 101}, "tokens” may have at most 200 characters, got 202"),
        ({"log": samples.VLLM_LOG, "num_draft_tokens": "1" * 7}, "step” may have at most 6 characters, got 7"),
        ({"log": samples.VLLM_LOG, "verify_cost": "1"}, "“Cost of verifying 1, 2, 3 … tokens” needs “Draft cost”"),
        ({"log": samples.VLLM_LOG, "draft_cost": "0.1, 0.2"}, "“Draft cost” must be one number"),
        ({"log": samples.VLLM_LOG, "draft_cost": "big / 8B"}, "size must be like"),
        ({"log": samples.VLLM_LOG, "num_draft_tokens": "0"}, "“Draft tokens per step” must be 1"),
        ({"log": samples.VLLM_LOG, "num_draft_tokens": "many"}, "whole number"),
        ({"log": f"n_drafted = {'9' * 400}\nn_accept = 5\nn_predict = 10\n"}, "impossible|larger than any"),
        ({"log": f"SpecDecoding metrics: Accepted: {'9' * 400} tokens, Drafted: {'9' * 400} tokens"}, "impossible|larger"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(fields, words):
    with pytest.raises(ValueError, match=words) as refused:
        findings(fields)
    assert len(str(refused.value)) < 600
    assert not re.search(r"\n", str(refused.value))
