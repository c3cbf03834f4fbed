"""The samplers' rules: exact on given distributions, right in frequency, strict where asked."""

import itertools
import math

import pytest
import torch

from naive_speculate.speculate.rules import best, count_leading, residual
from naive_speculate.speculate.samplers import RejectionSampler, TypicalAcceptanceSampler
from naive_speculate.speculate.theory import expected_accepted
from naive_speculate.speculate.utils import greedy_match, speculative_sampling
from naive_speculate.speculate.verify import BlockVerifier, GreedyVerifier


def random_probs(*shape: int, seed: int = 0, zeros: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(*shape, generator=generator, dtype=torch.float64)
    if zeros:
        logits[torch.rand(*shape, generator=generator) < 0.25] = -torch.inf
        logits[..., 0] = 0.0
    return torch.softmax(logits, -1)


def batch(batch_size: int = 3, k: int = 4, vocab_size: int = 7, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "target_with_bonus_probs": random_probs(batch_size, k + 1, vocab_size, seed=seed),
        "bonus_token_ids": torch.randint(vocab_size, (batch_size, 1), generator=generator),
        "draft_probs": random_probs(batch_size, k, vocab_size, seed=seed + 1),
        "draft_token_ids": torch.randint(vocab_size, (batch_size, k), generator=generator),
    }


def test_the_walkthroughs_example_comes_out_of_a_forward():
    """Distributions that force it: each kept draft is certain under both, the fourth is
    impossible under the target."""
    drafts, target_tokens = [16, 5, 129, 86, 939], [16, 5, 129, 2949, 939, 655]
    target = torch.nn.functional.one_hot(torch.tensor([target_tokens]), 3000).double()
    draft = torch.nn.functional.one_hot(torch.tensor([drafts]), 3000).double()
    for sampler in (
        RejectionSampler(strict_mode=True),
        TypicalAcceptanceSampler(0.09, 0.3, strict_mode=True),
    ):
        out = sampler(target, torch.tensor([[655]]), draft, torch.tensor([drafts]))
        assert out.tolist() == [[16, 5, 129, 2949, -1, -1]]


@pytest.mark.parametrize("sampler", [RejectionSampler(), TypicalAcceptanceSampler(0.09, 0.3)])
def test_the_output_is_kept_drafts_then_one_token_then_minus_one(sampler):
    given = batch(batch_size=50)
    out = sampler.forward(**given)
    assert out.shape == (50, 5)
    assert out.dtype == torch.int64
    for row, drafts, bonus in zip(
        out.tolist(),
        given["draft_token_ids"].tolist(),
        given["bonus_token_ids"].tolist(),
        strict=True,
    ):
        length = row.index(-1) if -1 in row else 5
        assert length >= 1
        assert row[length:] == [-1] * (5 - length)
        assert row[: length - 1] == drafts[: length - 1]
        if length == 5:
            assert row[4] == bonus[0]


def test_the_recovered_distribution_is_exact():
    target, draft = random_probs(2, 3, 6, seed=1), random_probs(2, 3, 6, seed=2)
    found = RejectionSampler()._get_recovered_probs(target, draft)
    left = torch.clamp(target - draft, min=0)
    torch.testing.assert_close(found, left / left.sum(-1, keepdim=True), atol=1e-15, rtol=0)
    disjoint = torch.tensor([0.5, 0.5, 0.0, 0.0]), torch.tensor([0.0, 0.0, 0.3, 0.7])
    assert torch.equal(residual(*disjoint), disjoint[0])
    assert torch.equal(
        residual(target, target), target
    )  # nothing is left, and nothing is ever rejected


def test_forward_follows_the_targets_distribution():
    """One place, many rows: drafts come from the draft's distribution, outputs must come from
    the target's."""
    count, target, draft = 60_000, random_probs(1, 2, 5, seed=3), random_probs(1, 1, 5, seed=4)
    torch.manual_seed(0)
    drafts = torch.multinomial(draft[0], count, replacement=True).T
    bonus = torch.zeros(count, 1, dtype=torch.int64)
    out = RejectionSampler()(target.expand(count, 2, 5), bonus, draft.expand(count, 1, 5), drafts)
    expected = target[0, 0] * count
    seen = torch.bincount(out[:, 0], minlength=5)
    assert (
        (seen - expected) ** 2 / expected
    ).sum() < 23.5  # chi-square, 4 degrees of freedom: 1e-4


def test_a_row_with_its_own_generator_does_not_depend_on_its_batch():
    given = batch(batch_size=4, seed=5)
    sampler = RejectionSampler()
    whole = sampler.forward(**given, generators={2: torch.Generator().manual_seed(9)})
    alone = sampler.forward(
        **{name: t[2:3] for name, t in given.items()},
        generators={0: torch.Generator().manual_seed(9)},
    )
    assert whole[2].tolist() == alone[0].tolist()


def test_typical_acceptance_keeps_what_is_above_its_threshold():
    given = batch(batch_size=30, seed=6)
    target, drafts = given["target_with_bonus_probs"][:, :-1], given["draft_token_ids"]
    entropy = -(target * target.log()).sum(-1)
    expected = target.gather(-1, drafts[..., None])[..., 0] > torch.minimum(
        torch.tensor(0.2), 0.5 * torch.exp(-entropy)
    )
    sampler = TypicalAcceptanceSampler(posterior_threshold=0.2, posterior_alpha=0.5)
    assert torch.equal(sampler._evaluate_accepted_tokens(target, drafts), expected)
    assert 0 < expected.float().mean() < 1
    assert torch.equal(sampler._get_recovered_token_ids(target), target.argmax(-1))
    given["draft_probs"] = None
    assert sampler(**given).shape == (30, 5)
    with pytest.raises(ValueError, match="posterior_threshold must be from 0 to 1"):
        TypicalAcceptanceSampler(posterior_threshold=1.5)
    with pytest.raises(ValueError, match="posterior_alpha must be positive"):
        TypicalAcceptanceSampler(posterior_alpha=0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "target_with_bonus_probs",
            torch.rand(5, 7),
            "target_with_bonus_probs must have 3 dimensions",
        ),
        (
            "target_with_bonus_probs",
            torch.ones(3, 5, 7, dtype=torch.int64),
            "target_with_bonus_probs must be floating point",
        ),
        (
            "draft_token_ids",
            torch.zeros(3, 3, dtype=torch.int64),
            r"draft_token_ids must have shape \[3, 4\], got \[3, 3\]",
        ),
        (
            "draft_token_ids",
            torch.zeros(3, 4, dtype=torch.int32),
            "draft_token_ids must be int64, got torch.int32",
        ),
        (
            "draft_token_ids",
            torch.full((3, 4), 7),
            "draft_token_ids holds 7, outside the vocabulary of 7",
        ),
        ("draft_token_ids", torch.full((3, 4), -1), "draft_token_ids holds -1, outside"),
        (
            "bonus_token_ids",
            torch.zeros(2, 1, dtype=torch.int64),
            "bonus_token_ids must have shape",
        ),
        ("bonus_token_ids", torch.full((3, 1), 99), "bonus_token_ids holds 99, outside"),
        (
            "draft_probs",
            torch.rand(3, 4, 6, dtype=torch.float64),
            r"draft_probs must have shape \[3, 4, 7\]",
        ),
        (
            "draft_probs",
            torch.rand(3, 4, 7, dtype=torch.float32),
            "draft_probs must be torch.float64",
        ),
        (
            "draft_token_ids",
            torch.zeros(3, 4, dtype=torch.int64, device="meta"),
            "draft_token_ids must be on cpu, got meta",
        ),
    ],
)
def test_strict_mode_names_what_is_wrong(name, value, message):
    for kind in (RejectionSampler, TypicalAcceptanceSampler):
        with pytest.raises(ValueError, match=message):
            kind(strict_mode=True)(**batch() | {name: value})


