"""Derives α, rates per index, the best window and break-even costs from an engine's figures, with
costs as given or estimated from the models' sizes. The formulas are in
`naive_speculate.speculate.theory` (Leviathan et al. 2023, arXiv 2211.17192); rates per index give
the tokens of a shorter window without α: 1 + their sum."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic_core import to_jsonable_python

from naive_speculate.infer.costs import CostTable
from naive_speculate.speculate.theory import (
    alpha_for,
    break_even_alpha,
    break_even_draft_cost,
    expected_by_window,
    expected_tokens,
    speedups,
)
from naive_speculate.tools.doctor.reading import Reading, ratio

MAX_K = 16  # the largest window that is evaluated
_DERIVED = (
    "alpha",
    "alpha_error",
    "alpha_assumes_one",
    "conditional",
    "unconditional",
    "num_draft_tokens",
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "windows",
    "best_k",
    "speedup",
    "measured_speedup",
    "suspects",
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMBT]?)", re.IGNORECASE)
_SIZES = "two sizes such as 0.6B / 8B"
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True)
class Suspect:
    """A possible fault, with its evidence and what to check."""

    name: str  # its identifier
    words: str  # evidence and possible causes
    next: str  # what to measure next


@dataclass(frozen=True, slots=True)
class Window:
    """The expected figures of a window."""

    k: int  # draft tokens per step
    tokens: float  # tokens per step, the target's own included
    # whether all its indices have rates; otherwise the last rate, or α, is used for the rest
    measured: bool
    # the draft cost below which it is faster than plain decoding; None if it never is
    break_even_draft_cost: float | None
    break_even_alpha: float | None = None  # the α above which it is faster, for the given costs
    speedup: float | None = None  # expected with the given costs


class Diagnosis:
    """An engine's figures with these costs, and with this window if the figures lack one. Raises
    `ValueError` if `num_draft_tokens` is not positive, or the figures contradict each other."""

    def __init__(
        self, reading: Reading, costs: CostTable | None = None, num_draft_tokens: int | None = None
    ) -> None:
        if num_draft_tokens is not None and num_draft_tokens < 1:
            raise ValueError(f"num_draft_tokens must be 1 or more, got {num_draft_tokens}")
        stated, certain = reading.drafted_per_step, reading.other_drafted_per_step is None
        width = stated or num_draft_tokens if certain else num_draft_tokens or stated
        accepted = reading.accepted_per_step
        total = ratio(reading.num_accepted_tokens, reading.num_draft_tokens)
        total = reading.acceptance if total is None else total
        if accepted is None and width and total is not None:
            accepted = total * width
        if accepted is not None and width is not None and accepted > width * (1 + 1e-3) + 0.01:
            raise ValueError(
                f"{reading.format}: {accepted:.2f} accepted of {width:.2f} drafted per step is"
                " impossible"
            )
        rates, rate = reading.rates, ratio(accepted, width)
        self.reading, self.costs, self._accepted = reading, costs, accepted
        self.num_draft_tokens = width  # the window: k, or its mean
        # tokens per step, the target's own included
        self.mean_acceptance_length = None if accepted is None else 1 + accepted
        self.draft_acceptance_rate = total if rate is None else rate  # accepted ÷ drafted
        self.measured_speedup = ratio(reading.tokens_per_second, reading.plain_tokens_per_second)
        self.unconditional = rates  # per index, the share of all steps that accept the token
        # Per index, the share of windows with all earlier tokens accepted that accept this one too;
        # None if there are none.
        judged = zip(reading.judged or (1.0, *rates), rates, strict=False)
        self.conditional = tuple(
            min(rate / last, 1.0) if last > 0 else None for last, rate in judged
        )
        # The rates, if every window had a draft token at each index, so that they are rates of
        # windows; else empty.
        self.whole_rates = rates if width is not None and abs(len(rates) - width) < 0.01 else ()
        self.suspects: tuple[Suspect, ...] = ()  # possible faults, those of acceptance first

    @cached_property
    def alpha(self) -> float | None:
        """Probability that a draft token is accepted if all earlier ones are: accepted ÷
        (accepted + rejected). None if it cannot be derived."""
        accepted, width = self._accepted, self.num_draft_tokens
        if self.reading.judged:
            return ratio(sum(self.unconditional), sum(self.reading.judged))
        if accepted == 0:
            return 0.0
        if accepted is None or width is None:
            return None
        if self.whole_rates:  # each step ends in a rejection, unless all tokens were accepted
            return ratio(accepted, accepted + 1 - self.whole_rates[-1]) or 0.0
        return alpha_for(
            1 + accepted, lambda alpha: _at(width, lambda k: expected_tokens(alpha, k))
        )

    @property
    def alpha_assumes_one(self) -> bool:
        """Whether α was derived from means, assuming the same α at every index."""
        return self.alpha is not None and not self.reading.judged and not self.whole_rates

    @property
    def alpha_error(self) -> float | None:
        """The standard error of α, if verdicts are independent; None if the steps are unknown."""
        alpha, steps = self.alpha, self.reading.num_steps
        if not alpha or self._accepted is None or not steps:
            return None
        return math.sqrt(alpha * (1 - alpha) / max(steps * self._accepted / alpha, 1.0))

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """Expected figures of each window, from k = 1."""
        if self.alpha is None:
            return ()
        rates, costs, windows = self.whole_rates, self.costs, []
        known = [rate for rate in self.conditional if rate is not None] if rates else []
        beyond = known[-1] if known else self.alpha
        reached = list(rates[:MAX_K])
        while len(reached) < MAX_K:
            reached.append((reached[-1] if reached else 1.0) * beyond)
        tokens = expected_by_window(reached)
        speeds = speedups(tokens, costs.step_costs(MAX_K)) if costs else []
        for k in range(1, MAX_K + 1):
            verify_cost = costs.verify_cost(k) if costs else 1.0
            with_costs: tuple[float | None, ...] = ()
            if costs is not None:
                with_costs = break_even_alpha(k, costs.draft, verify_cost), speeds[k]
            pays_below = break_even_draft_cost(tokens[k], k, verify_cost)
            windows.append(Window(k, tokens[k], k <= len(rates), pays_below, *with_costs))
        return tuple(windows)

    @property
    def best_k(self) -> int | None:
        """The fastest window; 0 if drafting does not pay, None without costs."""
        if not self.windows or self.costs is None:
            return None
        best = max(self.windows, key=lambda window: window.speedup or 0.0)
        return best.k if (best.speedup or 0.0) > 1 else 0

    @property
    def speedup(self) -> float | None:
        """Expected speedup of the current window with these costs."""
        costs, width, tokens = self.costs, self.num_draft_tokens, self.mean_acceptance_length
        if costs is None or tokens is None or width is None:
            return None
        return tokens / _at(width, lambda k: costs.step_costs(k)[k])

    @property
    def gain(self) -> float | None:
        """Speed of the best window relative to the current one."""
        if self.best_k is None:
            return None
        best = self.windows[self.best_k - 1].speedup if self.best_k else 1.0
        return ratio(best, self.speedup)

    @property
    def draft_share(self) -> float | None:
        """The drafter's share of a step's time, as measured or by the costs; None if unknown."""
        share = self.reading.draft_share
        width = self.num_draft_tokens
        tokens = self.mean_acceptance_length
        if share or self.costs is None or width is None or tokens is None or self.speedup is None:
            return share
        return width * self.costs.draft * self.speedup / tokens

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, without the course of the run."""
        reading = to_jsonable_python(self.reading, exclude={"course", "categories", "processes"})
        names = ("num_steps", "num_draft_tokens", "num_accepted_tokens", "rates")
        reading["processes"] = {
            name: to_jsonable_python({key: getattr(one, key) for key in names})
            | {"alpha": Diagnosis(one).alpha}
            for name, one in self.reading.processes.items()
        }
        derived = to_jsonable_python({name: getattr(self, name) for name in _DERIVED})
        return {"reading": reading, **derived, "costs": self.costs and self.costs.to_dict()}

    def profile(self) -> dict[str, Any]:
        """Acceptance rates by index, of the whole text and of each category, as JSON values."""
        names = ("engine", "format", "num_steps", "num_draft_tokens", "num_accepted_tokens")
        rates = enumerate(zip(self.conditional, self.unconditional, strict=True))
        return {name: getattr(self.reading, name) for name in names} | {
            "mean_acceptance_length": self.mean_acceptance_length,
            "alpha": self.alpha,
            "rates": [
                {"index": index, "conditional": if_reached, "marginal": share}
                for index, (if_reached, share) in rates
            ],
            "categories": {
                name: Diagnosis(of_one).profile()
                for name, of_one in self.reading.categories.items()
            },
        }


