"""What a few samples can say: Student's t, paired comparisons, and which choices may be the best."""

import math
from random import Random

import pytest

from ui.experiments.spread import lies_above, may_be_best, mean_of, ratio_of


def test_an_interval_is_students_and_fewer_than_five_values_have_none():
    mean, _, high = mean_of([0.0, 1.0, 2.0, 3.0, 4.0])
    assert (mean, high - mean) == pytest.approx((2.0, 2.776 * math.sqrt(2.5 / 5)), abs=1e-3)
    assert mean_of([0.0, 0.0, 0.0, 0.0, 9.0]).low == 0.0  # cut off, where the quantity cannot be negative
    assert mean_of([2.0, 2.1, 1.9, 2.0]) == (2.0, None, None)
    assert mean_of([0.9, 0.99, 1.0, 1.0, 1.0], most=1.0).high == 1.0


def test_a_ratio_is_a_geometric_mean_whose_interval_is_as_wide_either_way():
    mean, low, high = ratio_of([math.log(x) for x in (2, 2, 4, 8, 8)])
    assert mean == pytest.approx(4)
    assert low * high == pytest.approx(16)


def test_the_interval_of_few_samples_holds_the_truth_in_95_of_100_cases():
    random = Random(1)
    held = 0
    for _ in range(4000):
        _, low, high = ratio_of([random.gauss(0.3, 0.2) for _ in range(5)])
        held += low <= math.exp(0.3) <= high
    assert 0.94 < held / 4000 < 0.96


def test_choices_are_compared_sample_by_sample():
    # The samples differ far more among themselves than the choices do, but b is better on each of them by as much.
    a = {n: 10.0 * n for n in range(5)}
    b = {n: 10.0 * n + 1 + 0.01 * n for n in range(5)}
    assert may_be_best({"a": a, "b": b}) == ["b"]
    assert not lies_above([*b.values()], 20.0)
    # What differs by chance, has a single sample or none in common cannot be distinguished.
    assert may_be_best({"a": {0: 1.0, 1: 2.0, 2: 1.0}, "b": {0: 1.1, 1: 1.9, 2: 1.2}}) == ["a", "b"]
    assert may_be_best({"a": {0: 1.0}, "b": {0: 9.0}}) == ["a", "b"]
    assert may_be_best({"a": {0: 1.0, 1: 1.0}, "b": {2: 9.0, 3: 9.0}}) == ["a", "b"]
    assert may_be_best({"a": {0: 1.0}}) == ["a"]


def test_the_truly_best_choice_is_kept_in_at_least_95_of_100_cases_even_among_equals():
    random = Random(2)
    lost = 0
    for _ in range(600):
        scores = {k: {n: random.gauss(0.0, 1.0) for n in range(4)} for k in range(5)}  # all alike, so each is the best
        lost += 0 not in may_be_best(scores)
    assert lost / 600 < 0.07  # 5% and two standard deviations
