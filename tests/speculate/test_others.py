"""Counterfactual acceptance under the other strategies: as the step reports it, and as they give
it themselves."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events.steps import steps
from naive_speculate.speculate.batch import Batch
from naive_speculate.speculate.samplers import TypicalAcceptanceSampler
from naive_speculate.speculate.verify import VERIFIERS
from tests.speculate.rows import admitted
from tests.speculate.toys import ToyModel

K = 4
PARAMS = SamplingParams(max_tokens=15, temperature=0.9, seed=3, ignore_eos=True)
SAMPLED = ("speculative_sampling", "block_verification")


@pytest.fixture(scope="module")
def decoder():
    return SpeculativeDecoder(ModelPair(ToyModel(7, 1), ToyModel(7, 2, temper=1.5)))


def one_step(decoder, history, strategy, random):
    """A step of a strategy's own after this history, with draws from there on; gives the row and
    its record."""
    batch = Batch(decoder.pair, decoder.admission.vocabulary)
    row = admitted(decoder, batch, history, PARAMS, num_draft_tokens=K, verify_strategy=strategy)
    row.random.restore(random)
    records = {}
    while not records:
        records = batch.step([row])
    return records[row]


@pytest.mark.parametrize("strategy", SAMPLED)
def test_each_strategy_keeps_what_it_was_said_to_keep_given_the_same_history_and_draws(
    decoder, strategy
):
    batch = Batch(decoder.pair, decoder.admission.vocabulary)
    row = admitted(decoder, batch, [0, 1], PARAMS, num_draft_tokens=K, verify_strategy=strategy)
    told, differing = 0, 0
    while not row.ended:
        history, random = list(row.token_ids), row.random.state()
        for record in batch.step([row]).values():
            outcome = record.outcome
            if not outcome.draft_token_ids:
                assert outcome.others is None
                continue
            others = dict(outcome.others)
            assert set(others) == set(VERIFIERS) - {strategy, "sample_match"}
            best = [tops[0].token_id for tops in outcome.values["target_top"]]
            matches = [
                token == likeliest
                for token, likeliest in zip(outcome.draft_token_ids, best, strict=False)
            ]
            assert others.pop("greedy_match") == [*matches, False].index(False)
            for name, kept in others.items():
                own = one_step(decoder, history, name, random).outcome
                if len(history) + K < row.max_length:
                    assert own.draft_token_ids == outcome.draft_token_ids
                    assert own.num_accepted == kept
                    told += 1
                    differing += kept != outcome.num_accepted
    assert told > 8
    assert differing


def test_typical_acceptance_is_as_far_from_the_target_as_all_its_verdicts_together():
    sampler, size = TypicalAcceptanceSampler(), 6
    probs = (
        torch.randn(8, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        .mul(2)
        .softmax(dim=-1)
    )
    for p, q in product(probs[:4], probs[4:]):
        output = torch.zeros(size, dtype=torch.float64)
        for token in range(size):
            target = torch.stack([p, p])[None]
            verdict = sampler.judge(
                target, q[None, None], torch.tensor([[token]]), None, torch.tensor([1])
            )
            output += q[token] * (
                torch.eye(size)[token] if verdict.num_accepted[0] else verdict.next_probs[0]
            )
        torch.testing.assert_close(sampler.output_probs(p, q), output)


def test_a_step_states_the_distance_at_each_of_its_drafts(decoder):
    result = decoder.generate(
        [0, 1], PARAMS, num_draft_tokens=K, verify_strategy="typical_acceptance"
    )
    sampler = TypicalAcceptanceSampler()
    drafted = [group for group in steps(result.trace) if group.drafts]
    for step, drafts in ((group.end, group.drafts) for group in drafted):
        assert len(step.typical_distances) == step.num_draft == len(drafts)
        assert set(step.others) == {
            "greedy_match"
        }  # this run makes no draws for those that need them
        for draft, distance in zip(drafts, step.typical_distances, strict=True):
            p, q = (_whole(top, 7) for top in (draft.target_top, draft.draft_top))
            assert distance == pytest.approx(
                float((sampler.output_probs(p, q) - p).abs().sum() / 2), abs=2e-6
            )
    assert len(drafted) > 5


def _whole(top, size):
    probs = torch.zeros(size, dtype=torch.float64)
    for entry in top:
        probs[entry.token_id] = entry.prob
    return probs


def test_nothing_is_reported_without_full_detail_drafts_or_sampling_and_tokens_are_the_same(
    decoder,
):
    greedy = replace(PARAMS, temperature=0.0)
    for params, options in (
        *(
            (PARAMS, {"verify_strategy": name, "detail": "probs"})
            for name in (*SAMPLED, "typical_acceptance")
        ),
        (greedy, {}),
        (PARAMS, {"verify_strategy": "greedy_match"}),
        (PARAMS, {"num_draft_tokens": 0}),
    ):
        options = {"num_draft_tokens": K} | options
        result = decoder.generate([0, 1], params, **options)
        assert all(
            event.others is None and event.typical_distances is None for event in result.trace
        )
        assert (
            result.token_ids
            == decoder.generate([0, 1], params, **options | {"detail": "full"}).token_ids
        )


def test_a_trace_keeps_it_and_refuses_nonsense(decoder):
    trace = decoder.generate([0, 1], PARAMS, num_draft_tokens=K).trace
    assert Trace.from_jsonl(trace.to_jsonl()).to_jsonl() == trace.to_jsonl()
    for field, value in (("others", '{"block_verification":-1}'), ("typical_distances", "[2]")):
        with pytest.raises(ValueError, match=f"{field}.*got (-1|2)"):
            Trace.from_jsonl(
                f'{{"kind":"started","schema_version":1}}\n{{"kind":"step","{field}":{value}}}'
            )
