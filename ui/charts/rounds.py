"""The five charts of a run: pure functions from a trace, live, finished or loaded, to a Plotly figure.

A run without drafts, or stopped before its first step, is a run like any other: its charts say so in a sentence.
"""

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go

from naive_speculate.events import EventKind
from naive_speculate.palette import DRAFT, STYLES, TARGET
from naive_speculate.trace import Trace
from ui.charts.figures import empty, figure, nice_ceiling, steps_shown, surface
from ui.charts.speedup import speedup
from ui.charts.steps import NO_DRAFTS, WAITING, Step, steps_of
from ui.labels import count, milliseconds, percent

_ACCEPTED = STYLES[EventKind.ACCEPTED]
_REJECTED = STYLES[EventKind.REJECTED]


def acceptance(trace: Trace, dark: bool = False) -> go.Figure:
    """Share of the drafts that each step kept, and its running mean over all drafts so far."""
    steps = steps_of(trace)
    judged = [s for s in steps if s.drafted]
    if not judged:
        return empty(NO_DRAFTS if steps else WAITING, dark=dark)
    mean, kept, drafted = [], 0, 0
    for s in judged:
        kept, drafted = kept + s.accepted, drafted + s.drafted
        mean.append(kept / drafted)
    x = [s.number for s in judged]
    return figure(
        [
            {
                "type": "bar",
                "name": "this round",
                "x": x,
                "y": [s.accepted / s.drafted for s in judged],
                "text": [f"{s.accepted} of {s.drafted} kept" for s in judged],
                "textposition": "none",
                "marker": {"color": _ACCEPTED.color(dark), "opacity": 0.45, "line": {"width": 0}},
                "hovertemplate": "round %{x}: %{text}<extra></extra>",
            },
            {
                "type": "scatter",
                "mode": "lines",
                "name": "mean so far",
                "x": x,
                "y": mean,
                "line": {"color": surface(dark).ink, "width": 2},
                "hovertemplate": "up to round %{x}: %{y:.1%}<extra></extra>",
            },
            {
                "type": "scatter",
                "mode": "markers",
                "name": "none",
                "showlegend": False,
                "x": [s.number for s in judged if not s.accepted],
                "y": [0.025] * sum(not s.accepted for s in judged),
                "marker": {
                    "color": _REJECTED.color(dark),
                    "symbol": "x-thin-open",
                    "size": 6 if len(steps) <= 50 else 3,
                    "line": {"width": 1.5},
                },
                "hovertemplate": "round %{x}: none kept<extra></extra>",
            },
        ],
        dark=dark,
        takeaway=f"{kept:,} of {count(drafted, 'draft')} kept: {percent(kept / drafted)}",
        x={"title": {"text": "round"}, "range": [0.4, steps_shown(len(steps)) + 0.6]},
        y={"range": [0, 1.02], "tickformat": ".0%"},
    )


def positions(trace: Trace, dark: bool = False) -> go.Figure:
    """Share kept at each place of the draft window, of the drafts that were still in the running there."""
    steps = steps_of(trace)
    places = max((s.drafted for s in steps), default=0)
    if not places:
        return empty(NO_DRAFTS if steps else WAITING, dark=dark)
    reached = [sum(s.drafted > place and s.accepted >= place for s in steps) for place in range(places)]
    kept = [sum(s.accepted > place for s in steps) for place in range(places)]
    shown = [place for place in range(places) if reached[place]]
    alpha = sum(kept) / sum(reached)
    return figure(
        [
            {
                "type": "bar",
                "name": "kept",
                "x": [place + 1 for place in shown],
                "y": [kept[place] / reached[place] for place in shown],
                "text": [f"{kept[place]}/{reached[place]}" for place in shown],
                "textposition": "auto" if places <= 10 else "none",
                "insidetextanchor": "start",
                "textangle": 0,
                "marker": {"color": _ACCEPTED.color(dark)},
                "insidetextfont": {"color": surface(dark).page},
                "hovertemplate": "draft %{x}: %{text} kept, %{y:.1%}<extra></extra>",
            },
            {
                "type": "scatter",
                "mode": "lines",
                "name": "all together, α",
                "x": [0.5, places + 0.5],
                "y": [alpha, alpha],
                "line": {"color": surface(dark).ink, "width": 2, "dash": "dash"},
                "hovertemplate": "α = %{y:.3f}<extra></extra>",
            },
        ],
        dark=dark,
        takeaway=f"A draft that is reached is kept in {percent(alpha)} of cases",
        x={
            "title": {"text": "place in the draft window"},
            "range": [0.4, places + 0.6],
            "dtick": 1 + (places - 1) // 10,
        },
        y={"range": [0, 1.08], "tickformat": ".0%", "tickvals": [0, 0.25, 0.5, 0.75, 1]},
    )


