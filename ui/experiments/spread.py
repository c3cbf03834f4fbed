"""Statistics of a few samples: a mean with its interval, and which of several choices may be the
best; and times of runs that are robust against other programs on the machine.

The samples are prompts. Runs of one prompt with different seeds are correlated, so they are
averaged first. All comparisons are paired by prompt, which removes the prompt's difficulty.
Intervals and tests use Student's t with n − 1 degrees of freedom, which suits few, roughly
normal samples. Speeds are compared by the logarithms of their ratios, which are closer to
normal.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple, TypeVar

import numpy as np

from naive_speculate.events import Event, EventKind

LEVEL = 0.95
LEAST = 5  # fewer samples have no interval: it would be too wide to be a finding
K = TypeVar("K", bound=Hashable)


class Estimate(NamedTuple):
    """A mean and its 95% interval; fewer than `LEAST` samples have none."""

    mean: float
    low: float | None = None
    high: float | None = None


def mean_of(values: Sequence[float], most: float = math.inf) -> Estimate:
    """The mean of quantities from 0 to `most` with Student's interval, cut off there."""
    mean, reach = fmean(values), _reach(values, least=LEAST)
    return Estimate(
        mean, *(() if reach is None else (max(0.0, mean - reach), min(most, mean + reach)))
    )


def ratio_of(logs: Sequence[float]) -> Estimate:
    """The geometric mean of ratios, from their logarithms, with its interval."""
    mean, reach = fmean(logs), _reach(logs, least=LEAST)
    return Estimate(
        math.exp(mean), *(() if reach is None else (math.exp(mean - reach), math.exp(mean + reach)))
    )


def may_be_best(scores: Mapping[K, Mapping[Hashable, float]]) -> list[K]:
    """The choices that may be the best: with a probability of at least `LEVEL`, the truly best
    one is among them.

    `scores` are each choice's scores for each sample; larger is better. A choice is excluded if
    another beats it in a one-sided paired t-test. Each test is at (1 - LEVEL) ÷ (number of other
    choices), so that the best one is excluded by chance in at most 1 - LEVEL of all cases
    (Bonferroni). Choices that share fewer than two samples are a tie.
    """
    each = 1 - (1 - LEVEL) / max(1, len(scores) - 1)

    def beats(a: Mapping[Hashable, float], b: Mapping[Hashable, float]) -> bool:
        return lies_above([a[sample] - b[sample] for sample in a if sample in b], 0.0, each)

    return [
        k
        for k, score in scores.items()
        if not any(beats(other, score) for other in scores.values())
    ]


def lies_above(values: Sequence[float], bound: float, level: float = LEVEL) -> bool:
    """Whether the mean lies above a bound, by a one-sided t-test at 1 - level; false for fewer
    than two values."""
    reach = _reach(values, 2 * level - 1)
    return reach is not None and fmean(values) - bound > reach


def _reach(values: Sequence[float], within: float = LEVEL, least: int = 2) -> float | None:
    """Half the width of the interval; None for fewer than `least` values."""
    if len(values) < least:
        return None
    from scipy.special import stdtrit  # 45 MB, which a page without experiments does not need

    quantile = float(stdtrit(len(values) - 1, (1 + within) / 2))
    return quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def undisturbed(times: Sequence[float]) -> float:
    """The lower quartile: the time without disturbance by other programs."""
    return sorted(times)[(len(times) - 1) // 4]


def step_seconds(events: Iterable[Event]) -> float | None:
    """Mean undisturbed time of a step; None if no step was timed.

    The quartile is taken among steps with equally many draft tokens, since shorter steps are
    faster.
    """
    by_length: dict[int, list[float]] = {}
    for event in events:
        if event.kind == EventKind.STEP and event.total_seconds:
            by_length.setdefault(event.num_draft or 0, []).append(event.total_seconds)
    if not by_length:
        return None
    return fmean(undisturbed(times) for times in by_length.values() for _ in times)


def draft_seconds(events: Iterable[Event]) -> float:
    """Undisturbed time to draft one token; 0 if nothing was drafted."""
    times = [
        e.draft_seconds / e.num_draft
        for e in events
        if e.kind == EventKind.STEP and e.draft_seconds and e.num_draft
    ]
    return undisturbed(times) if times else 0.0
