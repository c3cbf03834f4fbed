"""Lesson 6: tokens per target pass grow with k, ever more slowly; the speed has a best k."""

from collections.abc import Iterator
from typing import Any

from naive_speculate.speculate.theory import expected_tokens
from naive_speculate.tools.ratio import may_be_best
from ui.charts.figures import (
    ACCEPTED,
    INK,
    MUTED,
    PAGE,
    RESAMPLED,
    TARGET,
    Figure,
    axis,
    bars,
    error_bars,
    figure,
    inside,
    line,
    nice_ceiling,
)
from ui.experiments.lessons.lesson import (
    SEEDS,
    Data,
    Lesson,
    Progress,
    Trial,
    View,
    asking,
    log_speedups,
    run_all,
    speedup,
)
from ui.labels import number, percent

KS = (1, 2, 3, 4, 6, 8, 12)
TOKENS, TEMPERATURE = 96, 0.7
BAR = 0.8  # width of a bar, in units of k


def measure(trial: Trial) -> Iterator[Progress]:
    cases = {str(k): {"num_draft_tokens": k} for k in (0, *KS)}
    common: dict[str, Any] = {
        "drafter": trial.drafter,
        "temperature": TEMPERATURE,
        "max_tokens": TOKENS,
    }
    yield from run_all(trial, cases, lambda k: f"Running k = {k} …", least=3, **common)


def _runs(data: Data) -> dict[int, Data]:
    return {int(k): run for k, run in data["known"].items() if k != "0"}


def gains(data: Data) -> dict[int, float]:
    return {k: speedup(data, str(k), "0").mean for k in _runs(data)}


def best(data: Data) -> int:
    speedups = gains(data)
    return max(speedups, key=lambda k: speedups[k])


def alike(data: Data) -> list[int]:
    """Every k that may be the best, the seeds being the samples."""
    logs = {k: log_speedups(data, str(k), "0") for k in _runs(data)}
    return may_be_best({k: dict(enumerate(values)) for k, values in logs.items()})


def alpha(data: Data) -> float:
    """Accepted ÷ judged draft tokens of all runs, rounded as shown, so that readers can verify
    what follows from it."""
    drafting = _runs(data).values()
    return round(
        sum(run["kept"] for run in drafting) / max(1, sum(run["judged"] for run in drafting)), 2
    )


def _accepted_at(data: Data) -> list[float]:
    """By position, the share of the steps with the largest k that accepted the draft token
    there."""
    run = _runs(data)[max(_runs(data))]
    return [accepted / run["rounds"] for accepted in run["kept_at"]]


def _line(data: Data) -> str:
    """Why the bars are not as high as αⁿ."""
    many, run = max(_runs(data).items(), key=lambda item: item[0])
    a, accepted, full = alpha(data), _accepted_at(data), many * run["rounds"]
    missing = full - run["drafted"]
    below = sum(share < a**place for place, share in enumerate(accepted, start=1))
    said = f"{below} of {len(accepted)} bars lie below the line."
    if below and accepted[0] < a:
        said += (
            " Easy passages have more judged draft tokens than hard ones, so α is higher than the "
        )
        said += f"{percent(accepted[0])} of steps that accepted the first."
    if below and missing:
        said += (
            f" And windows are shorter at the end of a text: {missing:,} of {full:,} positions in"
            " the windows stayed empty."
        )
    return said


