"""A draft head is lossless, to 1e-12: the decoder's output distribution with it, enumerated, is that of the target alone."""

import pytest

from naive_speculate import SamplingParams, VerifyStrategy
from naive_speculate.speculate.draft import HeadDrafter
from naive_speculate.testing import enumerate_outputs, prove_lossless
from naive_speculate.testing.toy_head import pair_with_head

PARAMS = {
    "plain": SamplingParams(max_tokens=3, ignore_eos=True),
    # One token more, so that there is a second window, and two tokens at a time, so that paths stay few.
    "warped": SamplingParams(max_tokens=4, temperature=1.6, top_k=2, top_p=0.95, presence_penalty=0.7, ignore_eos=True),
    "warped and short": SamplingParams(max_tokens=3, temperature=1.6, top_k=2, presence_penalty=0.7, ignore_eos=True),
}
CASES = [  # both heads and both prompts under both strategies; test_suffix_head has the other ways to sample under each
    (False, [1, 2, 1], "plain", VerifyStrategy.SPECULATIVE_SAMPLING),
    (False, [2], "warped", VerifyStrategy.BLOCK_VERIFICATION),
    (True, [2], "plain", VerifyStrategy.SPECULATIVE_SAMPLING),
    (True, [1, 2, 1], "warped and short", VerifyStrategy.BLOCK_VERIFICATION),
]


@pytest.mark.parametrize(("adds", "prompt", "params", "strategy"), CASES)
def test_the_output_distribution_is_the_target_s(adds, prompt, params, strategy):
    """The head has two of three tokens; after a prompt of one token, the first step has nothing to draft from."""
    pair = pair_with_head(3, 3, adds)
    proof = prove_lossless(
        drafter="head", verifier=strategy, pair=pair, prompt=prompt, params=PARAMS[params], num_draft_tokens=2
    )
    assert proof.lossless, str(proof)
    assert proof.max_difference < 1e-12
    assert proof.num_paths > 20


def test_a_head_can_be_proven_without_models_of_one_s_own():
    proof = prove_lossless(drafter=HeadDrafter, verifier="speculative_sampling", params=SamplingParams(max_tokens=2))
    assert proof.lossless, str(proof)


@pytest.mark.parametrize("strategy", VerifyStrategy)
def test_greedy_decoding_has_one_output(strategy):
    pair, params = pair_with_head(4, 5), SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    plain = enumerate_outputs(pair, [1, 2], params, num_draft_tokens=0)
    assert enumerate_outputs(pair, [1, 2], params, num_draft_tokens=3, drafter="head", verify_strategy=strategy) == plain
