"""`prove_lossless(rejection=f)` finds the faults of bare rejection samplers, of other engines
and our own, and no others."""

import numpy as np
import pytest
import torch
from transformers.generation.utils import _speculative_sampling

from naive_speculate.speculate.utils import speculative_sampling
from naive_speculate.testing import prove_lossless
from naive_speculate.tools.goodness import g_test, holm, pooled, samples_needed, smallest_bias
from naive_speculate.tools.proofs.rejection import prove_rejection, steps


def ours(target, proposal, candidates):
    """With torch's global generator, so that it is sampled."""
    return speculative_sampling(target, proposal, candidates)


def of_transformers(target, proposal, candidates):
    """transformers' own function, for a batch of one; the last of its tokens is the resampled or
    the bonus token."""
    logits = proposal.log()[None], target.log()[None]
    tokens, num_matches = _speculative_sampling(
        candidates[None], logits[0], len(candidates), logits[1]
    )
    return num_matches, tokens[0, -1]


def own(target, proposal, candidates, draw, one_noise=False, normalised=True):
    """Right, with the inverse of the cumulative distribution; or the draw that rejects a
    candidate draws the next token too, or the residual is left as it is."""
    index, probs = len(candidates), target[-1]
    for place, token in enumerate(candidates):
        if (u := draw()) >= target[place, token] / proposal[place, token]:
            index, probs = place, (target[place] - proposal[place]).clamp_min(0)
            probs = probs / probs.sum() if normalised else probs
            break
    if index == len(candidates) or not one_noise:
        u = draw()
    return index, (probs.cumsum(0) <= u).sum().clamp(max=len(probs) - 1)


def inverse(target, proposal, candidates, random):
    """Enumeration has to find out at which draws its result changes."""
    return own(target, proposal, candidates, random.uniform)


def one_noise_passed_in(target, proposal, candidates, random):
    return own(target, proposal, candidates, random.uniform, one_noise=True)


def draws_elsewhere(target, proposal, candidates, random):
    return ours(target, proposal, candidates)


def one_noise(target, proposal, candidates):
    return own(target, proposal, candidates, lambda: torch.rand(()), one_noise=True)


def unnormalised(target, proposal, candidates):
    return own(target, proposal, candidates, lambda: torch.rand(()), normalised=False)


def warped_again(target, proposal, candidates):
    """q at another temperature than the candidates were drawn at."""
    return ours(target, torch.softmax(proposal.log() / 0.8, -1), candidates)


def bonus_of_another_row(target, proposal, candidates):
    """The bonus token comes from the row of the last candidate."""
    index, token = ours(target, proposal, candidates)
    return (
        (index, torch.multinomial(target[-2], 1)[0]) if index == len(candidates) else (index, token)
    )


def drops_doubtful(target, proposal, candidates):
    """Drops a candidate of a small proposal probability, with all that follows, and draws from
    the target there."""
    doubtful = [i for i, token in enumerate(candidates.tolist()) if proposal[i, token] < 0.25]
    kept = doubtful[0] if doubtful else len(candidates)
    return ours(target[: kept + 1], proposal[:kept], candidates[:kept])


def fails(target, proposal, candidates):
    raise RuntimeError("no verdict today")


@pytest.mark.parametrize("rejection", [speculative_sampling, inverse])
def test_a_sampler_whose_draws_can_be_passed_in_is_enumerated(rejection):
    proof = prove_lossless(rejection=rejection)
    assert proof.lossless, str(proof)
    assert proof.max_difference < proof.tolerance == 1e-6
    assert proof.num_paths > 40
    assert not proof.fits


@pytest.mark.parametrize("rejection", [ours, of_transformers])
def test_a_correct_sampler_passes_with_the_smallest_bias_that_would_have_been_found(rejection):
    proof = prove_lossless(rejection=rejection, smallest_bias=0.3)
    assert proof.lossless, str(proof)
    assert len(proof.fits) == len(list(steps()))
    assert proof.num_paths == sum(fit.num_samples for fit in proof.fits) > 300
    low, high = proof.fits[0].interval
    assert low <= proof.fits[0].bias <= high < 0.3
    assert (
        "a bias (total variation) of 0.3 or more is found with 90% power at 0.1% false alarms"
        in str(proof)
    )


