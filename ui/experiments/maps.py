"""Charts of sweeps: heat maps over k and temperature or batch size, and speedup against k at one
temperature."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any

from naive_speculate.speculate.theory import speedup
from naive_speculate.tools.ratio import Estimate
from ui.charts.figures import (
    DRAFT,
    MUTED,
    TARGET,
    Figure,
    axis,
    category_axis,
    empty,
    error_bars,
    figure,
    line,
    nice_ceiling,
)
from ui.experiments.batches import BatchSample, batch_speedups, where_it_pays
from ui.experiments.sweep import Cell, Sample, cells, finding
from ui.labels import percent

NOTHING_YET = "Nothing has been run yet."
INK = "#17181c"  # the numbers' colour: readable on every colour of the scales, in both themes
ACCEPTANCE = [(0.0, "#f0f7f2"), (1.0, "#4fb477")]
SLOWER_FASTER = [(0.0, "#e8a24a"), (0.5, "#f5f3ee"), (1.0, "#6ea8ff")]
"""Amber is slower than plain decoding, blue is faster; colour-blind readers can distinguish
them."""
FEW_COLUMNS = 5  # with more columns, intervals need a smaller font
LEAST_COST = 1e-3
THEORY = "theory, k = %{x}: %{y:.2f}×"

Field = tuple[float, int]


def acceptance_map(
    made: Sequence[Cell], ks: Sequence[int], temperatures: Sequence[float]
) -> Figure:
    """Acceptance rate for each k and temperature."""
    if not made:
        return empty(NOTHING_YET)
    values = {(c.temperature, c.k): c.acceptance_rate for c in made}
    few, form = len(temperatures), "{:.0f}–{:.0f}%"
    texts = {
        key: _with_spread(percent(value.mean), value, few, form, 100)
        for key, value in values.items()
    }
    low = min(value.mean for value in values.values())
    high = max(value.mean for value in values.values())
    share = (
        percent(low)
        if percent(low) == percent(high)
        else f"Between {percent(low)} and {percent(high)}"
    )
    said = f"{share} of the draft tokens were accepted"
    scale = {"colorscale": ACCEPTANCE, "zmin": 0.0, "zmax": 1.0}
    return _heat_map(
        values, texts, ks, temperatures, columns_are="temperature", takeaway=said, **scale
    )


def speedup_map(made: Sequence[Cell], ks: Sequence[int], temperatures: Sequence[float]) -> Figure:
    """Speedup over plain decoding for each k and temperature; every k that may be the best has a
    star."""
    if not made:
        return empty(NOTHING_YET)
    stars = {(c.temperature, c.k) for c in made if c.best}
    best = max(made, key=lambda c: c.speedup.mean)
    said = (
        f"At most {best.speedup.mean:.2f}× plain decoding, with k = {best.k} at temperature"
        f" {best.temperature:g}"
    )
    speedups = {(c.temperature, c.k): c.speedup for c in made}
    return _speedups(speedups, stars, ks, temperatures, columns_are="temperature", takeaway=said)


def batch_map(samples: Sequence[BatchSample], ks: Sequence[int], sizes: Sequence[int]) -> Figure:
    """Speedup of all texts together over plain decoding, for each k and batch size."""
    speedups = batch_speedups(samples)
    if not speedups:
        return empty(NOTHING_YET)
    return _speedups(
        speedups, set(), ks, sizes, columns_are="texts at once", takeaway=where_it_pays(samples)
    )


def _speedups(
    values: Mapping[Field, Estimate],
    stars: set[Field],
    ks: Sequence[int],
    columns: Sequence[float],
    **words: str,
) -> Figure:
    reach = max(0.5, *(abs(value.mean - 1) for value in values.values()))
    means = {
        key: f"<b>★ {value.mean:.2f}</b>" if key in stars else f"{value.mean:.2f}"
        for key, value in values.items()
    }
    texts = {key: _with_spread(means[key], value, len(columns)) for key, value in values.items()}
    scale: dict[str, Any] = {"colorscale": SLOWER_FASTER, "zmin": 1 - reach, "zmax": 1 + reach}
    return _heat_map(values, texts, ks, columns, **words, **scale)


def _with_spread(
    text: str, value: Estimate, columns: int, form: str = "{:.2f}–{:.2f}", unit: int = 1
) -> str:
    """A field's number with its interval in small type below."""
    if value.low is None or value.high is None:
        return text
    spread = form.format(unit * value.low, unit * value.high)
    return (
        f'{text}<br><span style="font-size:{10 if columns <= FEW_COLUMNS else 9}px">{spread}</span>'
    )


