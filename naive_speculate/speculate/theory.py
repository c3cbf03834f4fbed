"""The expected speedup of speculative decoding: Leviathan et al. 2023, arXiv 2211.17192.

`alpha` is the probability that a draft token is accepted if all earlier ones are; its estimate
is accepted ÷ (accepted + rejected). Costs are in target forwards over one token. The paper
assumes a cost of 1 for verifying k + 1 tokens; here it can be measured, since the speedup
depends strongly on it.

The model is `speedups`: expected tokens ÷ cost for every window. The windows "auto" and of batches
(`costs`, `speculate.window`), the doctor and the page (`speedup`) evaluate it with what they know
of acceptance and costs.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat
from operator import mul


def expected_tokens(alpha: float, k: int) -> float:
    """Expected tokens of a step with k draft tokens, the last token included: (1 - α^(k+1)) / (1
    - α), equation 1, where α is the probability that a draft token is accepted. Raises
    `ValueError` if an argument is out of range."""
    _check(alpha, k)
    return expected_by_window(all_accepted(alpha, k))[-1]  # a sum: right at α = 1 too


def all_accepted(alpha: float, most: int) -> Iterable[float]:
    """The probabilities that the first 1, 2 … `most` draft tokens are all accepted: α, α² …"""
    return accumulate(repeat(alpha, most), mul)


def expected_by_window(reached: Iterable[float]) -> list[float]:
    """Expected tokens of a step with 0, 1, 2 … draft tokens, the target's own included;
    `reached` are the probabilities that the first 1, 2 … are all accepted."""
    return list(accumulate(reached, initial=1.0))


def speedups(tokens: Sequence[float], costs: Sequence[float]) -> list[float]:
    """The expected tokens per time of a step with 0, 1, 2 … draft tokens: tokens ÷ cost."""
    return [of_window / cost for of_window, cost in zip(tokens, costs, strict=True)]


def expected_accepted(ratios: Sequence[float], *, block: bool = False) -> float:
    """Expected number of accepted draft tokens of one window, from the ratios p(x_i) / q(x_i):
    the sum over its positions i of the probability that at least the first i draft tokens are
    accepted, given these.

    Speculative sampling: Π_{j ≤ i} min(1, r_j). Block verification: p_i = min(1, p_{i−1} r_i),
    p_0 = 1 (Sun et al. 2024, arXiv 2403.10444). Whether position i stands also depends on the
    draft tokens after it; these are averaged out, which takes no distribution of theirs. Term by
    term p_i is at least the product, so the second expectation is never below the first.
    """
    total, reached = 0.0, 1.0
    for ratio in ratios:
        reached = min(1.0, reached * ratio) if block else reached * min(1.0, ratio)
        total += reached
    return total


def speedup(alpha: float, k: int, draft_cost: float, verify_cost: float = 1.0) -> float:
    """Expected speedup over plain decoding: tokens per step ÷ its cost (Theorem 3.8, with a
    measured verification cost).

    With `verify_cost` 1 it is the theorem's (1 - α^(k+1)) / ((1 - α)(c k + 1)), where c is
    `draft_cost`, the cost of one draft forward; `verify_cost` is that of a target forward over k
    + 1 tokens. k = 0 is plain decoding. Raises `ValueError` if alpha or k is out of range, or a
    cost is not positive.
    """
    return expected_tokens(alpha, k) / step_cost(k, draft_cost, verify_cost)


def step_cost(k: int, draft_cost: float, verify_cost: float = 1.0) -> float:
    """Cost of one step with k draft tokens, in target forwards over one token. Raises
    `ValueError` if k is negative, or a cost is not positive."""
    _check(0.0, k)
    for name, cost in (("draft_cost", draft_cost), ("verify_cost", verify_cost)):
        if not cost > 0:
            raise ValueError(f"{name} must be positive, got {cost}")
    return k * draft_cost + verify_cost


def break_even_alpha(k: int, draft_cost: float, verify_cost: float = 1.0) -> float | None:
    """The α above which k draft tokens per step are faster than plain decoding; None if they
    never are. Costs and errors as for `speedup`."""
    cost = step_cost(k, draft_cost, verify_cost)
    return None if k + 1 < cost else alpha_for(cost, lambda alpha: expected_tokens(alpha, k))


def break_even_draft_cost(tokens: float, k: int, verify_cost: float = 1.0) -> float | None:
    """The draft cost below which k ≥ 1 draft tokens with these expected tokens per step are faster
    than plain decoding; None if they never are."""
    cost = (tokens - verify_cost) / k
    return cost if cost > 0 else None


def alpha_for(tokens: float, expected: Callable[[float], float]) -> float:
    """The least α, to 50 binary digits, at which an increasing function of α gives this expected
    number of tokens."""
    return bisect_left(range(2**50), tokens, key=lambda n: expected(n / 2**50)) / 2**50


def pass_seconds(
    tokens: int, *, weight_bytes: float, bandwidth: float, parameters: float, flops: float
) -> float:
    """Least time of a forward over so many tokens: each weight is read once, and multiplied and
    added once per token. Seconds of reading (`weight_bytes` ÷ `bandwidth` in bytes per second)
    or of computing (`flops`: operations per second), whichever is longer (the roofline model,
    Williams et al. 2009)."""
    return max(weight_bytes / bandwidth, 2 * parameters * tokens / flops)


def _check(alpha: float, k: int) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
    if k < 0:
        raise ValueError(f"k must not be negative, got {k}")