@pytest.mark.parametrize(
    "rejection", [unnormalised, one_noise, warped_again, bonus_of_another_row, drops_doubtful]
)
def test_a_fault_is_found_with_its_size_and_where_it_shows(rejection):
    proof = prove_lossless(
        rejection=rejection, smallest_bias=0.08 if rejection is warped_again else 0.15
    )
    assert not proof.lossless
    shown, fit = proof.counterexample, proof.fits[-1]
    assert 0 <= fit.interval[0] <= fit.bias <= fit.interval[1]
    assert sum(shown.expected) == pytest.approx(1)
    assert shown.found != pytest.approx(shown.expected, abs=0.01)
    assert f"bias {fit.bias:.3f}" in str(proof)


REASONS = {
    one_noise_passed_in: "the target's distribution is",
    draws_elsewhere: "the same draws of random do not repeat the result",
    fails: "it fails: RuntimeError: no verdict today",
    (
        lambda target, proposal, candidates: (len(candidates) + 1, 0)
    ): "it returns rejected_idx 2 for 1 candidates",
    (lambda target, proposal, candidates: (0, 99)): "it returns the token 99, and there are 3",
    (
        lambda target, proposal, candidates: 0
    ): "it returns 0 instead of (rejected_idx, resampled_token)",
}


@pytest.mark.parametrize("rejection", REASONS)
def test_what_cannot_be_lossless_is_reported_in_words(rejection):
    proof = prove_lossless(rejection=rejection)
    assert not proof.lossless
    assert REASONS[rejection] in str(proof)
    assert "toys of 3 tokens" in str(proof)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rejection": 3}, "rejection must be a function, got 3"),
        ({"rejection": ours, "smallest_bias": 0}, "smallest_bias must be between 0 and 1, got 0"),
        ({"rejection": ours, "error_rate": 2}, "error_rate must be between 0 and 1, got 2"),
        (
            {"rejection": ours, "verifier": "greedy_match"},
            "rejection is proved alone, without verifier",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(given, message):
    with pytest.raises(ValueError, match=message):
        prove_lossless(**given)


def test_correct_samplers_raise_false_alarms_at_the_stated_rate():
    def right(target, proposal, candidates):
        return own(target, proposal, candidates, lambda: torch.rand(()))

    proofs = [prove_rejection(right, 0.25, error_rate=0.3, seed=3 * n) for n in range(200)]
    alarms = sum(not proof.lossless for proof in proofs)
    assert 0.2 < alarms / len(proofs) < 0.4  # three standard deviations


# The statistics


def test_two_hundred_correct_samplers_raise_as_few_alarms_as_stated():
    random = np.random.default_rng(5)
    targets = [random.dirichlet(np.ones(size)) for size in (3, 9, 27, 60) for _ in range(50)]
    p_values = [g_test(random.multinomial(1500, probs), probs).p_value for probs in targets]
    assert (
        sum(p < 0.05 for p in p_values) <= 17
    )  # more than that has probability 1% at a rate of 5%
    assert sum(p < 0.001 for p in p_values) <= 1
    assert min(holm(p_values)) > 0.001


def test_the_stated_number_of_samples_finds_the_smallest_bias_with_the_stated_power():
    probs, bias, rate = np.array([0.5, 0.3, 0.2]), 0.06, 0.001
    count = samples_needed(bias, 2, rate)
    assert smallest_bias(count, 2, rate) == pytest.approx(bias, rel=0.01)
    drawn = np.random.default_rng(2).multinomial(count, np.add(probs, [bias, -bias, 0]), size=400)
    fits = [g_test(counts, probs) for counts in drawn]
    assert np.mean([fit.p_value < rate for fit in fits]) > 0.87
    covered = [low <= bias <= high for low, high in (fit.interval for fit in fits[:40])]
    assert np.mean(covered) >= 0.95


def test_small_cells_are_pooled_and_impossible_tokens_are_proof():
    assert pooled(np.arange(4.0), np.array([2.0, 1.0, 50.0, 60.0])).tolist() == [3.0, 3.0]
    assert pooled(np.arange(4.0), np.array([2.0, 4.0, 50.0, 60.0])).tolist() == [2.0, 3.0, 1.0]
    assert g_test([50, 50, 1], [0.5, 0.5, 0.0]).p_value == 0
    assert g_test([100], [1.0]).p_value == 1
    assert holm([0.01, 0.5, 0.02]) == [0.03, 0.5, 0.04]


def test_the_seed_repeats_the_result():
    one, other = (str(prove_rejection(one_noise, 0.4, 0.001, seed=3)) for _ in range(2))
    assert one == other
