"""`prove_lossless` says of what is lossless that it is, and of what is not, why."""

import math

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.samplers import TypicalAcceptanceSampler
from naive_speculate.speculate.verify import VERIFIERS
from naive_speculate.testing import ToyModel, prove_lossless
from tests.testing import parts

ONE_PAIR = {"pair": ModelPair(ToyModel(3, 3, zeros=False), ToyModel(3, 4, zeros=False))}
"""For what the other cases would show no more of."""
LOSSLESS = {
    "speculative_sampling": {"verifier": "speculative_sampling"},
    "block_verification": {"verifier": "block_verification", **ONE_PAIR},
    "model": {"drafter": "model", **ONE_PAIR},
    "prompt_lookup": {"drafter": "prompt_lookup", **ONE_PAIR},
    "an instance of a verifier of one's own": {"verifier": parts.OwnRejection(), **ONE_PAIR},
    "acceptance probabilities above 1": {"verifier": parts.UnclampedRejection, **ONE_PAIR},
    "block verification of one's own": {"verifier": parts.OwnBlock, **ONE_PAIR},
    "a drafter of one's own": {"drafter": parts.Constant, **ONE_PAIR},
    "an instance of a drafter": {"drafter": parts.Constant(ModelPair(ToyModel(3, 1)), 3, torch.device("cpu")), **ONE_PAIR},
    "a window that ends behind a doubtful token": {"drafter": parts.EndsAfterDoubtful, **ONE_PAIR},
    "what was drawn, stated as certain": {"drafter": parts.StatesCertainty, "params": SamplingParams(max_tokens=2), **ONE_PAIR},
    "both": {"verifier": parts.OwnBlock, "drafter": parts.Constant, **ONE_PAIR},
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_what_is_lossless_is_found_so(name):
    before = dict(VERIFIERS), dict(DRAFTERS)
    proof = prove_lossless(**LOSSLESS[name])
    assert proof.lossless, str(proof)
    assert proof.counterexample is None
    assert proof.max_difference <= proof.tolerance == 1e-12
    assert proof.num_paths > 20
    assert str(proof) == f"lossless, to 1e-12, over {proof.num_paths} paths"
    assert before == (VERIFIERS, DRAFTERS)


def test_draws_from_float32_are_compared_as_closely_as_they_can_be():
    proof = prove_lossless(drafter=parts.Coarse, **ONE_PAIR)
    assert proof.lossless
    assert proof.tolerance == 1e-6


DIFFERS = {
    "typical acceptance": {"verifier": "typical_acceptance"},
    "an instance of it": {"verifier": TypicalAcceptanceSampler(0.2, 0.5)},
    "the residual from the wrong side": {"verifier": parts.WrongSide},
    "no residual": {"verifier": parts.NoResidual},
    "a lenient rule": {"verifier": parts.Lenient},
    "block verification without the running product in its residual": {"verifier": parts.BlockResidualUnscaled},
    "block verification with h the running product": {"verifier": parts.BlockRunningProduct},
    "block verification without the running product in h": {"verifier": parts.BlockExcessUnscaled},
    "block verification with another denominator": {"verifier": parts.BlockDenominator},
    "a doubtful draft that is dropped": {"drafter": parts.DropsDoubtful},
    "another q than it draws from": {"drafter": parts.StatesAnother},
}


@pytest.mark.parametrize("name", DIFFERS)
def test_the_first_distribution_that_differs_is_shown_with_its_path(name):
    proof = prove_lossless(**DIFFERS[name])
    assert not proof.lossless
    assert proof.max_difference > 1e-3
    shown = proof.counterexample
    assert len(shown.expected) == len(shown.found) >= 2
    assert sum(shown.expected) == pytest.approx(1)
    assert sum(shown.found) == pytest.approx(1)
    assert shown.expected != pytest.approx(shown.found, abs=1e-9)
    assert shown.path
    assert shown.path[0].startswith("step 1: ")
    assert "the target's distribution is" in str(proof)
    assert str(proof).startswith("not lossless: ")
    assert shown.path[-1] in str(proof)


def test_the_distribution_that_differs_is_the_right_one():
    """A residual that is the target itself: at the first token, token x comes with min(p, q) + p · Σ max(0, q − p)."""
    target, draft = ToyModel(3, 1, zeros=False), ToyModel(3, 2, zeros=False)
    options = {"params": SamplingParams(max_tokens=2), "num_draft_tokens": 1, "drafter": "model"}
    shown = prove_lossless(verifier=parts.NoResidual, pair=ModelPair(target, draft), **options).counterexample
    p, q = (torch.softmax(model.logits((1, 2)), -1) for model in (target, draft))
    assert shown.token_ids == ()
    assert shown.expected == pytest.approx(p.tolist())
    assert shown.found == pytest.approx((torch.minimum(p, q) + p * (q - p).clamp_min(0).sum()).tolist())


def test_greedy_matching_is_named_as_what_it_is():
    proof = prove_lossless(verifier="greedy_match")
    assert not proof.lossless
    assert "at temperature 0 only" in str(proof)


REASONS = {
    "another number": ({"verifier": parts.OtherNumber}, r"states accept_probs .* accepts 1 of 1 draft tokens, but .* is 0"),
    "the other side": ({"verifier": parts.Backwards}, r"states accept_probs .* but num_accepted is"),
    "a draw that must not count": ({"verifier": parts.PeeksAhead}, "draws on the same side .* decide differently"),
    "block verification up to the first failure": ({"verifier": parts.BlockUpToFirst}, "comes a draw from .* comes a draw"),
    "NaN in the residual": ({"verifier": parts.Nan}, r"next_probs are no distribution: \[nan, nan, nan\]"),
    "NaN in accept_probs": ({"verifier": parts.NanAccept}, "accept_probs hold NaN"),
    "a residual that is not normalised": ({"verifier": parts.Unnormalised}, "next_probs are no distribution: .* sum to 0"),
    "more drafts than there are": (
        {"verifier": parts.KeepsTooMany},
        "verifier KeepsTooMany accepted 2 draft tokens in a window of 1",
    ),
    "another source": ({"drafter": parts.Elsewhere}, "do not repeat the run: something draws from another source"),
    "another seed": ({"drafter": parts.OwnSeed}, r"states q = .*, but drew nothing from the row's random source"),
    "uniform draws": ({"drafter": parts.UniformDraws}, r"the drafter calls the row's uniform\(\)"),
    "NaN in q": ({"drafter": parts.NanProbs}, "drafter 'NanProbs' proposed probs that are not probabilities"),
    "an exception": ({"drafter": parts.Broken}, "it fails: RuntimeError: no draft today"),
    "no drafts": ({"drafter": parts.Silent}, "nothing was drafted on any path, which proves nothing"),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_cannot_be_lossless_is_reported_in_words(name):
    given, reason = REASONS[name]
    proof = prove_lossless(**given)
    assert not proof.lossless
    with pytest.raises(AssertionError, match=f"not lossless: (?s:.)*{reason}"):
        raise AssertionError(str(proof))
    assert not proof.max_difference <= 1e-12
    assert "prompt [1, 2]" in proof.counterexample.case


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "verifier, drafter and rejection are all None"),
        ({"verifier": "mine"}, "verifier must be one of greedy_match, .* got 'mine'"),
        ({"drafter": "mine"}, "drafter must be one of model, .* got 'mine'"),
        ({"verifier": 3}, "verifier int has no judge"),
        ({"drafter": ToyModel}, "drafter ToyModel is not derived from .*BatchDrafter"),
        ({"verifier": type("Bare", (), {"judge": lambda self: None})}, "verifier Bare has no greedy, .*: derive it from"),
        ({"verifier": "speculative_sampling", "params": SamplingParams(temperature=0)}, "params must sample"),
        ({"drafter": parts.Constant(ModelPair(ToyModel(9, 1)), 9, torch.device("cpu"))}, "an instance for 9 tokens"),
        ({"drafter": "model", "pair": ModelPair(ToyModel(3, 1))}, "drafter is 'model', but this pair has no draft model"),
    ],
)
def test_bad_input_is_refused_in_one_line(given, message):
    with pytest.raises(ValueError, match=message) as caught:
        prove_lossless(**given)
    assert "\n" not in str(caught.value)


def test_parameters_and_models_may_be_given():
    pair = ModelPair(ToyModel(4, 3, zeros=False), ToyModel(4, 4, zeros=False))
    params = SamplingParams(max_tokens=2, top_p=0.7, frequency_penalty=0.5)
    proof = prove_lossless(verifier="block_verification", pair=pair, params=params, num_draft_tokens=1)
    assert proof.lossless
    assert not math.isnan(proof.max_difference)
    shown = prove_lossless(verifier="typical_acceptance", pair=pair, params=params, prompt=[3]).counterexample
    assert "top_p=0.7" in shown.case
    assert "prompt [3]" in shown.case
