"""The random source: repeatable, right in frequency, never an impossible token."""

import pytest
import torch

from naive_speculate.sampling import SeededRandom


def softmax_of(count: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.softmax(
        scale * torch.randn(count, generator=torch.Generator().manual_seed(seed)), -1
    )


def test_the_same_seed_and_index_give_the_same_draws_and_uniform_ones_stay_below_one():
    one, two, *others = (SeededRandom(*given) for given in ((7,), (7,), (7, 1), (8,), (8, 1)))
    draws = [one.uniform() for _ in range(1000)]
    assert draws == [two.uniform() for _ in range(1000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert 0.45 < sum(draws) / 1000 < 0.55
    assert len({draws[0], *(source.uniform() for source in others)}) == 4
    probs = softmax_of(50, 0)
    assert [one.categorical(probs).item() for _ in range(9)] == [
        two.categorical(probs).item() for _ in range(9)
    ]


@pytest.mark.parametrize(
    ("probs", "seed"),
    [(torch.tensor([0.5, 0.2, 0.0, 0.25, 0.05]), 3), (softmax_of(1003, 4, 2), 11)],
    ids=["one of them impossible", "blocks of neighbours, the last one shorter than the others"],
)
def test_categorical_draws_follow_the_probabilities_and_never_hit_zero(probs, seed):
    source, count = SeededRandom(seed), 2_500
    seen = torch.bincount(
        torch.stack([source.categorical(probs) for _ in range(count)]), minlength=len(probs)
    )
    assert not seen[probs == 0].any()
    wanted = probs.double() * count
    often = wanted >= 10
    cells = torch.stack([torch.cat([of[often], of[~often].sum()[None]]) for of in (seen, wanted)])
    cells = cells[:, cells[1] > 0]
    freedom = cells.shape[1] - 1
    statistic = ((cells[0] - cells[1]) ** 2 / cells[1]).sum().item()
    assert statistic - freedom < 4 * (2 * freedom) ** 0.5 + 8  # chi-square: 1e-4 and less
    assert seen[-10:].sum() > 0


def test_rounding_noise_does_not_flip_a_draw():
    probs = softmax_of(4000, 1)
    noisy = probs * (1 + 1e-6 * torch.randn(4000, generator=torch.Generator().manual_seed(2)))
    one, two = SeededRandom(5), SeededRandom(5)
    assert [one.categorical(probs).item() for _ in range(300)] == [
        two.categorical(noisy).item() for _ in range(300)
    ]