# Single sequences


def test_greedy_match_finds_the_first_difference():
    dists = random_probs(5, 7, seed=7)
    best = dists.argmax(-1)
    assert [t.item() for t in greedy_match(dists, best[:4])] == [4, best[4].item()]
    wrong = best[:4].clone()
    wrong[2] = (wrong[2] + 1) % 7
    rejected, token = greedy_match(dists, wrong)
    assert rejected.shape == token.shape == ()
    assert [rejected.item(), token.item()] == [2, best[2].item()]


def test_single_sequences_and_batches_agree():
    for seed in range(20):
        target, draft = (
            random_probs(4, 5, seed=seed),
            random_probs(3, 5, seed=seed + 100, zeros=True),
        )
        drafts = torch.multinomial(draft, 1, generator=torch.Generator().manual_seed(seed))[:, 0]
        lengths = torch.tensor([3])
        rejected, _ = greedy_match(target, drafts)
        assert (
            rejected
            == GreedyVerifier()
            .judge(target[None], None, drafts[None], None, lengths)
            .num_accepted[0]
        )
        torch.manual_seed(seed)
        uniforms = torch.rand(1, 3, dtype=torch.float64)
        torch.manual_seed(seed)
        rejected, token = speculative_sampling(target, draft, drafts)
        verdict = RejectionSampler().judge(
            target[None], draft[None], drafts[None], uniforms, lengths
        )
        assert rejected == verdict.num_accepted[0]
        assert verdict.next_probs[0, token] > 0
        torch.manual_seed(seed)
        accepted = RejectionSampler()._get_accepted(target[None, :3], draft[None], drafts[None])
        assert count_leading(accepted)[0] == rejected


