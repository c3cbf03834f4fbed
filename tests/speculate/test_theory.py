"""The formulas against the paper, a simulation and their limits."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive_speculate.infer.costs import CostTable
from naive_speculate.speculate.theory import (
    all_accepted,
    break_even_alpha,
    break_even_draft_cost,
    expected_by_window,
    expected_tokens,
    pass_seconds,
    speedup,
    speedups,
    step_cost,
)

ALPHAS = st.floats(0, 1, allow_nan=False)


@pytest.mark.parametrize(
    ("alpha", "k", "tokens"),
    [(0.6, 2, 1.96), (0.8, 5, 3.68928), (0.0, 7, 1.0), (1.0, 7, 8.0), (0.5, 0, 1.0)],
)
def test_expected_tokens_are_those_of_equation_1(alpha, k, tokens):
    assert expected_tokens(alpha, k) == pytest.approx(tokens)


@given(alpha=st.floats(0, 0.999), k=st.integers(0, 40))
def test_the_sum_equals_the_closed_form(alpha, k):
    assert expected_tokens(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


@pytest.mark.parametrize(  # the paper's Table 2 columns: alpha, gamma, speedup at c near 0
    ("alpha", "k", "factor"),
    [
        (0.6, 2, 1.96),
        (0.7, 3, 2.53),
        (0.8, 2, 2.44),
        (0.8, 5, 3.69),
        (0.9, 2, 2.71),
        (0.9, 10, 6.86),
    ],
)
def test_speedups_without_drafting_cost_are_the_papers(alpha, k, factor):
    assert speedup(alpha, k, 1e-9) == pytest.approx(factor, abs=0.01)


@given(alpha=ALPHAS, k=st.integers(1, 16), draft_cost=st.floats(0.01, 1))
def test_theorem_3_8_is_the_case_of_a_free_wider_verification(alpha, k, draft_cost):
    assert speedup(alpha, k, draft_cost) == pytest.approx(
        expected_tokens(alpha, k) / (k * draft_cost + 1)
    )
    assert speedup(alpha, k, draft_cost, 1.5) < speedup(alpha, k, draft_cost)


@given(alpha=ALPHAS, draft_cost=st.floats(0.01, 1), growth=st.floats(0, 0.5))
def test_every_window_of_a_table_has_the_speedup_of_its_costs(alpha, draft_cost, growth):
    table = CostTable(draft_cost, (1.0, 1.0 + growth, 1.0 + 2 * growth))
    found = speedups(expected_by_window(all_accepted(alpha, 6)), table.step_costs(6))
    assert found == pytest.approx(
        [speedup(alpha, k, draft_cost, table.verify_cost(k)) for k in range(7)]
    )


@given(alpha=ALPHAS, k=st.integers(1, 16), verify_cost=st.floats(0.2, 6))
def test_at_the_break_even_draft_cost_drafting_is_as_fast_as_plain_decoding(alpha, k, verify_cost):
    tokens = expected_tokens(alpha, k)
    cost = break_even_draft_cost(tokens, k, verify_cost)
    if cost is None:
        assert tokens <= verify_cost
    else:
        assert speedup(alpha, k, cost, verify_cost) == pytest.approx(1)


def test_drafting_pays_only_where_alpha_is_above_its_cost_and_a_pass_reads_or_multiplies():
    assert all(speedup(0.1, k, 0.5) < 1 for k in range(1, 17))  # Corollary 3.9
    assert speedup(0.6, 1, 0.5) > 1
    machine = {"weight_bytes": 10.0, "bandwidth": 5.0, "parameters": 10.0, "flops": 40.0}
    assert [pass_seconds(tokens, **machine) for tokens in (1, 4, 8)] == [2.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_tokens(1.1, 2), "alpha must be between 0 and 1"),
        (lambda: expected_tokens(float("nan"), 2), "alpha must be between 0 and 1"),
        (lambda: expected_tokens(0.5, -1), "k must not be negative"),
        (lambda: speedup(0.5, 2, 0.0), "draft_cost must be positive"),
        (lambda: speedup(0.5, 2, 0.1, -1.0), "verify_cost must be positive"),
    ],
)
def test_arguments_out_of_range_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


COSTS = {"draft_cost": st.floats(0.001, 2), "verify_cost": st.floats(0.2, 6)}


def test_a_speedup_is_that_of_simulated_steps():
    draw, alpha, k, draft_cost, verify_cost = random.Random(11), 0.8, 5, 0.07, 1.4
    tokens, clock = 0, 0.0
    for _ in range(40_000):
        clock += k * draft_cost + verify_cost
        tokens += 1 + next((n for n in range(k) if draw.random() >= alpha), k)
    assert speedup(alpha, k, draft_cost, verify_cost) == pytest.approx(tokens / clock, rel=0.02)


@given(k=st.integers(1, 16), **COSTS)
def test_at_the_break_even_alpha_drafting_is_as_fast_as_plain_decoding(k, draft_cost, verify_cost):
    alpha = break_even_alpha(k, draft_cost, verify_cost)
    if alpha is None:
        assert speedup(1.0, k, draft_cost, verify_cost) < 1
    elif step_cost(k, draft_cost, verify_cost) >= 1:
        assert speedup(alpha, k, draft_cost, verify_cost) == pytest.approx(1, rel=1e-6)
    else:  # cheaper than plain decoding even where nothing is kept
        assert alpha == pytest.approx(0, abs=1e-9)
