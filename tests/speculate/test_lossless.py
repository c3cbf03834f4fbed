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


COSTS = CostTable(0.05, (1.0, 1.05))
CASES = {
    "long windows": (ModelPair(ToyModel(3, 1), ToyModel(3, 2)), 4, {"num_draft_tokens": 3}),
    "four tokens": (ModelPair(ToyModel(4, 1), ToyModel(4, 2)), 3, {"num_draft_tokens": 2}),
    "another temper": (ModelPair(ToyModel(3, 11, temper=2.0), ToyModel(3, 21, temper=3.0)), 3, {"num_draft_tokens": 2}),
    "a draft equal to the target": (ModelPair(ToyModel(3, 5), ToyModel(3, 5)), 4, {"num_draft_tokens": 3}),
    "prompt lookup": (ModelPair(ToyModel(3, 6)), 4, {"num_draft_tokens": 2, "drafter": "prompt_lookup"}),
    "an adaptive window": (
        ModelPair(ToyModel(3, 7), ToyModel(3, 8, zeros=False), measured_costs=COSTS), 3, {"num_draft_tokens": "auto"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("strategy", LOSSLESS)
@pytest.mark.parametrize("name", CASES)
def test_sampled_outputs_have_exactly_the_targets_distribution(name, strategy):
    pair, max_tokens, options = CASES[name]
    params = SamplingParams(max_tokens=max_tokens)
    found = enumerate_outputs(pair, PROMPT, params, verify_strategy=strategy, detail="probs", **options)
    assert sum(found.values()) == pytest.approx(1, abs=1e-9)
    assert largest_difference(found, exact_outputs(target_probs(pair.target), max_tokens)) < 1e-6


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


PARAMETERS = {  # under which strategies; several at once where none hides another
    "temperature and top_k": (LOSSLESS, {"temperature": 1.3, "top_k": 2}),
    "top_p": (LOSSLESS[:1], {"top_p": 0.7}),
    "min_p": (LOSSLESS[1:], {"min_p": 0.3}),
    "penalties": (LOSSLESS, {"repetition_penalty": 0.6, "frequency_penalty": 0.4, "presence_penalty": 0.8}),
    "repetition": (LOSSLESS[:1], {"repetition_penalty": 1.7}),
    "ends": (LOSSLESS[1:], {"min_tokens": 2, "stop_token_ids": [2], "logit_bias": {1: 1.5, 2: -0.7}}),
    "ignore_eos": (LOSSLESS[:1], {"ignore_eos": True, "top_k": 2}),
    "allowed": (LOSSLESS[1:], {"allowed_token_ids": [0, 1, 3]}),
    "processor": (LOSSLESS[:1], {"logits_processors": [ban_repeats]}),
    "many": (LOSSLESS, {"min_tokens": 1, "frequency_penalty": 0.5, "top_k": 2, "logits_processors": [ban_repeats]}),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_sampling_parameter_keeps_speculation_lossless(name):
    """Against plain decoding by the same decoder, whose distributions the pipeline's own tests check."""
    vocab_size = 4 if name in ("allowed", "many") else 3
    strategies, options = PARAMETERS[name]
    target, draft = ToyModel(vocab_size, 3, zeros=False), ToyModel(vocab_size, 4, zeros=False)
    params = SamplingParams(max_tokens=3, **options)
    plain = enumerate_outputs(ModelPair(target), PROMPT, params, num_draft_tokens=0, detail="probs")
    assert sum(plain.values()) == pytest.approx(1, abs=1e-6)
    for strategy in strategies:
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