def words(data: Data) -> dict[str, str]:
    speedups, a, top = gains(data), alpha(data), best(data)
    few, many = min(speedups), max(speedups)
    others = [str(k) for k in alike(data) if k != top]
    tie = f"It ties statistically with k = {', '.join(others)}."
    pace = {k: f"{run['tokens_a_pass']:.1f}" for k, run in _runs(data).items()}
    return {
        "alpha": number(a, 2),
        "third": percent(a**3),
        "last": percent(a**many),
        "line": _line(data),
        "many": str(many),
        "half": str(many // 2),
        "pace": pace[many],
        "pace_half": pace.get(many // 2, "–"),
        "best": str(top),
        "gain": f"{speedups[top]:.2f}",
        "pace_best": pace[top],
        "few": str(few),
        "beside": ", and ".join(
            f"k\u00a0=\u00a0{k} was {speedups[k]:.2f} times as fast"
            for k in (few, many)
            if k != top
        ),
        "beyond": ", which here may lie beyond what was tried" if top == many else "",
        "alike": tie if others else "The others are clearly slower.",
    }


def right(data: Data) -> list[int]:
    runs, top = _runs(data), best(data)
    many, half = max(runs), max(runs) // 2
    twice = runs[many]["tokens_a_pass"] / runs[half]["tokens_a_pass"] if half in runs else 0.0
    return [
        0 if top == many else 2 if top == min(runs) else 1,
        1 if 1.95 <= twice <= 2.05 else 2 if twice > 2.05 else 0,
    ]


def views(data: Data) -> list[View]:
    speedups, speeds = gains(data), _speeds(data)
    few = min(speedups)
    bar, plain = speeds["data"]
    # One bar, not yet marked as the best.
    unmarked = {
        "y": [speedups[few]],
        "text": [f"{speedups[few]:.2f}×"],
        "marker": {"color": ACCEPTED},
        "error_y": None,
    }
    question = f"k = {few}: {speedups[few]:.2f} times as fast as plain decoding. And with more?"
    opening = asking({**speeds, "data": [bar | unmarked, plain]}, sorted(speedups)[1:], question)
    return [
        {"figure": opening, "finished": speeds},
        _survival(data),
        _pace(data),
        {"figure": speeds},
    ]


def _axis(ks: list[int]) -> dict[str, Any]:
    """A linear axis of k, so that the curves keep their shape."""
    return axis("draft tokens per step, k", min(ks) - 0.7, max(ks) + 0.7, tickvals=ks)


def _survival(data: Data) -> View:
    a, measured = alpha(data), _accepted_at(data)
    places = list(range(1, len(measured) + 1))
    powers = [a**place for place in places]
    traces = [
        bars(
            "accepted, share of all steps",
            places,
            measured,
            ACCEPTED,
            "position %{x}: accepted in %{y:.0%} of the steps",
        ),
        line(
            "αⁿ",
            places,
            powers,
            INK,
            "α to the power of %{x}: %{y:.0%}",
            dash="dash",
            mode="lines+markers",
        ),
    ]
    x = axis("position in the window", 0.4, len(places) + 0.6, dtick=1)
    said = f"A draft token counts only if all before it are accepted: α = {number(a, 2)}"
    return {
        "figure": figure(
            traces, takeaway=said, x=x, y={"range": [0, 1.02], "tickformat": ".0%"}, height=320
        )
    }


def _pace(data: Data) -> View:
    a = alpha(data)
    ks = list(_runs(data))
    every = list(range(min(ks), max(ks) + 1))
    pace = [run["tokens_a_pass"] for run in _runs(data).values()]
    formula = [expected_tokens(a, k) for k in every]
    texts, geometric = [f"{value:.1f}" for value in pace], "(1 − αᵏ⁺¹) ÷ (1 − α)"
    traces = [
        bars(
            "measured",
            ks,
            pace,
            TARGET,
            "%{text} tokens per target pass",
            width=BAR,
            **inside(texts),
        ),
        line(geometric, every, formula, INK, "k = %{x}, by the formula: %{y:.2f}", dash="dash"),
    ]
    top = nice_ceiling(max(*pace, *formula) * 1.05)
    y = axis("tokens per target pass", 0, top)
    return {
        "figure": figure(
            traces, takeaway="Tokens per target pass, by k", x=_axis(ks), y=y, height=320
        )
    }


def _speeds(data: Data) -> Figure:
    speedups, top, near = gains(data), best(data), alike(data)
    ks, times = sorted(speedups), [speedups[k] for k in sorted(speedups)]
    values = [speedup(data, str(k), "0") for k in ks]
    error = error_bars(values, color=INK, thickness=1.5)
    colors = [
        MUTED if speedups[k] < 1 else RESAMPLED if k == top else ACCEPTED if k in near else MUTED
        for k in ks
    ]
    look = inside([("★ " if k == top else "") + f"{speedups[k]:.2f}×" for k in ks])
    look |= {
        "width": BAR,
        "textangle": -90,
        "constraintext": "none",
        "textfont": {"color": PAGE},
        "showlegend": False,
    }
    speeds = bars(
        "times as fast as plain", ks, times, colors, "k = %{x}: %{text}", **look, error_y=error
    )
    said = f"Best k = {top}: {speedups[top]:.2f} times as fast as plain decoding"
    y = {
        "range": [0, 1.1 * max(*(value.high or value.mean for value in values), 1)],
        "ticksuffix": "×",
    }
    plain = line("plain decoding", _axis(ks)["range"], [1, 1], INK, dash="dot")
    return figure([speeds, plain], takeaway=said, x=_axis(ks), y=y, height=320)


NUMBERS = {"temperature": TEMPERATURE, "seeds": len(SEEDS), "tokens": TOKENS}
LESSON = Lesson(6, measure, words, right, views, timed=True, numbers=NUMBERS)
