"""The output distribution of speculative decoding is the target's: by exact enumeration of the real decoder."""

from itertools import cycle

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, VerifyStrategy
from naive_speculate.costs import CostTable
from tests.speculate.toys import ToyModel, check_lossless, enumerate_outputs, exact_outputs, largest_difference, toys

LOSSLESS = [VerifyStrategy.SPECULATIVE_SAMPLING, VerifyStrategy.BLOCK_VERIFICATION]
PROMPT = [1, 2]
SAME = ToyModel(3, 5)
CASES = {  # the pair, the length of windows, and how many tokens
    "single drafts": (toys(), 1, 3),
    "windows of three": (toys(), 3, 4),
    "four tokens": (toys(4), 2, 3),
    "five tokens": (toys(5), 1, 2),
    "certain models": (ModelPair(ToyModel(3, 10, temper=2.0), ToyModel(3, 20, temper=3.0)), 2, 3),
    "a draft equal to the target": (ModelPair(SAME, SAME), 3, 4),
    "an adaptive window": (
        ModelPair(ToyModel(3, 7), ToyModel(3, 8, zeros=False), measured_costs=CostTable(0.05, (1.0, 1.05))),
        "auto",
        3,
    ),
}


def exactly(model: ToyModel, max_tokens: int):
    return exact_outputs(lambda tokens: torch.softmax(model.logits((*PROMPT, *tokens)), -1), max_tokens)


@pytest.mark.parametrize("strategy", LOSSLESS)
@pytest.mark.parametrize("case", CASES)
def test_sampled_outputs_have_exactly_the_targets_distribution(strategy, case):
    pair, k, max_tokens = CASES[case]
    options = {"num_draft_tokens": k, "verify_strategy": strategy, "detail": "probs"}
    found = enumerate_outputs(pair, PROMPT, SamplingParams(max_tokens=max_tokens), **options)
    assert largest_difference(found, exactly(pair.target, max_tokens)) < 1e-9


def test_plain_decoding_is_the_same_step_without_drafts():
    target = ToyModel(4, 9)
    found = enumerate_outputs(ModelPair(target), PROMPT, SamplingParams(max_tokens=3), num_draft_tokens=0, detail="probs")
    assert largest_difference(found, exactly(target, 3)) < 1e-9


def ban_repeats(output_token_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """A custom processor that depends on history."""
    logits = logits.clone()
    if len(output_token_ids) >= 1:
        logits[output_token_ids[-1]] -= 1.5
    return logits


PARAMS = {
    "temperature": {"temperature": 0.6},
    "top_p": {"top_p": 0.7},
    "top_k": {"top_k": 2},
    "min_p": {"min_p": 0.3},
    "repetition": {"repetition_penalty": 1.7},
    "frequency": {"frequency_penalty": 1.1},
    "presence": {"presence_penalty": -0.9},
    "min_tokens": {"min_tokens": 2},
    "ignore_eos": {"ignore_eos": True, "top_k": 2},  # few paths, since none ends early
    "stop_token_ids": {"stop_token_ids": [2]},
    "logit_bias": {"logit_bias": {1: 1.5, 2: -0.7}},
    "processor": {"logits_processors": [ban_repeats]},
    "all warpers": {"temperature": 1.3, "top_p": 0.9, "top_k": 2, "min_p": 0.05},
    "penalties": {"repetition_penalty": 0.6, "frequency_penalty": 0.4, "presence_penalty": 0.8, "temperature": 0.8},
    "allowed": {"allowed_token_ids": [0, 2]},
    "many": {"min_tokens": 1, "frequency_penalty": 0.5, "top_k": 2, "temperature": 0.9, "logits_processors": [ban_repeats]},
}


@pytest.mark.parametrize(("name", "strategy"), zip(PARAMS, cycle(LOSSLESS), strict=False))
def test_every_sampling_parameter_keeps_speculation_lossless(name, strategy):
    """Against plain decoding by the same decoder, whose distributions the pipeline's own tests check."""
    check_lossless(toys(3, 3, 4, zeros=False), SamplingParams(max_tokens=3, **PARAMS[name]), verify_strategy=strategy)


def test_typical_acceptance_is_not_lossless():
    pair, options = toys(4, 3, 4, zeros=False), {"num_draft_tokens": 2, "verify_strategy": "typical_acceptance"}
    found = enumerate_outputs(pair, PROMPT, SamplingParams(max_tokens=2), detail="probs", **options)
    assert sum(found.values()) == pytest.approx(1, abs=1e-6)
    assert largest_difference(found, exactly(pair.target, 2)) > 0.01
