"""Drafts that are drawn, or the draft model's most probable tokens: both lossless, with both exact acceptance rates stated."""

import pytest

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder, VerifyStrategy
from naive_speculate.testing.toys import pair_with_head
from tests.speculate.toys import ToyModel, check_lossless, toys

LOSSLESS = [VerifyStrategy.SPECULATIVE_SAMPLING, VerifyStrategy.BLOCK_VERIFICATION]
PARAMS = {
    "plain": SamplingParams(max_tokens=3),
    "warped": SamplingParams(max_tokens=3, temperature=1.6, top_k=2, presence_penalty=0.7, ignore_eos=True),
}


@pytest.mark.parametrize(
    ("drafter", "strategy", "name"),  # every two of them together
    [
        ("model", LOSSLESS[0], "plain"),
        ("model", LOSSLESS[1], "warped"),
        ("head", LOSSLESS[0], "warped"),
        ("head", LOSSLESS[1], "plain"),
    ],
)
def test_argmax_drafts_leave_the_output_distribution_as_it_is(drafter, strategy, name):
    pair = pair_with_head(3, 3) if drafter == "head" else toys()
    check_lossless(pair, PARAMS[name], draft_sampling="argmax", drafter=drafter, verify_strategy=strategy)


def drafts(decoder, draft_sampling, **options):
    params = SamplingParams(max_tokens=10, temperature=0.8, seed=4, ignore_eos=True)
    trace = decoder.generate("Once upon a time", params, draft_sampling=draft_sampling, **options).trace
    return [event for event in trace if event.kind == EventKind.PROPOSED]


@pytest.mark.parametrize("drafter", ["model", "head"])
def test_both_acceptance_rates_are_those_of_the_two_distributions(small_decoder, bundled_decoder, drafter):
    decoder = small_decoder if drafter == "model" else bundled_decoder
    for window in ({"num_draft_tokens": "auto"}, {"num_draft_tokens": 4}):
        found = drafts(decoder, "argmax", drafter=drafter, **window)
        assert all(event.draft_prob == 1 and event.draft_top[0].token_id == event.token_id for event in found)
        assert all(event.argmax_accept == event.target_prob == event.expected_accept for event in found)
    found = drafts(decoder, "sampled", drafter=drafter, num_draft_tokens=4)
    assert [event.sampled_accept for event in found] == pytest.approx([event.expected_accept for event in found], abs=1e-6)
    best = [event for event in found if event.token_id == event.draft_top[0].token_id]
    assert best
    assert [event.argmax_accept for event in best] == pytest.approx([event.target_prob for event in best], abs=1e-6)


def test_the_figures_say_which_would_have_been_better():
    """Where draft and target are one, drawing is always accepted; the argmax of a flat draft seldom is."""
    target = ToyModel(5, 3)
    for draft_sampling in ("sampled", "argmax"):
        decoder = SpeculativeDecoder(ModelPair(target, target))
        params = SamplingParams(max_tokens=36, temperature=2.0, seed=1, ignore_eos=True)
        trace = decoder.generate([1, 2], params, num_draft_tokens=2, draft_sampling=draft_sampling).trace
        rates, metrics = trace.draft_sampling_rates, trace.metrics
        assert metrics.sampled_acceptance_per_position == pytest.approx([1, 1])
        assert all(0.2 < rate < 0.9 for rate in metrics.argmax_acceptance_per_position)
        assert (rates.sampled, rates.better) == (pytest.approx(1), "sampled")
        assert str(rates).endswith("sampled drafts are better here")


def test_where_nothing_is_drawn_there_is_no_choice(tiny_decoder):
    greedy = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    found = [tiny_decoder.generate([1, 2, 3], greedy, draft_sampling=way) for way in ("sampled", "argmax")]
    assert found[0].token_ids == found[1].token_ids
    assert found[1].trace.draft_sampling_rates is None
    copied = tiny_decoder.generate(
        [4, 5, 4, 5, 4, 5, 4], SamplingParams(max_tokens=12, seed=1), drafter="suffix", draft_sampling="argmax"
    )
    assert copied.trace.metrics.argmax_acceptance_per_position == []
