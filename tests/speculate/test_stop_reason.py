"""A run says what ended it: which stop string, which stop token, or the model's own end."""

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder, Trace

PROMPT = "Once upon a time there was a hen"


@pytest.fixture(scope="module")
def plain(small_decoder: SpeculativeDecoder):
    return small_decoder.generate(PROMPT, SamplingParams(max_tokens=24, temperature=0, ignore_eos=True))


@pytest.mark.parametrize("k", [0, 1, 4])
def test_the_stop_string_or_token_that_ended_a_run_is_named(small_decoder, plain, k):
    def ended(**params):
        settings = SamplingParams(temperature=0, **{"max_tokens": 24, "ignore_eos": True, **params})
        trace = small_decoder.generate(PROMPT, settings, num_draft_tokens=k).trace
        return Trace.from_jsonl(trace.to_jsonl()).finished

    stop, token = plain.text[20:24], plain.token_ids[10]
    assert ended(stop=["never written", stop]).stop_reason == stop
    assert ended(stop_token_ids=[token]).stop_reason == token
    ends = small_decoder.admission.eos_token_ids
    own = {"logit_bias": {ends[0]: 100}, "stop_token_ids": list(ends)}
    assert ended(**own).stop_reason == ends[0]
    assert (ended(**own, ignore_eos=False).finish_reason, ended(**own, ignore_eos=False).stop_reason) == ("stop", None)
    for other in (ended(), ended(stop=["never written"]), ended(max_tokens=3)):
        assert (other.finish_reason, other.stop_reason) == ("length", None)