def _heat_map(
    values: Mapping[Field, Estimate],
    texts: Mapping[Field, str],
    ks: Sequence[int],
    columns: Sequence[float],
    *,
    columns_are: str,
    takeaway: str,
    **scale: Any,
) -> Figure:
    # k is vertical: a phone has room for a column per temperature, but not per k.
    fields = {
        "type": "heatmap",
        "x": list(range(len(columns))),
        "y": list(range(len(ks))),
        "z": [
            [values[column, k].mean if (column, k) in values else None for column in columns]
            for k in ks
        ],
        "text": [[texts.get((column, k), "") for column in columns] for k in ks],
        "texttemplate": "%{text}",
        "textfont": {"size": 13, "color": INK},
        "xgap": 3,
        "ygap": 3,
        "showscale": False,
        "hoverinfo": "skip",
        **scale,
    }

    def by_name(title: str, numbers: Sequence[float]) -> dict[str, Any]:
        names, edges = [f"{number:g}" for number in numbers], [-0.5, len(numbers) - 0.5]
        look = {"showgrid": False, "tickfont": {"color": MUTED, "size": 12}}
        return category_axis(names, title, range=edges, **look)

    x = by_name(columns_are, columns)
    y = by_name("draft tokens per step, k" if len(ks) > 3 else "k", ks)
    margin = {"l": 8, "r": 8, "t": 18, "b": 8}
    return figure([fields], takeaway=takeaway, x=x, y=y, height=98 + 42 * len(ks), margin=margin)


def theory(samples: Sequence[Sample], temperature: float, last: int) -> list[float]:
    """Speedups for k from 0 to `last` by Theorem 3.8 of Leviathan et al. 2023, with the alpha
    and the costs of the runs at a temperature. Empty if most steps drafted fewer than k tokens,
    which the theorem excludes, or plain runs are missing."""
    here = [s for s in samples if s.temperature == temperature]
    plain, drafting = [s for s in here if s.k == 0], [s for s in here if s.k and s.drafted]
    judged = sum(s.accepted + s.rejected for s in drafting)
    if (
        not plain
        or not judged
        or 2 * sum(s.whole for s in drafting) < sum(s.rounds for s in drafting)
    ):
        return []
    alpha, unit = sum(s.accepted for s in drafting) / judged, median(s.round_seconds for s in plain)
    draft = max(LEAST_COST, median(s.draft_seconds for s in drafting) / unit)
    steps = {
        k: median(s.round_seconds for s in drafting if s.k == k) / unit
        for k in sorted({s.k for s in drafting})
    }
    # A step costs first + k · each plain steps, by Theil and Sen: the median slope between any two
    # points, which a few outliers cannot change.
    each = median([(steps[b] - steps[a]) / (b - a) for a, b in combinations(steps, 2)] or [draft])
    first = median(cost - k * each for k, cost in steps.items())
    verify = [1.0, *(max(LEAST_COST, first + k * (each - draft)) for k in range(1, last + 1))]
    return [speedup(alpha, k, draft, cost) for k, cost in enumerate(verify)]


def speedup_curve(samples: Sequence[Sample], temperature: float) -> Figure:
    """The chart: a point with interval per k, the theoretical curve, and a line at plain
    decoding."""
    measured = cells([s for s in samples if s.temperature == temperature])
    last = max(cell.k for cell in measured)
    curve = theory(samples, temperature, last)
    highest = 1.15 * max(
        [1.0, *curve, *(cell.speedup.high or cell.speedup.mean for cell in measured)]
    )
    if curve:
        highest = min(highest, nice_ceiling(2 * max(curve)))
    conclusion = finding(samples, temperature)
    spread = any(cell.speedup.high is not None for cell in measured)
    return figure(
        [
            line(
                "plain decoding",
                [0, last],
                [1, 1],
                MUTED,
                line={"color": MUTED, "width": 1},
                showlegend=False,
            ),
            *(
                [line("theory", list(range(last + 1)), curve, TARGET, THEORY, dash="dash")]
                if curve
                else []
            ),
            _measured(
                f"measured{', with 95% interval' * spread}",
                "circle-open",
                [cell for cell in measured if not cell.best],
            ),
            _measured("may be the fastest", "circle", [cell for cell in measured if cell.best]),
        ],
        takeaway=(
            conclusion if conclusion.startswith("k =") else conclusion[0].upper() + conclusion[1:]
        ),
        x=axis(
            "draft tokens per step, k", -0.5, last + 0.7, tickvals=[0, *(c.k for c in measured)]
        ),
        y=axis("× plain", 0, highest),
        height=260,
    )


def _measured(name: str, symbol: str, measured: Sequence[Cell]) -> dict[str, object]:
    known = [cell.speedup for cell in measured]
    marker = {"size": 10, "color": DRAFT, "symbol": symbol, "line": {"width": 2, "color": DRAFT}}
    intervals = [
        "" if low is None or high is None else f"({low:.2f} to {high:.2f})"
        for _, low, high in known
    ]
    ks = [cell.k for cell in measured]
    means = [value.mean for value in known]
    hover = "k = %{x}: %{y:.2f}× %{customdata}"
    points = line(
        name, ks, means, DRAFT, hover, mode="markers", marker=marker, customdata=intervals
    )
    spread = any(value.high is not None for value in known)
    error = error_bars(known, thickness=2, width=5) if spread else None
    return points | {"showlegend": bool(measured), "error_y": error}
