"""The random source: repeatable, independent, right in frequency, never an impossible token."""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from naive_speculate.sampling import SeededRandom
from naive_speculate.sampling.random_source import fresh_seed
from naive_speculate.tools.goodness import g_test, holm
from tests.pretend_device import pretend_device

FALSE_ALARMS = 1e-3  # with other seeds, a test fails with this probability


def softmax_of(count: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.softmax(
        scale * torch.randn(count, generator=torch.Generator().manual_seed(seed)), -1
    )


@pytest.fixture(params=["cpu", "cuda"])
def device(request) -> Iterator[str]:
    """The CPU's draws come from NumPy, those of other devices from torch's generators."""
    with nullcontext() if request.param == "cpu" else pretend_device():
        yield request.param


def test_draws_are_independent_of_each_other_and_of_other_sequences_and_seeds(device):
    count, probs = 1500 if device == "cpu" else 400, softmax_of(5, 1)
    draws = {
        (index, number): [] for index in (0, 1) for number in range(4)
    }  # of two uniform ones and two tokens, in the order of the seeds
    for seed, index in product(range(count), (0, 1)):
        source = SeededRandom(seed, index, device)
        for number in (2, 0, 1, 3):
            token = number > 1 and int(source.categorical(probs.to(device)))
            draws[index, number].append(token if number > 1 else int(source.uniform() * 4))
    shares, found = [np.full(4, 0.25)] * 2 + [probs.numpy()] * 2, []
    for a, b in product(range(4), repeat=2):
        for other, shift in ((0, 0), (0, 1), (1, 0), (1, 1)):
            if (other, shift) == (0, 0) and a >= b:
                continue
            counts = np.zeros((len(shares[a]), len(shares[b])))
            np.add.at(counts, (np.roll(draws[0, a], -shift), draws[other, b]), 1)
            found.append(g_test(counts.ravel(), np.outer(shares[a], shares[b]).ravel()))
    assert min(holm([fit.p_value for fit in found])) > FALSE_ALARMS, list(map(str, found))


def test_uniform_draws_have_every_digit_of_a_double_and_stay_below_one():
    source = SeededRandom(7)
    draws = np.array([source.uniform() for _ in range(20_000)])
    assert (draws >= 0).all()
    assert (draws < 1).all()
    for digits in (draws, draws * 2**20 % 1, draws * 2**40 % 1):
        assert kstest(digits, "uniform").pvalue > FALSE_ALARMS


def test_a_state_repeats_what_was_drawn_after_it(device):
    probs = softmax_of(50, 0).to(device)
    sources = [SeededRandom(7, 1, device) for _ in range(2)]

    def draws(source: SeededRandom) -> list:
        return [(source.uniform(), int(source.categorical(probs))) for _ in range(5)]

    first, state = draws(sources[0]), sources[0].state()
    assert draws(sources[1]) == first
    after = draws(sources[0])
    sources[0].restore(state)
    assert draws(sources[0]) == after != first


@pytest.mark.parametrize(
    ("probs", "seed"),
    [
        (torch.tensor([0.5, 0.2, 0.0, 0.25, 0.05]), 3),
        (torch.tensor([0.0, 1.0]), 4),
        (softmax_of(1003, 4, 2), 11),
    ],
    ids=["one impossible", "one possible", "blocks of neighbours, the last one shorter"],
)
def test_categorical_draws_follow_the_probabilities_and_never_hit_zero(device, probs, seed):
    source, on_device = SeededRandom(seed, 0, device), probs.to(device)
    count = 6_000 if device == "cpu" else 1_000
    drawn = torch.tensor([int(source.categorical(on_device)) for _ in range(count)])
    assert g_test(torch.bincount(drawn, minlength=len(probs)), probs).p_value > FALSE_ALARMS


def test_rounding_noise_does_not_flip_a_draw():
    probs = softmax_of(4000, 1)
    noisy = probs * (1 + 1e-6 * torch.randn(4000, generator=torch.Generator().manual_seed(2)))
    one, two = SeededRandom(5), SeededRandom(5)
    assert [one.categorical(probs).item() for _ in range(300)] == [
        two.categorical(noisy).item() for _ in range(300)
    ]


def test_fresh_seeds_differ_over_their_whole_range():
    seeds = [fresh_seed() for _ in range(200)]  # each of these may fail once in 1e20 runs
    assert len(set(seeds)) > 195
    assert max(seeds) > 2**31
    assert max(seeds) < 2**32