def test_speculative_sampling_refuses_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"target_dists must have shape \[4, vocab_size\]"):
        greedy_match(torch.rand(3, 5), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"proposal_dists must have shape \[3, 5\], got \[2, 5\]"):
        speculative_sampling(torch.rand(4, 5), torch.rand(2, 5), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"candidate_tokens must have shape \[num_draft_tokens\]"):
        greedy_match(torch.rand(2, 5), torch.zeros(1, 1, dtype=torch.int64))
    for outside in (-1, 5):
        with pytest.raises(
            ValueError, match=f"candidate_tokens holds {outside}, outside the vocabulary of 5"
        ):
            speculative_sampling(torch.rand(3, 5), torch.rand(2, 5), torch.tensor([0, outside]))


# Block verification


def accepted_with_each_number(verifier, p, q, drafts) -> list[float]:
    """Over all draws: the probability that a window's first 0, 1, 2 … draft tokens are accepted
    and no more. Each position's draw is once just below its acceptance probability, and once
    that itself."""
    k = len(drafts)
    ids, lengths = torch.tensor([drafts]), torch.tensor([k])
    h = verifier.judge(
        p[None], q[None], ids, torch.zeros(1, k, dtype=torch.float64), lengths
    ).accept_probs[0]
    below = torch.nextafter(h, torch.tensor(-1.0, dtype=h.dtype)).clamp_min(0)
    found = [0.0] * (k + 1)
    for passes in itertools.product([True, False], repeat=k):
        passing = torch.tensor(passes)
        probability = torch.where(passing, h, 1 - h).prod().item()
        if probability:
            uniforms = torch.where(passing, below, h)
            found[
                verifier.judge(p[None], q[None], ids, uniforms[None], lengths).num_accepted.item()
            ] += probability
    return found


