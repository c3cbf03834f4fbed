"""Derives α, rates per index, the best window and break-even costs from an engine's figures.

The formulas are those of `naive_speculate.theory` (Leviathan et al. 2023, arXiv 2211.17192). If the rates per index are given,
the tokens of a shorter window follow without α: 1 + the sum of its rates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from naive_speculate.costs import CostTable
from naive_speculate.doctor.reading import Diagnosis, Reading, Window, all_whole, ratio
from naive_speculate.doctor.suspects import suspects
from naive_speculate.theory import alpha_for, break_even_alpha, expected_tokens, step_cost

MAX_K = 16  # the largest window that is evaluated


def diagnose(reading: Reading, costs: CostTable | None = None, *, num_draft_tokens: int | None = None) -> Diagnosis:
    """Diagnose an engine's figures with these costs, and with this window if the figures lack one. Raises `ValueError` if
    `num_draft_tokens` is not positive, or the figures contradict each other."""
    if num_draft_tokens is not None and num_draft_tokens < 1:
        raise ValueError(f"num_draft_tokens must be 1 or more, got {num_draft_tokens}")
    accepted, width = _per_step(reading, num_draft_tokens)
    # Per index, the share of windows with all earlier tokens accepted that accept this one; None if there are none.
    judged = zip(reading.judged or (1.0, *reading.rates), reading.rates, strict=False)
    conditional = tuple(min(rate / last, 1.0) if last > 0 else None for last, rate in judged)
    alpha, assumed = _alpha(reading, accepted, width)
    rates = reading.rates if all_whole(reading.rates, width) else ()
    windows = tuple(_window(k, rates, conditional, alpha, costs) for k in range(1, MAX_K + 1) if alpha is not None)
    best = max(windows, key=lambda window: window.speedup or 0.0) if windows and costs else None
    best_k = None if best is None else best.k if (best.speedup or 0.0) > 1 else 0
    present = None
    if costs is not None and accepted is not None and width is not None:
        present = (1 + accepted) / _at(width, lambda k: step_cost(k, costs.draft, costs.verify_cost))
    rate = ratio(accepted, width)
    found = Diagnosis(
        reading=reading,
        alpha=alpha,
        alpha_error=_error(alpha, accepted, reading.num_steps),
        alpha_assumes_one=assumed,
        conditional=conditional,
        unconditional=reading.rates,
        num_draft_tokens=width,
        mean_acceptance_length=None if accepted is None else 1 + accepted,
        draft_acceptance_rate=ratio(reading.num_accepted_tokens, reading.num_draft_tokens) if rate is None else rate,
        costs=costs,
        windows=windows,
        best_k=best_k,
        speedup=present,
        measured_speedup=ratio(reading.tokens_per_second, reading.plain_tokens_per_second),
        categories={name: diagnose(of_one) for name, of_one in reading.categories.items()},
    )
    return replace(found, suspects=suspects(found))


def _per_step(reading: Reading, given: int | None) -> tuple[float | None, float | None]:
    """Accepted and drafted tokens per step; `given` is the window that the user states."""
    accepted, read = reading.accepted_per_step, reading.drafted_per_step
    width = read or given if reading.other_drafted_per_step is None else given or read
    if accepted is None and width and reading.num_accepted_tokens is not None and reading.num_draft_tokens:
        accepted = reading.num_accepted_tokens / reading.num_draft_tokens * width
    if accepted is not None and width is not None and accepted > width * (1 + 1e-3) + 0.01:
        raise ValueError(f"{reading.format}: {accepted:.2f} accepted of {width:.2f} drafted per step is impossible")
    return accepted, width


def _alpha(reading: Reading, accepted: float | None, width: float | None) -> tuple[float | None, bool]:
    """α, and whether it was derived from means alone."""
    if reading.judged:
        return ratio(sum(reading.rates), sum(reading.judged)), False
    if accepted == 0:
        return 0.0, not all_whole(reading.rates, width)
    if accepted is None or width is None:
        return None, False
    if all_whole(reading.rates, width):  # each step ends in a rejection, unless all tokens were accepted
        rejected = 1 - reading.rates[-1]
        return (accepted / (accepted + rejected) if accepted + rejected > 0 else 0.0), False
    found = alpha_for(1 + accepted, lambda alpha: _at(width, lambda k: expected_tokens(alpha, k)))
    return found, True


def _at(width: float, of_window: Callable[[int], float]) -> float:
    """The mean of a quantity over windows of the two lengths nearest to `width`."""
    k = math.floor(width)
    below = of_window(k)
    return below + (width - k) * (of_window(k + 1) - below)


def _error(alpha: float | None, accepted: float | None, steps: float | None) -> float | None:
    """The standard error of α, if verdicts are independent."""
    if not alpha or accepted is None or not steps:
        return None
    return math.sqrt(alpha * (1 - alpha) / max(steps * accepted / alpha, 1.0))


def _window(
    k: int, rates: Sequence[float], conditional: Sequence[float | None], alpha: float | None, costs: CostTable | None
) -> Window:
    tokens, reached = 1.0, 1.0
    known = [rate for rate in conditional if rate is not None]
    beyond = known[-1] if rates and known else alpha or 0.0
    for index in range(k):
        reached = rates[index] if index < len(rates) else reached * beyond
        tokens += reached
    pays_below = (tokens - (costs.verify_cost(k) if costs else 1.0)) / k
    return Window(
        k=k,
        tokens=tokens,
        measured=k <= len(rates),
        break_even_draft_cost=pays_below if pays_below > 0 else None,
        break_even_alpha=break_even_alpha(k, costs.draft, costs.verify_cost) if costs else None,
        speedup=tokens / step_cost(k, costs.draft, costs.verify_cost) if costs else None,
    )