def lengths(trace: Trace, dark: bool = False) -> go.Figure:
    """How many drafts a step kept: share of the steps with none, one, two …"""
    steps = steps_of(trace)
    longest = max((s.drafted for s in steps), default=0)
    if not longest:
        return empty(NO_DRAFTS if steps else WAITING, dark=dark)
    amounts = [0] * (longest + 1)
    for s in steps:
        amounts[s.accepted] += 1
    tokens = sum(s.accepted + 1 for s in steps) / len(steps)
    return figure(
        [
            {
                "type": "bar",
                "name": "rounds",
                "x": list(range(longest + 1)),
                "y": [amount / len(steps) for amount in amounts],
                "text": [str(amount) for amount in amounts],
                "textposition": "outside" if longest <= 10 else "none",
                "cliponaxis": False,
                "marker": {"color": [_REJECTED.color(dark)] + [_ACCEPTED.color(dark)] * longest},
                "hovertemplate": "%{x} kept: %{text} rounds, %{y:.1%}<extra></extra>",
                "showlegend": False,
            }
        ],
        dark=dark,
        takeaway=f"{tokens:.2f} tokens a round, the extra one included",
        x={"title": {"text": "drafts kept in a round"}, "range": [-0.6, longest + 0.6], "dtick": 1 + longest // 11},
        y={"range": [0, 1.08], "tickformat": ".0%", "tickvals": [0, 0.25, 0.5, 0.75, 1], "title": {"text": "rounds"}},
    )


def timing(trace: Trace, dark: bool = False) -> go.Figure:
    """Time of each step: drafting, verifying, and the rest."""
    steps = steps_of(trace)
    if not steps:
        return empty(WAITING, dark=dark)
    total = sum(s.total_seconds for s in steps)
    if total <= 0:
        return empty("This run's rounds carry no times.", dark=dark)
    x = [s.number for s in steps]
    parts = [
        ("draft", [s.draft_seconds for s in steps], DRAFT.color(dark), "/"),
        ("verify", [s.verify_seconds for s in steps], TARGET.color(dark), ""),
        ("the rest", [s.total_seconds - s.draft_seconds - s.verify_seconds for s in steps], surface(dark).muted, "."),
    ]
    bars = [_time_bars(name, x, seconds, color, shape) for name, seconds, color, shape in parts]
    share = sum(s.draft_seconds for s in steps) / total
    if not any(s.drafted for s in steps):
        takeaway = f"{milliseconds(total / len(steps))} a round, and nothing spent on drafts"
    else:
        takeaway = f"{milliseconds(total / len(steps))} a round, {percent(share)} of it drafting"
    return figure(
        bars,
        dark=dark,
        takeaway=takeaway,
        x={"title": {"text": "round"}, "range": [0.4, steps_shown(len(steps)) + 0.6]},
        y={"range": [0, _time_ceiling(steps)], "title": {"text": "ms"}},
        layout={"barmode": "stack", "bargap": 0.15 if len(steps) <= 128 else 0},
    )


def _time_bars(name: str, x: list[int], seconds: list[float], color: str, shape: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": name,
        "x": x,
        "y": [value * 1000 for value in seconds],
        "marker": {"color": color, "line": {"width": 0}, "pattern": {"shape": shape, "size": 5, "solidity": 0.35}},
        "hovertemplate": f"round %{{x}}, {name}: %{{y:.2f}} ms<extra></extra>",
    }


def _time_ceiling(steps: list[Step]) -> float:
    """Top of the axis in ms. One slow step, such as a machine's first, runs out of it rather than squash all others."""
    times = sorted(s.total_seconds for s in steps)
    usual = times[(len(times) - 1) * 95 // 100]
    return nice_ceiling(1000 * (times[-1] if times[-1] <= 3 * usual else usual * 1.25))


Chart = Callable[[Trace, bool], go.Figure]

CHARTS: dict[str, Chart] = {
    "chart-acceptance": acceptance,
    "chart-positions": positions,
    "chart-lengths": lengths,
    "chart-timing": timing,
    "chart-speedup": speedup,
}
"""The charts of a run by the id of the element that shows them."""
