"""What a few samples can say: a mean with its interval, and which of several choices may be the best.

The samples are prompts. Runs of one prompt with different seeds resemble each other, so they are averaged before anything is
counted, and everything is compared prompt by prompt: a prompt that is easy for one k is easy for the next, and in the
difference that goes away. Intervals and tests are Student's t with as many degrees of freedom as there are prompts less one,
which hold for few samples where these scatter about as a normal distribution does; speeds are compared by the logarithms of
their ratios, which do so better than the ratios.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import NamedTuple, TypeVar

LEVEL = 0.95
K = TypeVar("K", bound=Hashable)


class Estimate(NamedTuple):
    """A mean and its 95% interval; of a single sample, which knows nothing of its spread, there is none."""

    mean: float
    low: float | None = None
    high: float | None = None


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean of quantities that cannot be negative, with Student's interval, cut off at 0."""
    mean, reach = fmean(values), _reach(values)
    return Estimate(mean) if reach is None else Estimate(mean, max(0.0, mean - reach), mean + reach)


def share_of(values: Sequence[float]) -> Estimate:
    """The mean of shares, whose interval ends at 1, too."""
    mean, low, high = mean_of(values)
    return Estimate(mean, low, None if high is None else min(1.0, high))


def ratio_of(logs: Sequence[float]) -> Estimate:
    """The geometric mean of ratios from their logarithms, with the interval of the mean logarithm."""
    mean, reach = fmean(logs), _reach(logs)
    return Estimate(math.exp(mean), *(() if reach is None else (math.exp(mean - reach), math.exp(mean + reach))))


def may_be_best(scores: Mapping[K, Mapping[Hashable, float]], level: float = LEVEL) -> list[K]:
    """The choices that may be the best: with a probability of at least `level` the truly best one is among them.

    A choice is out where another beats it in a one-sided paired t-test. It is tested against every other one, each time at
    (1 - level) ÷ (number of the others), so that the truly best one is out by chance in at most 1 - level of all cases
    (Bonferroni), whichever looks best. Two choices that share fewer than two samples cannot be told apart.

    Args:
        scores: For each choice its score for each sample; larger is better.
        level: How sure it is to be.
    """
    each = 1 - (1 - level) / max(1, len(scores) - 1)

    def beats(a: Mapping[Hashable, float], b: Mapping[Hashable, float]) -> bool:
        return lies_above([a[sample] - b[sample] for sample in a if sample in b], 0.0, each)

    return [k for k, score in scores.items() if not any(beats(other, score) for other in scores.values())]


@cache
def quantile(within: float, degrees: int) -> float:
    """The t that Student's distribution lies within, on both sides, with this probability."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # bisects the angle, whose tangent is t ÷ √degrees
        middle = (low + high) / 2
        low, high = (middle, high) if _probability_within(middle, degrees) < within else (low, middle)
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _probability_within(angle: float, degrees: int) -> float:
    """Student's distribution for whole degrees of freedom: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    power = degrees % 2
    term, total = cosine**power, 0.0
    while power <= degrees - 2:
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
        power += 2
    return 2 / math.pi * (angle + sine * total) if degrees % 2 else sine * total


def lies_above(values: Sequence[float], bound: float, level: float = LEVEL) -> bool:
    """Whether the mean lies above a bound, by a one-sided t-test at 1 - level; never with fewer than two values."""
    reach = _reach(values, 2 * level - 1)
    return reach is not None and fmean(values) - bound > reach


def _reach(values: Sequence[float], within: float = LEVEL) -> float | None:
    """How far the interval reaches to either side of the mean; None for a single value."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return quantile(within, len(values) - 1) * deviation / math.sqrt(len(values))
