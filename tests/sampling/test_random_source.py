"""The random source: repeatable, right in frequency, never an impossible token."""

import torch

from naive_speculate.sampling import SeededRandom


def test_the_same_seed_gives_the_same_draws():
    probs = torch.softmax(torch.randn(50, generator=torch.Generator().manual_seed(0)), -1)
    one, two = SeededRandom(7), SeededRandom(7)
    assert [one.uniform() for _ in range(5)] == [two.uniform() for _ in range(5)]
    assert [one.categorical(probs).item() for _ in range(9)] == [two.categorical(probs).item() for _ in range(9)]


def test_seed_and_index_distinguish_streams():
    sources = [SeededRandom(seed, index) for seed in (1, 2) for index in (0, 1)]
    assert len({source.uniform() for source in sources}) == 4


def test_categorical_draws_follow_the_probabilities_and_never_hit_zero():
    probs, count = torch.tensor([0.5, 0.2, 0.0, 0.25, 0.05]), 5_000
    source = SeededRandom(3)
    seen = torch.bincount(torch.stack([source.categorical(probs) for _ in range(count)]), minlength=5)
    assert seen[2] == 0
    wanted = probs[probs > 0] * count
    assert ((seen[probs > 0] - wanted) ** 2 / wanted).sum() < 21.1  # chi-square, 3 degrees of freedom: 1e-4


def test_draws_from_many_tokens_follow_the_probabilities_of_each():
    """Blocks of neighbours, the last one shorter than the others."""
    probs, count = torch.softmax(2 * torch.randn(1003, generator=torch.Generator().manual_seed(4)), -1), 6_000
    source = SeededRandom(11)
    seen = torch.bincount(torch.stack([source.categorical(probs) for _ in range(count)]), minlength=1003)
    wanted = probs.double() * count
    often = wanted >= 10
    cells = torch.cat([seen[often], seen[~often].sum()[None]]), torch.cat([wanted[often], wanted[~often].sum()[None]])
    freedom = len(cells[0]) - 1
    statistic = ((cells[0] - cells[1]) ** 2 / cells[1]).sum().item()
    assert abs(statistic - freedom) < 4 * (2 * freedom) ** 0.5  # close to normal: 6e-5
    assert seen[-10:].sum() > 0


def test_rounding_noise_does_not_flip_a_draw():
    probs = torch.softmax(torch.randn(4000, generator=torch.Generator().manual_seed(1)), -1)
    noisy = probs * (1 + 1e-6 * torch.randn(4000, generator=torch.Generator().manual_seed(2)))
    one, two = SeededRandom(5), SeededRandom(5)
    assert [one.categorical(probs).item() for _ in range(300)] == [two.categorical(noisy).item() for _ in range(300)]


def test_uniform_draws_stay_below_one():
    source = SeededRandom(1)
    draws = [source.uniform() for _ in range(1000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert 0.45 < sum(draws) / 1000 < 0.55
