"""The expected speedup of speculative decoding: Leviathan et al. 2023, arXiv 2211.17192.

`alpha` is the probability that a draft token is accepted if all earlier ones are; its estimate is accepted ÷ (accepted +
rejected). Costs are in target forwards over one token. The paper assumes a cost of 1 for verifying k + 1 tokens; here it can be
measured, since the speedup depends strongly on it.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

VerifyCosts = float | Sequence[float] | Mapping[int, float] | Callable[[int], float]
"""The cost of verifying k draft tokens (a target forward over k + 1 tokens): one number for every k, a list or table indexed by
k, or a function of k."""


def expected_tokens(alpha: float, k: int) -> float:
    """Expected tokens of a step with k draft tokens, the last token included: (1 - α^(k+1)) / (1 - α), equation 1. `alpha`:
    probability that a draft token is accepted, from 0 to 1; `k`: draft tokens per step, 0 or more. Raises `ValueError` if an
    argument is out of range."""
    _check(alpha, k)
    total, reached = 1.0, 1.0
    for _ in range(k):  # a sum is exact at α = 1 too
        reached *= alpha
        total += reached
    return total


def expected_accepted(ratios: Sequence[float], *, block: bool = False) -> float:
    """Expected number of accepted draft tokens of one window: the sum over its positions i of the probability that at least the
    first i draft tokens are accepted, given these.

    Speculative sampling: Π_{j ≤ i} min(1, r_j). Block verification: p_i = min(1, p_{i−1} r_i), p_0 = 1 (Sun et al. 2024, arXiv
    2403.10444). Whether position i stands also depends on the draft tokens after it; these are averaged out, which takes no
    distribution of theirs. Term by term p_i is at least the product, so the second expectation is never below the first.
    `ratios`: p(x_i) / q(x_i) of each draft token x_i, 0 or more; `block`: block verification instead of speculative sampling.
    """
    total, reached = 0.0, 1.0
    for ratio in ratios:
        reached = min(1.0, reached * ratio) if block else reached * min(1.0, ratio)
        total += reached
    return total


def speedup(alpha: float, k: int, draft_cost: float, verify_cost: VerifyCosts = 1.0) -> float:
    """Expected speedup over plain decoding: tokens per step ÷ its cost (Theorem 3.8, with a measured verification cost).

    With `verify_cost` 1 it is the theorem's (1 - α^(k+1)) / ((1 - α)(c k + 1)), where c is `draft_cost`, the cost of one draft
    forward. k = 0 is plain decoding. Raises `ValueError` if alpha or k is out of range, a cost is not positive, or the table
    has no entry for k.
    """
    return expected_tokens(alpha, k) / step_cost(k, draft_cost, verify_cost)


def step_cost(k: int, draft_cost: float, verify_cost: VerifyCosts = 1.0) -> float:
    """Cost of one step with k draft tokens, in target forwards over one token. Raises `ValueError` if k is negative, a cost is
    not positive, or the table has no entry for k."""
    _check(0.0, k)
    if not draft_cost > 0:
        raise ValueError(f"draft_cost must be positive, got {draft_cost}")
    return k * draft_cost + _verify(k, verify_cost)


def best_k(alpha: float, draft_cost: float, verify_costs: VerifyCosts = 1.0, max_k: int = 16) -> int:
    """The number of draft tokens with the largest expected speedup (section 3.5, by enumeration); 0 if drafting does not pay.
    `alpha`, `draft_cost`, `verify_costs`: as for `speedup`; costs are needed for every k from 0 to `max_k`. `max_k`: the
    largest k to try. Raises `ValueError` as `speedup`, or if `max_k` is negative."""
    if max_k < 0:
        raise ValueError(f"max_k must not be negative, got {max_k}")
    return max(range(max_k + 1), key=lambda k: speedup(alpha, k, draft_cost, verify_costs))


class Breakdown(NamedTuple):
    """The parts of a speedup; they add up to it."""

    tokens: float  # tokens per step, the speedup if a step cost one plain target pass
    check: float  # loss by verification, relative to a plain pass, usually 0 or less
    drafting: float  # loss by drafting, 0 or less
    other: float  # difference to a measured speedup
    speedup: float  # the sum


def breakdown(tokens: float, k: float, draft_cost: float, verify_cost: float = 1.0, measured: float | None = None) -> Breakdown:
    """From tokens per step, the last one included, to the speedup: divided by the cost of verification, then by that of the
    whole step with k draft tokens, or k on average. Without a `measured` speedup it is the expected one. Raises `ValueError` if
    a cost is not positive."""
    if not verify_cost > 0 or not verify_cost + k * draft_cost > 0:
        raise ValueError(f"costs must be positive, got draft_cost={draft_cost} and verify_cost={verify_cost}")
    checked, drafted = tokens / verify_cost, tokens / (verify_cost + k * draft_cost)
    left = drafted if measured is None else measured
    return Breakdown(tokens, checked - tokens, drafted - checked, left - drafted, left)


def break_even_alpha(k: int, draft_cost: float, verify_cost: VerifyCosts = 1.0) -> float | None:
    """The α above which drafting is faster than plain decoding; None if it never is. `k`: draft tokens per step, 1 or more;
    `draft_cost`, `verify_cost`: as for `speedup`, with its errors."""
    cost = step_cost(k, draft_cost, verify_cost)
    return None if k + 1 < cost else alpha_for(cost, lambda alpha: expected_tokens(alpha, k))


def alpha_for(tokens: float, expected: Callable[[float], float]) -> float:
    """The least α, to 50 binary digits, at which an increasing function of α gives this expected number of tokens."""
    return bisect_left(range(2**50), tokens, key=lambda n: expected(n / 2**50)) / 2**50


def pass_seconds(tokens: int, *, weight_bytes: float, bandwidth: float, parameters: float, flops: float) -> float:
    """Least time of a forward over so many tokens: each weight is read once, and multiplied and added once per token. Seconds
    of reading (`weight_bytes` ÷ `bandwidth` in bytes per second) or of computing (`flops`: operations per second), whichever is
    longer (the roofline model, Williams et al. 2009)."""
    return max(weight_bytes / bandwidth, 2 * parameters * tokens / flops)


def _verify(k: int, cost: VerifyCosts) -> float:
    if isinstance(cost, Mapping):
        found = cost.get(k)
    elif isinstance(cost, Sequence):
        found = cost[k] if k < len(cost) else None
    else:
        found = cost(k) if callable(cost) else cost
    if found is None:
        raise ValueError(f"verify_cost has no entry for k={k}")
    if not found > 0:
        raise ValueError(f"verify_cost must be positive, got {found} for k={k}")
    return found


def _check(alpha: float, k: int) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
    if k < 0:
        raise ValueError(f"k must not be negative, got {k}")