def _at(width: float, of_window: Callable[[int], float]) -> float:
    """The mean over windows of the two lengths nearest to `width`."""
    k = math.floor(width)
    below = of_window(k)
    return below + (width - k) * (of_window(k + 1) - below)


def given(draft: float, verify: Sequence[float] = (1.0,)) -> CostTable:
    """Costs in units of the target's pass over one token: of a draft pass, and of a target pass
    over 1, 2, 3 … tokens, or one number for all windows. Raises `ValueError` if one is not
    positive."""
    for name, cost in (("draft_cost", draft), *(("verify_cost", cost) for cost in verify)):
        if not 0 < cost < math.inf:
            raise ValueError(f"{name} must be positive, got {cost:g}")
    if not verify:
        raise ValueError("verify_cost must have at least one number")
    return CostTable(draft, tuple(verify))


def estimated(draft_size: str, target_size: str, verify: Sequence[float] = (1.0,)) -> CostTable:
    """Costs if a forward takes the time of reading its weights, as it does over few tokens. Sizes
    are the parameters that a forward reads, such as "0.6B"; of a mixture of experts the active
    ones. Raises `ValueError` if one is invalid."""
    return given(parameters(draft_size) / parameters(target_size), verify)


def from_words(draft: str, verify: str = "") -> tuple[CostTable | None, str]:
    """Costs from text fields, and their source in words; a `ValueError` names the argument.

    `draft` is a draft pass's cost such as "0.08", or two sizes such as "0.6B / 8B"; empty for
    unknown. `verify` is as for `given`, comma-separated; empty for 1.
    """
    table: tuple[float, ...] = (1.0,)
    if verify.strip():
        table = _numbers("verify_cost", verify, "several with commas between them")
    if not draft.strip():
        if verify.strip():
            raise ValueError("verify_cost needs draft_cost")
        return None, ""
    of_draft, slash, of_target = draft.partition("/")
    if slash:
        sizes = f"{of_draft.strip()} ÷ {of_target.strip()}"
        basis = f"an estimate from {sizes}, counting only the reading of weights"
        return estimated(of_draft, of_target, table), basis
    cost, *more = _numbers("draft_cost", draft, _SIZES)
    if more:
        raise ValueError(f"draft_cost must be one number, or {_SIZES}, got {draft!r:.40}")
    return given(cost, table), "as given"


def _numbers(name: str, text: str, other: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{name} must be a number, or {other}, got {text!r:.40}") from None


def parameters(size: str) -> float:
    """The number of parameters for a size such as "0.6B", or a `ValueError`."""
    match = _SIZE.fullmatch(size.strip())
    number = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    if not 0 < number < math.inf:
        raise ValueError(f"a model's size must be like 0.6B or 350M, got {size!r:.40}")
    return number
