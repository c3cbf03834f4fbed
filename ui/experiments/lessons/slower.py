"""Lesson 9: drafting with a low acceptance rate, or with too many draft tokens, costs more than
it saves."""

from collections.abc import Iterator

from ui.charts.figures import ACCEPTED, REJECTED, Figure, plain_line
from ui.experiments.lessons.lesson import (
    SEEDS,
    Data,
    Lesson,
    Progress,
    Trial,
    View,
    bar_chart,
    run_all,
    speedup,
)
from ui.labels import percent

CALM, WILD = 0.7, 2.0
FEW, MANY = 2, 16
CASES = ((FEW, CALM), (FEW, WILD), (MANY, WILD))
TOKENS = 64
DRAW = 0.03  # a relative difference in speed below this is a draw


def _name(k: int, temperature: float) -> str:
    return f"{k}@{temperature:g}"


def measure(trial: Trial) -> Iterator[Progress]:
    cases = {
        _name(k, temperature): {"num_draft_tokens": k, "temperature": temperature}
        for k, temperature in ((0, CALM), (0, WILD), *CASES)
    }
    yield from run_all(
        trial, cases, _status, drafter=trial.drafter, ignore_eos=True, max_tokens=TOKENS
    )


def _status(case: str) -> str:
    k, _, temperature = case.partition("@")
    return f"Running k = {k} at temperature {temperature} …"


def _gain(data: Data, k: int, temperature: float) -> float:
    return speedup(data, _name(k, temperature), _name(0, temperature)).mean


def words(data: Data) -> dict[str, str]:
    known = data["known"]
    texts = {"few": str(FEW), "many": str(MANY), "calm": f"{CALM:g}", "wild": f"{WILD:g}"}
    texts["wasted"] = percent(1 - (known[_name(MANY, WILD)]["kept_share"] or 0))
    for name, (k, temperature) in zip(("calmly", "wildly", "many_wildly"), CASES, strict=True):
        times = _gain(data, k, temperature)
        texts[f"gain_{name}"], texts[f"verdict_{name}"] = f"{times:.2f}", _verdict(times)
        texts[f"kept_{name}"] = percent(known[_name(k, temperature)]["kept_share"] or 0)
    return texts


def _verdict(times: float) -> str:
    return (
        "still faster"
        if times > 1 + DRAW
        else "slower than without drafts"
        if times < 1 - DRAW
        else "a draw"
    )


def right(data: Data) -> list[int]:
    calm, wild, many = (_gain(data, k, temperature) for k, temperature in CASES)
    return [
        1,
        0 if wild > calm * (1 + DRAW) else 2 if wild < calm * (1 - DRAW) else 1,
        0 if many > 1 + DRAW else 1,
    ]


def views(data: Data) -> list[View]:
    first, second, whole = ({"figure": _chart(data, shown)} for shown in (1, 2, 3))
    return [first | {"finished": whole["figure"]}, first, second, whole, whole]


def _chart(data: Data, shown: int) -> Figure:
    times = [_gain(data, k, temperature) for k, temperature in CASES]
    names = [f"k = {k},<br>temperature<br>{temperature:g}" for k, temperature in CASES]
    colors = [ACCEPTED if value >= 1 else REJECTED for value in times]
    texts = [f"{value:.2f}×" for value in times]
    k, temperature = CASES[shown - 1]
    takeaway = (
        f"k = {k} at temperature {temperature:g}: {times[shown - 1]:.2f} times the speed of plain"
        " decoding"
    )
    y = {"range": [0, 1.2 * max(*times, 1)], "ticksuffix": "×"}
    return bar_chart(
        takeaway, names, times[:shown], texts, colors, y, plain_line(len(CASES)), width=0.55
    )


NUMBERS = {"seeds": len(SEEDS), "tokens": TOKENS}
LESSON = Lesson(9, measure, words, right, views, timed=True, numbers=NUMBERS)
