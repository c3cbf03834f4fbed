"""Chi-square tests of sampled tokens against probabilities, with their power and an interval for
the bias.

The bias is the total variation: half of Σ |observed frequency − probability|. Pinsker's
inequality bounds it by the test's noncentrality λ after N samples: bias ≤ √(λ / N) / 2. So a
test that finds λ finds every bias from √(λ / N) / 2.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import rel_entr
from scipy.stats import chi2, ncx2

POWER = 0.9  # the probability of finding the smallest bias that is stated as found
CONFIDENCE = 0.95
LEAST_EXPECTED = 5.0  # cells with a smaller expected count are pooled

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """The result of one test."""

    statistic: float  # chi-square distributed if the probabilities are right
    degrees: int  # its degrees of freedom; 0 if there was nothing to test
    p_value: float  # the probability of a statistic this large on a correct sampler
    num_samples: int  # N
    bias: float  # the observed total variation, chance included

    @property
    def interval(self) -> tuple[float, float]:
        """Of the total variation, 95%: from the deviation of frequencies (Weissman et al. 2003) to
        Pinsker's bound."""
        tail, n = (1 - CONFIDENCE) / 2, self.num_samples
        if self.degrees < 1:
            return 0.0, 1.0
        chance = math.sqrt(((self.degrees + 1) * math.log(2) - math.log(tail)) / (2 * n))
        highest = 1.0
        if math.isfinite(self.statistic):
            highest = math.sqrt(_noncentrality(self.statistic, self.degrees, tail) / n) / 2
        return max(0.0, self.bias - chance), max(self.bias, min(1.0, highest))

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"bias {self.bias:.3f} ({low:.3f} to {high:.3f}), p = {self.p_value:.2g},"
            f" {self.num_samples} samples"
        )


def g_test(counts: Sequence[float] | Array, probs: Sequence[float] | Array) -> Fit:
    """The G-test (likelihood ratio) of counts against probabilities, by token, with Williams'
    correction for small counts. A token of probability 0 that was observed gives the p-value 0."""
    observed, p = np.asarray(counts, float), np.asarray(probs, float)
    n = observed.sum()
    if (observed[p <= 0] > 0).any():
        return Fit(math.inf, len(p) - 1, 0.0, int(n), float(np.abs(observed / n - p).sum() / 2))
    observed, expected = (pooled(x, p * n) for x in (observed, p * n))
    statistic = 2 * float(rel_entr(observed, expected).sum())
    degrees = len(observed) - 1
    correction = 1 + (float((n / expected).sum()) - 1) / (6 * n * degrees) if degrees else 1.0
    bias = float(np.abs(observed - expected).sum() / 2 / n)
    return fit(statistic / correction, degrees, int(n), bias)


def rank_test(strata: Sequence[tuple[Sequence[int], Array]]) -> Fit:
    """Pearson's test of outcomes that each have their own probabilities. Strata are tested apart
    and added up: the index of each outcome, and probabilities `[num_outcomes, num_ranks]`. Of one
    context it is the chi-square test of its tokens; of several it adds up what was expected and
    observed at each rank, with the sum of the outcomes' covariances."""
    statistic, degrees, deviation, total = 0.0, 0, 0.0, 0
    for outcomes, probs in strata:
        expected = probs.sum(axis=0)
        difference = np.bincount(outcomes, minlength=len(expected)) - expected
        covariance = np.diag(expected) - probs.T @ probs
        by_row = np.apply_along_axis(pooled, 0, covariance, expected)
        covariance = np.apply_along_axis(pooled, 1, by_row, expected)
        difference = pooled(difference, expected)
        rank = int(np.linalg.matrix_rank(covariance, hermitian=True)) if len(difference) > 1 else 0
        if rank:
            statistic += float(difference @ np.linalg.pinv(covariance, hermitian=True) @ difference)
            degrees += rank
            deviation += float(np.abs(difference).sum() / 2)
            total += len(outcomes)
    return fit(statistic, degrees, total, deviation / max(1, total))


def two_sample_test(a: Mapping[str, int], b: Mapping[str, int]) -> Fit:
    """The G-test of whether two samples have one distribution; its bias is between them."""
    texts = sorted(a.keys() | b.keys())
    table = np.array([[sample.get(text, 0) for text in texts] for sample in (a, b)], float)
    sizes, shares = table.sum(axis=1), table.sum(axis=0) / table.sum()
    table = np.array([pooled(row, shares * sizes.min()) for row in table])
    expected = sizes[:, None] * table.sum(axis=0) / sizes.sum()
    bias = float(np.abs(table[0] / sizes[0] - table[1] / sizes[1]).sum() / 2)
    statistic = 2 * float(rel_entr(table, expected).sum())
    return fit(statistic, table.shape[1] - 1, int(sizes.prod() / sizes.sum()), bias)


def fit(statistic: float, degrees: int, num_samples: int, bias: float) -> Fit:
    if degrees < 1:
        return Fit(0.0, 0, 1.0, num_samples, 0.0)
    return Fit(statistic, degrees, float(chi2.sf(statistic, degrees)), num_samples, bias)


def pooled(x: Array, expected: Array) -> Array:
    """Cells of small expected counts are added up, the smallest first, until their sum is large
    enough."""
    order = np.argsort(expected)
    few = int((expected < LEAST_EXPECTED).sum())
    if few:
        enough = np.searchsorted(np.cumsum(expected[order]), LEAST_EXPECTED)
        few = max(few, int(enough) + 1)
    return np.concatenate([x[order[few:]], [x[order[:few]].sum()]]) if few else x[order]


def samples_needed(bias: float, degrees: int, error_rate: float) -> int:
    """To find this total variation, and every larger one, with 90% power."""
    return math.ceil(_detectable(degrees, error_rate) / (4 * bias**2))


def smallest_bias(num_samples: int, degrees: int, error_rate: float) -> float:
    """The total variation from which this many samples find every one with 90% power."""
    if not num_samples:
        return 1.0
    return min(1.0, math.sqrt(_detectable(degrees, error_rate) / (4 * num_samples)))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for many tests (Holm 1979): those below a rate, over all tests, have
    that rate of false alarms."""
    p, count = np.asarray(p_values), len(p_values)
    order = np.argsort(p)
    adjusted = np.maximum.accumulate(p[order] * np.arange(count, 0, -1)).clip(max=1.0)
    return list(map(float, adjusted[np.argsort(order)]))


def _detectable(degrees: int, error_rate: float) -> float:
    """The noncentrality that is found with 90% power."""
    return _noncentrality(float(chi2.isf(error_rate, degrees)), degrees, 1 - POWER)


def _noncentrality(statistic: float, degrees: int, probability: float) -> float:
    """Under which a statistic at most this large has this probability; 0 if there is none."""

    def excess(value: float) -> float:
        return float(ncx2.cdf(statistic, degrees, value)) - probability

    highest = 2 * statistic + 20 * math.sqrt(statistic + degrees) + 50
    return float(brentq(excess, 1e-9, highest)) if excess(1e-9) > 0 else 0.0