@pytest.mark.parametrize(("vocab_size", "k"), [(2, 1), (2, 3), (3, 2)])
@pytest.mark.parametrize("zeros", [False, True])
def test_the_expected_number_of_accepted_drafts_is_that_of_all_draws_and_all_later_drafts(
    vocab_size, k, zeros
):
    histories = [h for n in range(k + 1) for h in itertools.product(range(vocab_size), repeat=n)]
    target = {h: random_probs(vocab_size, seed=i, zeros=zeros) for i, h in enumerate(histories)}
    draft = {
        h: random_probs(vocab_size, seed=500 + i, zeros=zeros) for i, h in enumerate(histories)
    }
    windows = [
        h for h in histories if len(h) == k and all(draft[h[:i]][x] > 0 for i, x in enumerate(h))
    ]
    probability = {h: math.prod(draft[h[:i]][x].item() for i, x in enumerate(h)) for h in windows}
    means = {}
    for verifier, block in ((RejectionSampler(), False), (BlockVerifier(), True)):
        numbers = {}
        for h in windows:
            p, q = (
                torch.stack([table[h[:i]] for i in range(n)])
                for table, n in ((target, k + 1), (draft, k))
            )
            numbers[h] = accepted_with_each_number(verifier, p, q, h)
        for h in windows:
            expected = 0.0
            for i in range(1, k + 1):  # given the first i draft tokens
                alike = [other for other in windows if other[:i] == h[:i]]
                reached = sum(probability[other] * sum(numbers[other][i:]) for other in alike)
                expected += reached / sum(map(probability.get, alike))
            ratios = [(target[h[:i]][x] / draft[h[:i]][x]).item() for i, x in enumerate(h)]
            assert expected_accepted(ratios, block=block) == pytest.approx(expected)
            assert expected_accepted(ratios, block=True) >= expected_accepted(ratios) - 1e-12
            if not block:  # then nothing after a position matters to it
                assert expected == pytest.approx(
                    sum(n * share for n, share in enumerate(numbers[h]))
                )
        means[block] = sum(
            probability[h] * n * share for h in windows for n, share in enumerate(numbers[h])
        )
    assert means[True] >= means[False] - 1e-12  # block verification never accepts fewer on average
    if k == 1:
        assert means[True] == pytest.approx(means[False])
    if (vocab_size, k, zeros) == (3, 2, False):
        assert means[True] > means[False] + 0.005


@pytest.mark.parametrize(
    "verifier", [RejectionSampler(), BlockVerifier(), TypicalAcceptanceSampler()], ids=type
)
def test_a_target_that_is_not_a_number_accepts_nothing(verifier):
    target, draft = random_probs(8, 4, 5), random_probs(8, 3, 5, seed=1)
    target[::2] = torch.nan
    verdict = verifier.judge(
        target, draft, torch.zeros(8, 3, dtype=torch.int64), torch.zeros(8, 3), torch.full((8,), 3)
    )
    assert not verdict.num_accepted[::2].any()
    assert verdict.num_accepted[1::2].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_greedy_matching_takes_scores_of_every_type(dtype):
    scores = torch.tensor([[[0.0, 1.0, 0.5], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]], dtype=dtype)
    verdict = GreedyVerifier().judge(scores, None, torch.tensor([[1, 1]]), None, torch.tensor([2]))
    assert (verdict.num_accepted.tolist(), verdict.next_token_ids.tolist()) == ([1], [0])
    assert (verdict.accept_probs.tolist(), verdict.accept_probs.dtype) == ([[1.0, 0.0]], dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_best_token_is_the_first_of_equals_and_that_of_torch(dtype):
    scores = (
        torch.randint(0, 4, (3, 5, 1000), generator=torch.Generator().manual_seed(0))
        .to(dtype)
        .requires_grad_()
    )
    found = best(scores)
    assert found.dtype == torch.int64
    assert torch.equal(found, (scores == scores.amax(-1, keepdim=True)).int().argmax(-1))
    with torch.no_grad():
        scores[0, 0, 7], scores[1, 1] = torch.nan, -torch.inf
    assert torch.equal(best(scores), scores.argmax(-1))
    assert best(scores[0, 1]).item() == scores[0, 1].argmax().item()
