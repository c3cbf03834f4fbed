"""What `generate` returns."""

import json

import pytest

from naive_speculate import SamplingParams


@pytest.mark.parametrize("best_of", [3, 4])
def test_a_result_of_several_sequences_can_be_written_as_json(tiny_decoder, best_of):
    params = SamplingParams(n=3, best_of=best_of, max_tokens=4, seed=2, logprobs=1)
    result = tiny_decoder.generate([3, 4], params)
    told = json.loads(json.dumps(result.to_dict()))
    assert [output["token_ids"] for output in told["outputs"]] == [output.token_ids for output in result.outputs]
    assert told["outputs"][0] == told | {"outputs": []}
    assert told["outputs"][1] == json.loads(json.dumps(result.outputs[1].to_dict()))


def test_a_result_of_one_sequence_lists_no_others(tiny_decoder):
    assert tiny_decoder.generate([3, 4], SamplingParams(max_tokens=4, seed=2)).to_dict()["outputs"] == []
