"""Sample matching: the target's own draws, so that drafts change neither distribution nor text."""

from dataclasses import replace

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.verify import VERIFIERS
from naive_speculate.testing import prove_lossless
from tests.speculate.toys import ToyModel, check_lossless, toys

MATCH = {"verify_strategy": "sample_match"}
PARAMS = SamplingParams(max_tokens=40, temperature=0.9, seed=3, ignore_eos=True)


@pytest.fixture(scope="module")
def decoder():
    return SpeculativeDecoder(ModelPair(ToyModel(7, 1), ToyModel(7, 2, temper=1.5)))


def test_every_path_gives_the_target_s_distribution():
    assert prove_lossless(verifier="sample_match")
    check_lossless(toys(), SamplingParams(max_tokens=3), draft_sampling="argmax", **MATCH)


@pytest.mark.parametrize("draft_sampling", ["sampled", "argmax"])
@pytest.mark.parametrize("own", [{}, {"top_p": 0.8, "repetition_penalty": 1.3}])
def test_a_seeded_text_is_that_of_plain_decoding_with_the_same_seed(decoder, own, draft_sampling):
    accepted = 0
    for seed in range(3):
        params = replace(PARAMS, seed=seed, **own)
        plain = decoder.generate([0, 1], params, num_draft_tokens=0)
        for k in (1, 4):
            found = decoder.generate(
                [0, 1], params, num_draft_tokens=k, draft_sampling=draft_sampling, **MATCH
            )
            assert found.token_ids == plain.token_ids
            accepted += found.trace.metrics.num_accepted_draft_tokens
    assert accepted > 20


def test_rows_of_other_strategies_change_no_text(decoder):
    prompts = [[0, 1], [1, 2], [0, 3], [2, 2]]
    strategies = ["speculative_sampling", "sample_match", "greedy_match", "sample_match"]
    alone = [
        decoder.generate(prompt, PARAMS, num_draft_tokens=3, verify_strategy=name).token_ids
        for prompt, name in zip(prompts, strategies, strict=True)
    ]
    together = decode_together(decoder, prompts, strategies)
    assert together == alone


def decode_together(decoder, prompts, strategies):
    batch, rows = decoder.new_batch(), []
    for prompt, name in zip(prompts, strategies, strict=True):
        request = Request(prompt, PARAMS, num_draft_tokens=3, verify_strategy=name)
        batch.admit(own := decoder.prepare(request).rows)
        rows += own
    while going := [row for row in rows if not row.ended]:
        batch.step(going)
    return [row.output_token_ids for row in rows]


def test_over_all_pairs_of_tokens_a_drawn_draft_is_accepted_with_probability_sum_p_q():
    p, q = torch.randn(2, 5, dtype=torch.float64).softmax(-1)
    verifier, accepted = VERIFIERS["sample_match"], 0.0
    for draft in range(5):
        for drawn in range(5):
            verdict = verifier.judge(
                torch.stack([p, p])[None],
                q[None, None],
                torch.tensor([[draft]]),
                torch.tensor([[float(drawn)]], dtype=torch.float64),
                torch.tensor([1]),
            )
            accepted += float(q[draft] * p[drawn]) * int(verdict.num_accepted)
            if draft != drawn:
                assert verdict.next_token_ids.tolist() == [drawn]
                assert verdict.drawn == [False]
                assert verdict.next_probs[0, draft] == 0
    assert accepted == pytest.approx(float(p @ q))
