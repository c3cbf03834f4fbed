"""Speedup against the number of drafts k: Theorem 3.8 of Leviathan et al. 2023 (arXiv 2211.17192) and this run.

The theorem needs two numbers, both measured in the run itself: α, how often a draft is kept, and c, what a drafted
token costs in target steps. It takes a verification of k tokens to cost what one token costs, which is nearly so on a
GPU and much less so on a CPU. Where plain decoding was measured, a second curve counts what verifying cost in this run.
Both take acceptances as independent; the run's own point does not, which is why it need not lie on either.
"""

import math
from typing import Any, NamedTuple

import plotly.graph_objects as go

from naive_speculate.events import EventKind
from naive_speculate.palette import STYLES, TARGET
from naive_speculate.theory import speedup as expected_speedup
from naive_speculate.trace import Trace
from ui.charts.figures import empty, figure, surface
from ui.charts.steps import NO_DRAFTS, WAITING, steps_of

MAX_K = 12


class Costs(NamedTuple):
    """What a run measured.

    Attributes:
        alpha: Accepted ÷ (accepted + rejected) drafts.
        draft_cost: Seconds of a drafted token ÷ seconds of a plain target step.
        verify_cost: Seconds of a verification, and of what a step does beside, ÷ seconds of a plain target step.
        mean_drafts: Drafts a step, on average.
        measured: Tokens a second of the run's steps ÷ those of plain decoding.
        estimated: Whether the plain step was not measured and a verification stands for it.
    """

    alpha: float
    draft_cost: float
    verify_cost: float
    mean_drafts: float
    measured: float
    estimated: bool


def costs_of(trace: Trace, plain_tokens_per_second: float | None = None) -> Costs | None:
    """The numbers that the theorem needs; None where the run has no drafts, no verdicts or no times."""
    steps = [s for s in steps_of(trace) if s.drafted]
    accepted = sum(s.accepted for s in steps)
    # A step that did not keep every draft refused exactly one: those behind it were never judged.
    judged = accepted + sum(s.accepted < s.drafted for s in steps)
    seconds = sum(s.total_seconds for s in steps)
    plain = 1 / plain_tokens_per_second if plain_tokens_per_second else None
    step_seconds = plain or (sum(s.verify_seconds for s in steps) / len(steps) if steps else 0.0)
    if not judged or seconds <= 0 or step_seconds <= 0:
        return None
    drafted = sum(s.drafted for s in steps)
    beside = seconds - sum(s.draft_seconds for s in steps)
    return Costs(
        alpha=accepted / judged,
        draft_cost=max(1e-6, sum(s.draft_seconds for s in steps) / drafted / step_seconds),  # theory wants it positive
        verify_cost=max(1e-6, beside / len(steps) / step_seconds) if plain else 1.0,
        mean_drafts=drafted / len(steps),
        measured=(accepted + len(steps)) / seconds * step_seconds,
        estimated=plain is None,
    )


def speedup(trace: Trace, dark: bool = False, plain_tokens_per_second: float | None = None) -> go.Figure:
    """Theory's speedup for every k from this run's α and c, with this run's measured point.

    Args:
        trace: A run, whole or so far.
        dark: Whether the figure will stand on a dark page.
        plain_tokens_per_second: Measured speed of plain decoding; without it one verification stands for a plain step.
    """
    steps = steps_of(trace)
    costs = costs_of(trace, plain_tokens_per_second)
    if costs is None:
        if not steps:
            return empty(WAITING, dark=dark)
        drafted = any(s.drafted for s in steps)
        return empty("This run's rounds carry no times." if drafted else NO_DRAFTS, dark=dark)
    ks = list(range(max(MAX_K, round(costs.mean_drafts) + 2) + 1))
    theorem = [expected_speedup(costs.alpha, k, costs.draft_cost) for k in ks]
    curves = [_line("Theorem 3.8", ks, theorem, TARGET.color(dark), "solid" if costs.estimated else "dash")]
    best, gain = _best(ks, theorem)
    if not costs.estimated:
        here = [expected_speedup(costs.alpha, k, costs.draft_cost, _verify_cost(costs, k)) for k in ks]
        curves.append(_line("costs as here", ks, here, STYLES[EventKind.ACCEPTED].color(dark), "solid"))
        best, gain = _best(ks, here)
    point = {
        "type": "scatter",
        "mode": "markers",
        "name": "this run" + (", estimated" if costs.estimated else ""),
        "x": [costs.mean_drafts],
        "y": [costs.measured],
        "marker": {
            "color": STYLES[EventKind.RESAMPLED].color(dark),
            "size": 14,
            "symbol": "star",
            "line": {"color": surface(dark).ink, "width": 1},
        },
        "hovertemplate": "this run, %{x:.1f} drafts a round: %{y:.2f} ×<extra></extra>",
    }
    plain = _line("plain", [ks[0], ks[-1]], [1.0, 1.0], surface(dark).muted, "dot")
    plain.update({"mode": "lines", "showlegend": False, "hoverinfo": "skip"})
    return figure(
        [*curves, point, plain],
        dark=dark,
        takeaway=f"α = {costs.alpha:.2f}, c = {costs.draft_cost:.2f}: best k = {best}, {gain:.2f} × plain",
        x={"title": {"text": "drafts a round, k"}, "range": [-0.4, ks[-1] + 0.4], "dtick": 2},
        y={"range": [0, max(2, math.ceil(1.05 * max(*theorem, gain, costs.measured)))], "ticksuffix": "×"},
    )


def _verify_cost(costs: Costs, k: int) -> float:
    """Cost of verifying k drafts: 1 for none, as measured for as many as the run had, and on a straight line else."""
    return max(1e-6, 1 + (costs.verify_cost - 1) * k / costs.mean_drafts)


def _best(ks: list[int], curve: list[float]) -> tuple[int, float]:
    best = max(ks, key=curve.__getitem__)
    return best, curve[best]


def _line(name: str, ks: list[int], curve: list[float], color: str, dash: str) -> dict[str, Any]:
    best, _ = _best(list(range(len(ks))), curve)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": ks,
        "y": curve,
        "line": {"color": color, "width": 2, "dash": dash},
        "marker": {"size": [10 if place == best else 4 for place in range(len(ks))], "symbol": "circle"},
        "hovertemplate": "k = %{x}: %{y:.2f} ×<extra></extra>",
    }
