"""A request that names no drafter is drafted for by the pair's own, and its events say by which."""

import pytest

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.speculate.draft import DRAFTERS
from tests.speculate.rows import same_as_plain

PROMPT = [5, 6, 7, 8, 5, 6, 7]
PARAMS = SamplingParams(max_tokens=12, seed=3)


@pytest.fixture
def alone(tiny_pair) -> ModelPair:
    """A pair without a draft model."""
    return ModelPair(tiny_pair.target)


def used(result) -> str:
    return result.trace.started.settings["drafter"]


def test_a_pair_with_a_draft_model_drafts_with_it(tiny_decoder):
    found, named = (tiny_decoder.generate(PROMPT, PARAMS, **options) for options in ({}, {"drafter": "model"}))
    assert used(found) == used(named) == next(iter(tiny_decoder.stream(PROMPT, PARAMS))).settings["drafter"] == "model"
    assert found.token_ids == named.token_ids
    assert [event.draft_prob for event in found.trace] == [event.draft_prob for event in named.trace]


def test_a_pair_without_a_draft_model_drafts_without_one(alone):
    decoder, greedy = SpeculativeDecoder(alone), SamplingParams(max_tokens=12, temperature=0)
    assert used(same_as_plain(decoder, PROMPT, greedy)) == alone.default_drafter
    assert DRAFTERS[alone.default_drafter].obstacle(alone) is None
    same_as_plain(decoder, PROMPT, greedy, drafter="prompt_lookup")
    with pytest.raises(ValueError, match="no draft model; use 'prompt_lookup'"):
        decoder.generate(PROMPT, drafter="model")


@pytest.mark.parametrize("drafter", [None, "model", "prompt_lookup"])
def test_plain_decoding_needs_no_drafter(alone, drafter):
    found = SpeculativeDecoder(alone).generate(PROMPT, PARAMS, num_draft_tokens=0, drafter=drafter)
    assert len(found.token_ids) == 12
    assert found.metrics.num_draft_tokens == 0
