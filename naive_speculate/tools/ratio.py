"""Is drafting faster? The ratio of two speeds with its interval, from paired measurements.

The ratio is the geometric mean of the pairs' ratios, and its 95% interval is Student's of their
logarithms, transformed back (Bland and Altman 1996, "Transformations, means, and confidence
intervals", BMJ 312:1079): mean ± t · s ÷ √n with n − 1 degrees of freedom. Logarithms are closer
to normal than ratios, and give 2 and ½ the same distance from 1. A geometric mean does not depend
on which of the two speeds is the unit (Fleming and Wallace 1986, CACM 29:218).

A pair is two measurements with everything but the drafts in common: the same prompt, seed or
stretch of a run, timed soon after each other. That removes the difficulty of the prompt and the
drift of the machine. Runs of one prompt with different seeds are correlated, so they are averaged
first.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple, TypeVar

LEVEL = 0.95
LEAST = 5  # fewer samples have no interval: it would be too wide to be a finding
K = TypeVar("K", bound=Hashable)


class Estimate(NamedTuple):
    """A mean and its 95% interval; too few samples have none."""

    mean: float
    low: float | None = None
    high: float | None = None


def ratio_of(logs: Sequence[float], least: int = LEAST) -> Estimate:
    """From logarithms; fewer than `least` have no interval."""
    mean, reach = fmean(logs), _reach(logs, least=least)
    if reach is None:
        return Estimate(math.exp(mean))
    return Estimate(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def logs_of(speeds: Iterable[float], others: Iterable[float]) -> list[float]:
    """Of the ratios of paired, positive speeds."""
    return [math.log(one / other) for one, other in zip(speeds, others, strict=True)]


def mean_of(values: Sequence[float], most: float = math.inf) -> Estimate:
    """The mean of quantities from 0 to `most` with Student's interval, cut off there."""
    mean, reach = fmean(values), _reach(values, least=LEAST)
    if reach is None:
        return Estimate(mean)
    return Estimate(mean, max(0.0, mean - reach), min(most, mean + reach))


def may_be_best(scores: Mapping[K, Mapping[Hashable, float]]) -> list[K]:
    """With a probability of at least `LEVEL`, the truly best choice is among them. `scores` are
    each choice's scores for each sample; larger is better. A choice is excluded if another beats it
    in a one-sided paired t-test at (1 - LEVEL) ÷ (number of other choices), so that the best one is
    excluded by chance in at most 1 - LEVEL of all cases (Bonferroni). Choices that share fewer than
    two samples are a tie."""
    each = 1 - (1 - LEVEL) / max(1, len(scores) - 1)

    def beats(a: Mapping[Hashable, float], b: Mapping[Hashable, float]) -> bool:
        return lies_above([a[sample] - b[sample] for sample in a if sample in b], 0.0, each)

    return [
        k
        for k, score in scores.items()
        if not any(beats(other, score) for other in scores.values())
    ]


def lies_above(values: Sequence[float], bound: float, level: float = LEVEL) -> bool:
    """By a one-sided t-test of the mean at 1 - level; false for fewer than two values."""
    reach = _reach(values, 2 * level - 1)
    return reach is not None and fmean(values) - bound > reach


def typical(times: Sequence[tuple[int, float]]) -> list[float]:
    """Times of steps, each with its number of draft tokens, without disturbance by other programs:
    each is replaced by the lower quartile of the steps with as many draft tokens. What disturbs
    only ever takes longer, so the quartile holds where half of the steps are disturbed."""
    alike = defaultdict[int, list[float]](list)
    for length, seconds in times:
        alike[length].append(seconds)
    quartiles = {length: undisturbed(times_of) for length, times_of in alike.items()}
    return [quartiles[length] for length, _ in times]


def undisturbed(times: Sequence[float]) -> float:
    return sorted(times)[(len(times) - 1) // 4]


def _reach(values: Sequence[float], within: float = LEVEL, least: int = 2) -> float | None:
    """Half the width of the interval; None for fewer than `least` values."""
    if len(values) < max(least, 2):
        return None
    # 45 MB, which a program that compares nothing does not need; scipy.stats takes 30 more
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1 + within) / 2))
    return quantile * stdev(values) / math.sqrt(len(values))
