"""Speedup against k at one temperature: as measured, with its spread, and as theory has it from the same runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from naive_speculate.theory import speedup
from ui.charts.figures import DRAFT, MUTED, TARGET, Figure, empty, figure, nice_ceiling
from ui.experiments.sweep import Cell, Sample, cells, finding

LEAST_COST = 1e-3


@dataclass(frozen=True)
class Theory:
    """What theory needs, measured.

    Attributes:
        alpha: Kept ÷ judged, of all runs at the temperature.
        draft: Cost of drafting a token, in plain rounds.
        verify: By k, the cost of the rest of a round; between measured k it is interpolated.
    """

    alpha: float
    draft: float
    verify: dict[int, float]

    def speedup(self, k: int) -> float:
        """Leviathan et al. 2023, Theorem 3.8, with what a round was measured to cost."""
        return speedup(self.alpha, k, self.draft, self._verify)

    def _verify(self, k: int) -> float:
        if k in self.verify:
            return self.verify[k]
        below, above = max(known for known in self.verify if known < k), min(known for known in self.verify if known > k)
        share = (k - below) / (above - below)
        return (1 - share) * self.verify[below] + share * self.verify[above]


def theory_of(samples: Sequence[Sample], temperature: float) -> Theory | None:
    """What the runs at a temperature say of alpha and costs; None where they did not draft k tokens in most rounds, which
    the theorem is about, or plain runs are missing."""
    here = [s for s in samples if s.temperature == temperature]
    plain, drafting = [s for s in here if s.k == 0], [s for s in here if s.k and s.drafted]
    judged = sum(s.accepted + s.rejected for s in drafting)
    if not plain or not judged or 2 * sum(s.whole for s in drafting) < sum(s.rounds for s in drafting):
        return None
    unit = median(s.round_seconds for s in plain)
    draft = max(LEAST_COST, median(s.draft_seconds for s in drafting) / unit)
    verify = {0: 1.0}
    for k in sorted({s.k for s in drafting}):
        verify[k] = max(LEAST_COST, median(s.round_seconds for s in drafting if s.k == k) / unit - k * draft)
    return Theory(sum(s.accepted for s in drafting) / judged, draft, verify)


def speedup_curve(samples: Sequence[Sample], temperature: float) -> Figure:
    """The chart: a point for every k with its interval, theory's curve, and a line where plain decoding is."""
    found = [cell for cell in cells(samples) if cell.temperature == temperature]
    if not found:
        return empty("Nothing has been run yet.")
    theory = theory_of(samples, temperature)
    last = max(cell.k for cell in found)
    curve = [theory.speedup(k) for k in range(last + 1)] if theory else []
    tops = [cell.speedup.high or cell.speedup.mean for cell in found]
    said = finding(samples, temperature)
    return figure(
        [
            {
                "type": "scatter",
                "mode": "lines",
                "name": "plain decoding",
                "x": [0, last],
                "y": [1, 1],
                "line": {"color": MUTED, "width": 1},
                "hoverinfo": "skip",
                "showlegend": False,
            },
            *([_theory(curve)] if curve else []),
            _measured(found),
        ],
        takeaway=said if said.startswith("k =") else said[0].upper() + said[1:],
        x={"title": {"text": "drafts a round, k"}, "range": [-0.5, last + 0.7], "tickvals": [0, *(c.k for c in found)]},
        y={"title": {"text": "× plain"}, "range": [0, min(1.15 * max(1.0, *curve, *tops), nice_ceiling(2 * max(1.0, *curve)))]},
        height=260,
    )


def _theory(curve: Sequence[float]) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "theory",
        "x": list(range(len(curve))),
        "y": list(curve),
        "line": {"color": TARGET, "width": 2, "dash": "dash"},
        "hovertemplate": "theory, k = %{x}: %{y:.2f}×<extra></extra>",
    }


def _measured(found: Sequence[Cell]) -> dict[str, object]:
    known = [cell.speedup for cell in found]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "measured, with 95% interval",
        "x": [cell.k for cell in found],
        "y": [value.mean for value in known],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [(value.high or value.mean) - value.mean for value in known],
            "arrayminus": [value.mean - (value.low or value.mean) for value in known],
            "thickness": 2,
            "width": 5,
        },
        # What may be the best is filled.
        "marker": {
            "size": 10,
            "color": DRAFT,
            "symbol": ["circle" if cell.best else "circle-open" for cell in found],
            "line": {"width": 2, "color": DRAFT},
        },
        "customdata": [_range(cell) for cell in found],
        "hovertemplate": "k = %{x}: %{y:.2f}× %{customdata}<extra></extra>",
    }


def _range(cell: Cell) -> str:
    _, low, high = cell.speedup
    return "" if low is None or high is None else f"({low:.2f} to {high:.2f})"
