"""The output distribution of speculative decoding is the target's: by exact enumeration of the
real decoder."""

import math
from itertools import cycle

import pytest
import torch

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer.costs import CostTable
from naive_speculate.speculate.draft.copying import NOTHING
from naive_speculate.speculate.draft.prompt_lookup import PromptLookupDrafter
from naive_speculate.speculate.request import Request
from tests.speculate.toys import (
    LOSSLESS,
    ToyModel,
    check_lossless,
    enumerate_outputs,
    exact_outputs,
    largest_difference,
    toys,
)

PROMPT = [1, 1]
SAME = ToyModel(3, 5)
CASES = {  # the pair, the length of windows, and how many tokens
    "single drafts": (toys(), 1, 3),
    "no drafts": (toys(4), 0, 3),
    "windows of three": (toys(2), 3, 4),
    "five tokens": (toys(5), 1, 2),
    "certain models": (ModelPair(ToyModel(3, 10, temper=2.0), ToyModel(3, 20, temper=3.0)), 2, 3),
    "a draft equal to the target": (ModelPair(SAME, SAME), 3, 4),
    "an adaptive window": (
        ModelPair(
            ToyModel(3, 7), ToyModel(3, 8, zeros=False), measured_costs=CostTable(0.05, (1.0, 1.05))
        ),
        "auto",
        3,
    ),
}


def exactly(model: ToyModel, max_tokens: int):
    return exact_outputs(
        lambda tokens: torch.softmax(model.logits((*PROMPT, *tokens)), -1), max_tokens
    )


@pytest.mark.parametrize(
    ("case", "strategy"),  # two cases under both, the others each under one
    [
        *zip(CASES, cycle(LOSSLESS), strict=False),
        ("single drafts", LOSSLESS[1]),
        ("windows of three", LOSSLESS[1]),
    ],
)
def test_sampled_outputs_have_exactly_the_targets_distribution(strategy, case):
    pair, k, max_tokens = CASES[case]
    options = {"num_draft_tokens": k, "verify_strategy": strategy, "detail": "probs"}
    found = enumerate_outputs(pair, PROMPT, SamplingParams(max_tokens=max_tokens), **options)
    assert largest_difference(found, exactly(pair.target, max_tokens)) < 1e-9


def ban_repeats(output_token_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """A custom processor that depends on history."""
    logits = logits.clone()
    if len(output_token_ids) >= 1:
        logits[output_token_ids[-1]] -= 1.5
    return logits


PARAMS = {
    "ends": {
        "ignore_eos": True,
        "stop_token_ids": [2],
        "top_k": 2,
    },  # few paths, though none ends at the usual end
    "warpers": {"temperature": 1.3, "top_p": 0.8, "min_p": 0.2},
    "penalties": {
        "repetition_penalty": 0.6,
        "frequency_penalty": 0.4,
        "presence_penalty": 0.8,
        "temperature": 0.8,
    },
    "biases": {"allowed_token_ids": [0, 2], "logit_bias": {0: 1.5, 2: -0.7}},
    "many": {
        "min_tokens": 2,
        "frequency_penalty": 0.5,
        "top_k": 2,
        "temperature": 0.9,
        "logits_processors": [ban_repeats],
    },
}


@pytest.mark.parametrize("strategy", LOSSLESS)
@pytest.mark.parametrize("name", PARAMS)
def test_every_sampling_parameter_keeps_speculation_lossless(name, strategy):
    """Against plain decoding by the same decoder, whose distributions the pipeline's own tests
    check."""
    check_lossless(
        toys(3, 3, 4, zeros=False),
        SamplingParams(max_tokens=3, **PARAMS[name]),
        verify_strategy=strategy,
    )


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_in_float32_draws_are_compared_as_exactly_as_in_float64(strategy):
    """Among the draws that enumeration tries is the largest number below 1, whose nearest
    float32 is 1."""
    target, draft = (ToyModel(3, seed, dtype=torch.float32) for seed in (5, 6))
    for drafter in (draft, target):
        check_lossless(
            ModelPair(target, drafter),
            SamplingParams(max_tokens=3),
            verify_strategy=strategy,
            within=1e-6,
        )


class AlmostOne:
    """Draws the largest number below 1 every time."""

    def uniform(self) -> float:
        return math.nextafter(1.0, 0.0)

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        return probs.argmax()


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_a_draft_that_is_certain_is_never_refused(strategy):
    target = ToyModel(7, 3, dtype=torch.float32)
    decoder = SpeculativeDecoder(ModelPair(target, target))
    request = Request(
        PROMPT, SamplingParams(max_tokens=30, ignore_eos=True), verify_strategy=strategy
    )
    run, batch, events = (
        decoder.prepare(request, random=lambda seed, index: AlmostOne()),
        decoder.new_batch(),
        [],
    )
    batch.admit(run.rows)
    while not run.over:
        events += run.events(batch.step(run.rows))
    judged = [(e.kind, e.accept_prob, e.uniform) for e in events if e.accept_prob is not None]
    assert len(judged) > 20
    assert set(judged) == {(EventKind.ACCEPTED, 1, math.nextafter(1.0, 0.0))}


def test_a_drafter_that_drafts_nothing_is_found_out(monkeypatch):
    monkeypatch.setattr(PromptLookupDrafter, "copy", lambda self, index, limit: NOTHING)
    with pytest.raises(AssertionError, match="nothing was drafted"):
        check_lossless(
            ModelPair(ToyModel(3, 6)), SamplingParams(max_tokens=4), drafter="prompt_lookup"
        )
