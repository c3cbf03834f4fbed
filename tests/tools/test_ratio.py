"""Ratios of speeds with their intervals, and which of several choices may be the best."""

import math
import subprocess
import sys
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive_speculate.tools.ratio import lies_above, logs_of, may_be_best, mean_of, ratio_of, typical


def test_an_interval_is_student_s_holds_the_truth_in_95_of_100_cases_and_needs_five_values():
    mean, _, high = mean_of([0.0, 1.0, 2.0, 3.0, 4.0])
    assert (mean, high - mean) == pytest.approx((2.0, 2.776 * math.sqrt(2.5 / 5)), abs=1e-3)
    assert (
        mean_of([0.0, 0.0, 0.0, 0.0, 9.0]).low == 0.0
    )  # cut off, where the quantity cannot be negative
    assert mean_of([2.0, 2.1, 1.9, 2.0]) == (2.0, None, None)
    assert mean_of([0.9, 0.99, 1.0, 1.0, 1.0], most=1.0).high == 1.0
    mean, low, high = ratio_of(
        [math.log(x) for x in (2, 2, 4, 8, 8)]
    )  # a geometric mean, its interval as wide either way
    assert (mean, low * high) == pytest.approx((4, 16))
    random = Random(1)
    found = [ratio_of([random.gauss(0.3, 0.2) for _ in range(5)]) for _ in range(4000)]
    assert 0.94 < sum(low <= math.exp(0.3) <= high for _, low, high in found) / 4000 < 0.96


def test_choices_are_compared_sample_by_sample():
    # The samples differ far more among themselves than the choices do, but b is better on each of
    # them by as much.
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
        scores = {
            k: {n: random.gauss(0.0, 1.0) for n in range(4)} for k in range(5)
        }  # all alike, so each is the best
        lost += 0 not in may_be_best(scores)
    assert lost / 600 < 0.07  # 5% and two standard deviations


def test_a_ratio_and_its_interval_are_the_reciprocals_of_the_reverse_comparison():
    speeds, others = [30.0, 52.0, 41.0, 38.0, 60.0], [20.0, 31.0, 33.0, 19.0, 35.0]
    mean, low, high = ratio_of(logs_of(speeds, others))
    reverse = ratio_of(logs_of(others, speeds))
    assert (1 / mean, 1 / high, 1 / low) == pytest.approx(reverse)
    with pytest.raises(ValueError, match="zip"):
        logs_of(speeds, others[:-1])


@given(st.lists(st.tuples(st.sampled_from([0, 1, 4]), st.integers(1, 50)), max_size=40))
def test_a_step_s_typical_time_is_the_lower_quartile_of_the_steps_of_its_length(times):
    of_length = {length: [t for n, t in times if n == length] for length, _ in times}
    assert typical(times) == [
        np.quantile(of_length[length], 0.25, method="lower") for length, _ in times
    ]


def test_an_interval_does_not_load_scipy_stats():
    """Looked at in a fresh process: it would take 30 MB of a page."""
    look = (
        "import sys; from naive_speculate.tools.ratio import ratio_of;"
        " assert 'scipy' not in sys.modules;"
        " ratio_of([0.1, 0.2, 0.3, 0.4, 0.5]); print('scipy.stats' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False", done.stderr
