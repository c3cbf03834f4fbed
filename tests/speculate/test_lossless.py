"""The output distribution of speculative decoding is the target's: by exact enumeration of the real decoder."""

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, VerifyStrategy
from naive_speculate.costs import CostTable
from tests.speculate.toys import ToyModel, enumerate_outputs, exact_outputs, largest_difference

LOSSLESS = [VerifyStrategy.SPECULATIVE_SAMPLING, VerifyStrategy.BLOCK_VERIFICATION]
PROMPT = [1, 2]


def target_probs(model: ToyModel, temperature: float = 1.0):
    return lambda tokens: torch.softmax(model.logits((*PROMPT, *tokens)) / temperature, -1)


@pytest.mark.parametrize("strategy", LOSSLESS)
@pytest.mark.parametrize(("vocab_size", "k", "max_tokens"), [(3, 1, 4), (3, 2, 4), (3, 3, 4), (4, 2, 3), (5, 1, 2)])
def test_sampled_outputs_have_exactly_the_targets_distribution(strategy, vocab_size, k, max_tokens):
    target, draft = ToyModel(vocab_size, 1), ToyModel(vocab_size, 2)
    found = enumerate_outputs(
        ModelPair(target, draft),
        PROMPT,
        SamplingParams(max_tokens=max_tokens),
        num_draft_tokens=k,
        verify_strategy=strategy,
        detail="probs",
    )
    assert sum(found.values()) == pytest.approx(1, abs=1e-9)
    assert largest_difference(found, exact_outputs(target_probs(target), max_tokens)) < 1e-6


@pytest.mark.parametrize("strategy", LOSSLESS)
@pytest.mark.parametrize("seed", range(2))
def test_any_pair_of_toys_is_lossless(strategy, seed):
    target, draft = ToyModel(3, 10 + seed, temper=2.0), ToyModel(3, 20 + seed, temper=3.0)
    found = enumerate_outputs(
        ModelPair(target, draft),
        PROMPT,
        SamplingParams(max_tokens=3),
        num_draft_tokens=2,
        verify_strategy=strategy,
        detail="probs",
    )
    assert largest_difference(found, exact_outputs(target_probs(target), 3)) < 1e-6


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_a_draft_equal_to_the_target_is_always_kept(strategy):
    target = ToyModel(3, 5)
    found = enumerate_outputs(
        ModelPair(target, target),
        PROMPT,
        SamplingParams(max_tokens=4),
        num_draft_tokens=3,
        verify_strategy=strategy,
        detail="probs",
    )
    assert largest_difference(found, exact_outputs(target_probs(target), 4)) < 1e-6


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_prompt_lookup_is_lossless(strategy):
    target = ToyModel(3, 6)
    found = enumerate_outputs(
        ModelPair(target),
        PROMPT,
        SamplingParams(max_tokens=4),
        num_draft_tokens=2,
        verify_strategy=strategy,
        drafter="prompt_lookup",
        detail="probs",
    )
    assert largest_difference(found, exact_outputs(target_probs(target), 4)) < 1e-6


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_an_adaptive_window_is_lossless(strategy):
    target, draft = ToyModel(3, 7), ToyModel(3, 8, zeros=False)
    found = enumerate_outputs(
        ModelPair(target, draft, measured_costs=CostTable(0.05, (1.0, 1.05))),
        PROMPT,
        SamplingParams(max_tokens=3),
        num_draft_tokens="auto",
        verify_strategy=strategy,
        detail="probs",
    )
    assert largest_difference(found, exact_outputs(target_probs(target), 3)) < 1e-6


def test_plain_decoding_is_the_same_step_without_drafts():
    target = ToyModel(4, 9)
    found = enumerate_outputs(ModelPair(target), PROMPT, SamplingParams(max_tokens=3), num_draft_tokens=0, detail="probs")
    assert largest_difference(found, exact_outputs(target_probs(target), 3)) < 1e-6


def ban_repeats(output_token_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """A custom processor that depends on history."""
    logits = logits.clone()
    if len(output_token_ids) >= 1:
        logits[output_token_ids[-1]] -= 1.5
    return logits


ALONE = {
    "temperature": {"temperature": 0.6},
    "top_p": {"top_p": 0.7},
    "top_k": {"top_k": 2},
    "min_p": {"min_p": 0.3},
    "repetition": {"repetition_penalty": 1.7},
    "frequency": {"frequency_penalty": 1.1},
    "presence": {"presence_penalty": -0.9},
    "min_tokens": {"min_tokens": 2},
    "ignore_eos": {"ignore_eos": True},
    "stop_token_ids": {"stop_token_ids": [2]},
    "logit_bias": {"logit_bias": {1: 1.5, 2: -0.7}},
    "processor": {"logits_processors": [ban_repeats]},
}
SEVERAL = {
    "all warpers": {"temperature": 1.3, "top_p": 0.9, "top_k": 3, "min_p": 0.05},
    "penalties": {"repetition_penalty": 0.6, "frequency_penalty": 0.4, "presence_penalty": 0.8, "temperature": 0.8},
    "allowed": {"allowed_token_ids": [0, 1, 3]},
    "many": {"min_tokens": 1, "frequency_penalty": 0.5, "top_k": 3, "temperature": 0.9, "logits_processors": [ban_repeats]},
}


@pytest.mark.parametrize(("name", "vocab_size"), [*((name, 3) for name in ALONE), *((name, 4) for name in SEVERAL)])
def test_every_sampling_parameter_keeps_speculation_lossless(name, vocab_size):
    """Against plain decoding by the same decoder, whose distributions the pipeline's own tests check."""
    target, draft = ToyModel(vocab_size, 3, zeros=False), ToyModel(vocab_size, 4, zeros=False)
    params = SamplingParams(max_tokens=3, **(ALONE | SEVERAL)[name])
    plain = enumerate_outputs(ModelPair(target), PROMPT, params, num_draft_tokens=0, detail="probs")
    assert sum(plain.values()) == pytest.approx(1, abs=1e-6)
    for strategy in LOSSLESS:
        found = enumerate_outputs(
            ModelPair(target, draft), PROMPT, params, num_draft_tokens=2, verify_strategy=strategy, detail="probs"
        )
        assert largest_difference(found, plain) < 1e-6


def test_typical_acceptance_is_not_lossless():
    target, draft = ToyModel(4, 3, zeros=False), ToyModel(4, 4, zeros=False)
    found = enumerate_outputs(
        ModelPair(target, draft),
        PROMPT,
        SamplingParams(max_tokens=2),
        num_draft_tokens=2,
        verify_strategy="typical_acceptance",
        detail="probs",
    )
    assert sum(found.values()) == pytest.approx(1, abs=1e-6)
    assert largest_difference(found, exact_outputs(target_probs(target), 2)) > 0.01
