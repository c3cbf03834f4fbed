"""Pairs whose models know different numbers of tokens: the target's distribution stays whole."""

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import TransformersLanguageModel
from tests.speculate.toys import ToyModel, enumerate_outputs, exact_outputs, largest_difference
from tests.tiny import tiny_llama

PROMPT = [1, 4]


class Knows(ToyModel):
    """Refuses tokens that it does not know, as an embedding does."""

    def forward(self, query_token_ids, kv_cache):
        assert query_token_ids.max() < self.vocab_size
        return super().forward(query_token_ids, kv_cache)


@pytest.mark.parametrize("strategy", ["speculative_sampling", "block_verification"])
@pytest.mark.parametrize(("target_size", "draft_size"), [(4, 2), (3, 2), (3, 5)])
def test_the_target_s_distribution_stays_whole_whatever_the_draft_knows(target_size, draft_size, strategy):
    """Several tokens, one and none that the draft does not know, the prompt's last among them."""
    prompt = [1, target_size - 1]
    target, draft = Knows(target_size, 1, zeros=False), Knows(draft_size, 2, zeros=False)
    found = enumerate_outputs(
        ModelPair(target, draft),
        prompt,
        SamplingParams(max_tokens=3),
        num_draft_tokens=2,
        verify_strategy=strategy,
        detail="probs",
    )
    assert {token for tokens in found for token in tokens} == set(range(target_size))
    expected = exact_outputs(lambda tokens: torch.softmax(target.logits((*prompt, *tokens)), -1), 3)
    assert largest_difference(found, expected) < 1e-6


def test_a_draft_that_knows_none_of_the_allowed_tokens_is_lossless():
    pair = ModelPair(Knows(5, 1, zeros=False), Knows(3, 2, zeros=False))
    params = SamplingParams(max_tokens=3, allowed_token_ids=[3, 4])
    plain = enumerate_outputs(pair, PROMPT, params, num_draft_tokens=0, detail="probs")
    found = enumerate_outputs(pair, PROMPT, params, num_draft_tokens=2, detail="probs")
    assert {token for tokens in found for token in tokens} == {3, 4}
    assert largest_difference(found, plain) < 1e-6


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_batch_with_a_draft_of_fewer_tokens_gives_what_its_rows_give_alone(tiny_pair, temperature):
    """Real caches on both sides, prompts with tokens that the draft does not know, and a copied prefill."""
    draft = tiny_llama(1, seed=5)
    draft.resize_token_embeddings(60)
    decoder = SpeculativeDecoder(ModelPair(tiny_pair.target, TransformersLanguageModel(draft)))
    prompts = [[96, 70, 3], [5, 61], list(range(50, 97))]
    params = SamplingParams(max_tokens=24, seed=3, temperature=temperature)
    seen = set()
    for prompt, row in zip(prompts, decoder.generate(prompts, params), strict=True):
        assert row.token_ids == decoder.generate(prompt, params).token_ids
        assert row.metrics.num_draft_tokens > 0
        if temperature == 0:
            assert row.token_ids == decoder.generate(prompt, params, num_draft_tokens=0).token_ids
        seen |= set(row.token_ids)
    assert max(seen) >= 60
    several = decoder.generate(prompts[2], SamplingParams(max_tokens=8, seed=3, n=2)).outputs
    assert len(several) == 2


def test_only_padding_that_no_token_uses_is_cut(bundled_pair):
    size = len(bundled_pair.tokenizer)
    for target_size, draft_size, expected in (
        (size + 64, size + 16, size + 16),
        (size + 16, size + 64, size + 16),
        (size + 64, size - 100, size),
        (size, size, size),
    ):
        pair = ModelPair(ToyModel(target_size, 1), ToyModel(draft_size, 2), bundled_pair.tokenizer)
        assert pair.vocab_size == expected
    with pytest.raises(ValueError, match=f"tokenizer has token {size - 1}, but the target's logits end at {size - 3}"):
        ModelPair(ToyModel(size - 2, 1), None, bundled_pair.tokenizer).vocab_size  # noqa: B018
