"""Derives α, rates per index, the best window and break-even costs from an engine's figures.

The formulas are those of `naive_speculate.theory` (Leviathan et al. 2023, arXiv 2211.17192). If the rates per index are given,
the tokens of a shorter window follow without α: 1 + the sum of its rates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from naive_speculate.costs import CostTable
from naive_speculate.doctor.reading import Reading, ratio
from naive_speculate.doctor.suspects import Figures, Suspect, suspects
from naive_speculate.theory import alpha_for, break_even_alpha, expected_tokens, step_cost

MAX_K = 16
"""The largest window that is evaluated."""


@dataclass(frozen=True, slots=True)
class Window:
    """The expected figures of a window.

    Attributes:
        k: Draft tokens per step.
        tokens: Tokens per step, the target's own included.
        measured: Whether the rates of all its indices are given; otherwise the last given rate, or α, is used for the rest.
        break_even_draft_cost: The draft cost below which it is faster than plain decoding; None if it never is.
        break_even_alpha: The α above which it is faster, for the given costs.
        speedup: Expected speedup with the given costs.
    """

    k: int
    tokens: float
    measured: bool
    break_even_draft_cost: float | None
    break_even_alpha: float | None = None
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of an engine's figures.

    Attributes:
        reading: The figures.
        alpha: Probability that a draft token is accepted if all earlier ones are: accepted ÷ (accepted + rejected). None if it
            cannot be derived.
        alpha_error: Its standard error; None if the steps are unknown.
        alpha_assumes_one: Whether α was derived from means, assuming the same α at every index.
        conditional: Per index, the share of windows with all earlier tokens accepted that accept this one too.
        unconditional: Per index, the share of all steps that accept the token.
        num_draft_tokens: The window: k, or its mean.
        mean_acceptance_length: Tokens per step, the target's own included.
        draft_acceptance_rate: Accepted ÷ drafted.
        costs: The given costs; None if there are none.
        windows: Expected figures of each window, from k = 1.
        best_k: The fastest window; 0 if drafting does not pay, None without costs.
        speedup: Expected speedup of the current window with these costs.
        measured_speedup: Speed with drafting ÷ speed without; None if either is unknown.
        suspects: Possible faults, the most likely first.
    """

    reading: Reading
    alpha: float | None
    alpha_error: float | None
    alpha_assumes_one: bool
    conditional: tuple[float | None, ...]
    unconditional: tuple[float, ...]
    num_draft_tokens: float | None
    mean_acceptance_length: float | None
    draft_acceptance_rate: float | None
    costs: CostTable | None
    windows: tuple[Window, ...]
    best_k: int | None
    speedup: float | None
    measured_speedup: float | None
    suspects: tuple[Suspect, ...]

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain JSON values, without the course of the run."""
        plain = to_jsonable_python(self, exclude={"reading": {"course", "categories"}})
        return plain | {"costs": self.costs and self.costs.to_dict()}

    def profile(self) -> dict[str, Any]:
        """Acceptance rates by index, of the whole text and of each category, as plain JSON values."""
        categories = {name: diagnose(reading).profile() for name, reading in self.reading.categories.items()}
        names = ("engine", "format", "num_steps", "num_draft_tokens", "num_accepted_tokens")
        return {name: getattr(self.reading, name) for name in names} | {
            "mean_acceptance_length": self.mean_acceptance_length,
            "alpha": self.alpha,
            "rates": [
                {"index": index, "conditional": conditional, "marginal": marginal}
                for index, (conditional, marginal) in enumerate(zip(self.conditional, self.unconditional, strict=True))
            ],
            "categories": categories,
        }


def diagnose(reading: Reading, costs: CostTable | None = None, *, num_draft_tokens: int | None = None) -> Diagnosis:
    """Diagnose an engine's figures with these costs, and with this window if the figures lack one.

    Raises:
        ValueError: If `num_draft_tokens` is not positive, or the figures contradict each other.
    """
    if num_draft_tokens is not None and num_draft_tokens < 1:
        raise ValueError(f"num_draft_tokens must be 1 or more, got {num_draft_tokens}")
    accepted, width = _per_step(reading, num_draft_tokens)
    conditional = _conditional(reading)
    alpha, assumed = _alpha(reading, accepted, width)
    whole = _whole(reading.rates, width)
    rates = reading.rates if whole else ()
    windows = tuple(_window(k, rates, conditional, alpha, costs) for k in range(1, MAX_K + 1) if alpha is not None)
    best = max(windows, key=lambda window: window.speedup or 0.0) if windows and costs else None
    pays = best is not None and (best.speedup or 0.0) > 1
    best_k = None if best is None else best.k if pays else 0
    at_best = best.speedup if best is not None and pays else 1.0
    present, draft_share = None, reading.draft_share
    if costs is not None and accepted is not None and width is not None:
        step = _at(width, lambda k: step_cost(k, costs.draft, costs.verify_cost))
        present = (1 + accepted) / step
        draft_share = draft_share or width * costs.draft / step
    measured = ratio(reading.tokens_per_second, reading.plain_tokens_per_second)
    rate = ratio(accepted, width)
    return Diagnosis(
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
        measured_speedup=measured,
        suspects=suspects(
            reading,
            Figures(
                alpha=alpha,
                conditional=conditional,
                whole=whole,
                width=width,
                tokens=None if accepted is None else 1 + accepted,
                best_k=best_k,
                gain=ratio(at_best, present),
                speedup=present,
                measured=measured,
                draft_share=draft_share,
            ),
        ),
    )


def _per_step(reading: Reading, given: int | None) -> tuple[float | None, float | None]:
    """Accepted and drafted tokens per step; `given` is the window that the user states."""
    accepted, read = reading.accepted_per_step, reading.drafted_per_step
    width = read or given if reading.other_drafted_per_step is None else given or read
    if accepted is None and width and reading.num_accepted_tokens is not None and reading.num_draft_tokens:
        accepted = reading.num_accepted_tokens / reading.num_draft_tokens * width
    if accepted is not None and width is not None and accepted > width * (1 + 1e-3) + 0.01:
        raise ValueError(f"{reading.format}: {accepted:.2f} accepted of {width:.2f} drafted per step is impossible")
    return accepted, width


def _conditional(reading: Reading) -> tuple[float | None, ...]:
    """Per index, the share of windows with all earlier tokens accepted that accept this one; None if there are none."""
    judged = reading.judged or (1.0, *reading.rates)
    return tuple(min(rate / last, 1.0) if last > 0 else None for last, rate in zip(judged, reading.rates, strict=False))


def _alpha(reading: Reading, accepted: float | None, width: float | None) -> tuple[float | None, bool]:
    """α, and whether it was derived from means alone."""
    if reading.judged:
        return ratio(sum(reading.rates), sum(reading.judged)), False
    if accepted == 0:
        return 0.0, not _whole(reading.rates, width)
    if accepted is None or width is None:
        return None, False
    if _whole(reading.rates, width):  # each step ends in a rejection, unless all tokens were accepted
        rejected = 1 - reading.rates[-1]
        return (accepted / (accepted + rejected) if accepted + rejected > 0 else 0.0), False
    found = alpha_for(1 + accepted, lambda alpha: _at(width, lambda k: expected_tokens(alpha, k)))
    return found, True


def _whole(rates: Sequence[float], width: float | None) -> bool:
    """Whether every window had a draft token at each of these indices, so that rates of steps are rates of windows."""
    return width is not None and abs(len(rates) - width) < 0.01


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
