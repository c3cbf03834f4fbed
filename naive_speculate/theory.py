"""What speculative decoding should gain: Leviathan et al. 2023, arXiv 2211.17192.

`alpha` is the probability that a draft is kept, given that all drafts before it were; measured, it is accepted ÷ (accepted +
rejected). Costs are in units of one target forward over one token. The paper takes verifying k + 1 tokens to cost one such
unit; here the cost can be given as measured, since it is what the paper's speedup depends on most.
"""

from collections.abc import Callable, Mapping, Sequence

VerifyCosts = float | Sequence[float] | Mapping[int, float] | Callable[[int], float]
"""The cost of verifying k drafts (a target forward over k + 1 tokens): one number for every k, a list or table indexed by k,
or a function of k."""


def expected_tokens(alpha: float, k: int) -> float:
    """Expected number of tokens a step with k drafts yields, the extra one included: (1 - α^(k+1)) / (1 - α), equation 1.

    Args:
        alpha: Probability that a draft is kept, from 0 to 1.
        k: Number of drafts a step, 0 or more.

    Raises:
        ValueError: If an argument is out of its range.
    """
    _check(alpha, k)
    total, reached = 1.0, 1.0
    for _ in range(k):  # summed, not divided: exact at α = 1 too
        reached *= alpha
        total += reached
    return total


def speedup(alpha: float, k: int, draft_cost: float, verify_cost: VerifyCosts = 1.0) -> float:
    """Expected speedup over plain decoding: tokens a step over its cost (Theorem 3.8, with the measured verification).

    With `verify_cost` 1 it is the theorem's (1 - α^(k+1)) / ((1 - α)(c k + 1)).

    Args:
        alpha: Probability that a draft is kept.
        k: Number of drafts a step; 0 is plain decoding.
        draft_cost: Cost of one draft forward; the theorem's c.
        verify_cost: Cost of verifying k drafts.

    Raises:
        ValueError: If alpha or k is out of its range, a cost is not positive, or the table has no entry for k.
    """
    return expected_tokens(alpha, k) / step_cost(k, draft_cost, verify_cost)


def step_cost(k: int, draft_cost: float, verify_cost: VerifyCosts = 1.0) -> float:
    """Cost of one step with k drafts, in target forwards over one token.

    Raises:
        ValueError: If k is negative, a cost is not positive, or the table has no entry for k.
    """
    _check(0.0, k)
    if not draft_cost > 0:
        raise ValueError(f"draft_cost must be positive, got {draft_cost}")
    return k * draft_cost + _verify(k, verify_cost)


def best_k(alpha: float, draft_cost: float, verify_costs: VerifyCosts = 1.0, max_k: int = 16) -> int:
    """The number of drafts with the largest expected speedup (section 3.5, by trying each); 0 where drafting does not pay.

    Args:
        alpha: Probability that a draft is kept.
        draft_cost: Cost of one draft forward.
        verify_costs: Cost of verifying k drafts; needed for every k from 0 to `max_k`.
        max_k: The largest k to try.

    Raises:
        ValueError: As `speedup`, or if `max_k` is negative.
    """
    if max_k < 0:
        raise ValueError(f"max_k must not be negative, got {max_k}")
    return max(range(max_k + 1), key=lambda k: speedup(alpha, k, draft_cost, verify_costs))


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
