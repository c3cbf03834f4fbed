"""Values that vLLM takes and that people paste: they hold in decoding, alone and in a batch."""

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import TransformersLanguageModel
from tests.speculate.rows import same_alone
from tests.speculate.toys import ToyModel
from tests.tiny import tiny_llama

PROMPTS = [[5, 9, 13], [2, 4], [7, 8, 9, 10, 11, 12]]


@pytest.fixture(scope="module")
def short_decoder() -> SpeculativeDecoder:
    """Of a pair with 16 positions."""
    return SpeculativeDecoder(ModelPair(*(TransformersLanguageModel(tiny_llama(n, seed=3, positions=16)) for n in (2, 1))))


@pytest.mark.parametrize("k", [0, "auto"])
def test_without_max_tokens_a_run_goes_on_to_the_models_last_position(short_decoder, k):
    params = SamplingParams(max_tokens=None, seed=1)
    for prompt, result in zip(PROMPTS, same_alone(short_decoder, PROMPTS, params, num_draft_tokens=k), strict=True):
        assert len(prompt) + len(result.token_ids) == 16
        assert result.finish_reason == "length"
        assert result.trace.started.settings["max_tokens"] is None


def test_without_max_tokens_and_without_a_last_position_a_request_is_refused():
    decoder = SpeculativeDecoder(ModelPair(ToyModel(5, seed=1), ToyModel(5, seed=2)))
    with pytest.raises(ValueError, match=r"max_tokens is None, but this model has no limit of its own \(max_positions\)"):
        decoder.generate([1, 2], SamplingParams(max_tokens=None))


@pytest.mark.parametrize("n", [1, 2])
def test_minus_one_logprobs_are_the_whole_distribution(tiny_decoder, n):
    params = SamplingParams(max_tokens=6, seed=2, n=n, logprobs=-1, prompt_logprobs=-1)
    results, source = tiny_decoder.generate(PROMPTS, params), tiny_llama(1, seed=0)
    for prompt, result in zip(PROMPTS, results, strict=True):
        whole = prompt + result.token_ids
        with torch.no_grad():
            raw = torch.log_softmax(source(torch.tensor([whole])).logits[0], -1)
        for place, entry in enumerate(result.prompt_logprobs[1:] + result.logprobs):
            assert sorted(entry) == list(range(97))
            assert [entry[token].logprob for token in range(97)] == pytest.approx(raw[place].tolist(), abs=1e-4)


def test_a_top_k_of_0_keeps_all(tiny_decoder):
    every, none = (tiny_decoder.generate(PROMPTS[0], SamplingParams(seed=3, top_k=top_k)) for top_k in (-1, 0))
    assert none.token_ids == every.token_ids
