"""Speedup against k at one temperature: as measured, with intervals, and by theory from the same runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from naive_speculate.theory import speedup
from ui.charts.figures import DRAFT, MUTED, TARGET, Figure, figure, line, nice_ceiling
from ui.experiments.sweep import Cell, Sample, cells, finding

LEAST_COST = 1e-3
THEORY = "theory, k = %{x}: %{y:.2f}×"


@dataclass(frozen=True)
class Theory:
    """Measured inputs of the theorem; costs are in plain steps."""

    alpha: float  # accepted ÷ judged, over all runs at the temperature
    draft: float  # cost of drafting a token
    # first, each: cost of a step with k draft tokens: first + k · each, fitted robustly
    first: float
    each: float

    def speedup(self, k: int) -> float:
        """Leviathan et al. 2023, Theorem 3.8, with the measured cost of a step."""
        verify = max(LEAST_COST, self.first + k * (self.each - self.draft)) if k else 1.0
        return speedup(self.alpha, k, self.draft, verify)


def theory_of(samples: Sequence[Sample], temperature: float) -> Theory | None:
    """Alpha and costs of the runs at a temperature; None if most steps drafted fewer than k tokens, which the theorem
    excludes, or plain runs are missing."""
    here = [s for s in samples if s.temperature == temperature]
    plain, drafting = [s for s in here if s.k == 0], [s for s in here if s.k and s.drafted]
    judged = sum(s.accepted + s.rejected for s in drafting)
    if not plain or not judged or 2 * sum(s.whole for s in drafting) < sum(s.rounds for s in drafting):
        return None
    unit = median(s.round_seconds for s in plain)
    draft = max(LEAST_COST, median(s.draft_seconds for s in drafting) / unit)
    steps = {k: median(s.round_seconds for s in drafting if s.k == k) / unit for k in sorted({s.k for s in drafting})}
    # Theil and Sen: the median slope between any two points, which a few outliers cannot change.
    each = median([(steps[b] - steps[a]) / (b - a) for a, b in combinations(steps, 2)] or [draft])
    first = median(cost - k * each for k, cost in steps.items())
    return Theory(sum(s.accepted for s in drafting) / judged, draft, first, each)


def speedup_curve(samples: Sequence[Sample], temperature: float) -> Figure:
    """The chart: a point with interval per k, the theoretical curve, and a line at plain decoding."""
    found = [cell for cell in cells(samples) if cell.temperature == temperature]
    theory = theory_of(samples, temperature)
    last = max(cell.k for cell in found)
    curve = [theory.speedup(k) for k in range(last + 1)] if theory else []
    tops = [cell.speedup.high or cell.speedup.mean for cell in found]
    conclusion = finding(samples, temperature)
    spread = any(cell.speedup.high is not None for cell in found)
    return figure(
        [
            line("plain decoding", [0, last], [1, 1], MUTED, line={"color": MUTED, "width": 1}, showlegend=False),
            *([line("theory", list(range(last + 1)), curve, TARGET, THEORY, dash="dash")] if curve else []),
            _measured(f"measured{', with 95% interval' * spread}", "circle-open", [cell for cell in found if not cell.best]),
            _measured("may be the fastest", "circle", [cell for cell in found if cell.best]),
        ],
        takeaway=conclusion if conclusion.startswith("k =") else conclusion[0].upper() + conclusion[1:],
        x={"title": {"text": "draft tokens per step, k"}, "range": [-0.5, last + 0.7], "tickvals": [0, *(c.k for c in found)]},
        y={"title": {"text": "× plain"}, "range": [0, min(1.15 * max(1.0, *curve, *tops), nice_ceiling(2 * max(1.0, *curve)))]},
        height=260,
    )


def _measured(name: str, symbol: str, found: Sequence[Cell]) -> dict[str, object]:
    known = [cell.speedup for cell in found]
    above = [(value.high or value.mean) - value.mean for value in known]
    below = [value.mean - (value.low or value.mean) for value in known]
    error = {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 2, "width": 5}
    marker = {"size": 10, "color": DRAFT, "symbol": symbol, "line": {"width": 2, "color": DRAFT}}
    intervals = ["" if low is None or high is None else f"({low:.2f} to {high:.2f})" for _, low, high in known]
    ks, means, hover = [cell.k for cell in found], [value.mean for value in known], "k = %{x}: %{y:.2f}× %{customdata}"
    points = line(name, ks, means, DRAFT, hover, mode="markers", marker=marker, customdata=intervals)
    return points | {"showlegend": bool(found), "error_y": error if any(above) else None}
