"""Lesson 1: decoding waits for memory, so a pass over many tokens takes hardly longer than a pass over one."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from naive_speculate.events import EventKind
from ui.charts.figures import MUTED, TARGET, Figure, above, bars, category_axis, figure, line, nice_ceiling
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, asking, only_first, showing
from ui.experiments.lessons.roofline import RIDGE, compared, kv_cache, roofline
from ui.experiments.measured import undisturbed
from ui.labels import as_shown, milliseconds

WIDTHS = (1, 2, 4, 8, 16)
STEPS = 4
REPEATS = 4


def measure(trial: Trial) -> Iterator[Progress]:
    about = trial.catalog.of(trial.settings.pair).engine.about
    # A float32 weight has four bytes; llama.cpp reports no number of weights, and other devices use other types.
    size = 4 * about.num_parameters.get("target", 0) if about.device == "cpu" else 0
    known: dict[int, float] = {}
    for known in measure_passes(trial):
        yield Progress("Measuring …", _data(known, size) if 1 in known else None)
    if known:
        yield Progress(f"{costs_in_words(_known(_data(known, size)))}.", _data(known, size))


def measure_passes(trial: Trial) -> Iterator[dict[int, float]]:
    """Undisturbed time of a target pass over 1, 2, 4 … tokens, in seconds; yields the results so far."""
    times: dict[int, list[float]] = {}
    for width in WIDTHS * REPEATS:  # alternating, so that a disturbance affects all widths
        chosen = replace(trial.settings, num_draft_tokens=width - 1, drafter=trial.drafter, max_tokens=width * (STEPS + 2))
        steps = (e for e in trial.catalog.stream(chosen.pair, chosen.request("none"), trial.cancel) if e.kind == EventKind.STEP)
        # The first step includes the warm-up.
        seconds = (e.verify_seconds for e in steps if e.step and e.num_draft == width - 1 and e.verify_seconds)
        times.setdefault(width, []).extend(islice(seconds, STEPS))
        if trial.cancel.is_set():
            return
        yield {width: undisturbed(seen) for width, seen in times.items() if seen}


def pass_costs(known: dict[int, float]) -> Figure:
    """Time of a pass, compared with one pass per token."""
    x, times = list(range(len(known))), [1000 * seconds for seconds in known.values()]
    singly = [width * 1000 * known[1] for width in known]
    look = above([milliseconds(seconds) for seconds in known.values()]) | {"constraintext": "none", "textangle": 0}
    return figure(
        [
            bars("measured", x, times, TARGET, "%{text}", **look),
            line("one by one", x, singly, MUTED, "%{y:.1f} ms", dash="dash", mode="lines+markers"),
        ],
        takeaway=costs_in_words(known),
        x=category_axis([str(width) for width in known], title={"text": "tokens in one pass"}),
        y={"title": {"text": "ms"}, "range": [0, nice_ceiling(max(1.15 * max(times), min(2.0 * max(times), singly[-1])))]},
        height=300,
    )


def costs_in_words(known: dict[int, float]) -> str:
    widest = max(known)
    if widest == 1:
        return f"One token: {milliseconds(known[1])}"
    return f"{widest} tokens: {known[widest] / known[1]:.1f} times the time of one"


def _data(known: Mapping[int, float], size: int) -> Data:
    return {"seconds": {str(width): seconds for width, seconds in known.items()}, "bytes": size}


def _known(data: Data) -> dict[int, float]:
    """Seconds by number of tokens, rounded as shown: readers multiply them."""
    return {int(width): as_shown(seconds) for width, seconds in data["seconds"].items()}


def words(data: Data) -> dict[str, str]:
    known = _known(data)
    size, speed = data["bytes"], data["bytes"] / known[1] / 1e9
    widest, top = max(known), pass_costs(known)["layout"]["yaxis"]["range"][1]
    return {
        "one": milliseconds(known[1]),
        "widest": str(widest),
        "many": milliseconds(known[widest]),
        "singly": milliseconds(widest * known[1]),
        "above": " It is above the edge of the chart." if 1000 * widest * known[1] > top else "",
        "times": f"{known[widest] / known[1]:.1f}",
        "left": f"{widest * known[1] / known[widest]:.1f}",
        "bytes_here": f"Measured: {size / 1e6:.0f} MB in {milliseconds(known[1])}, {speed:.0f} GB per second." if size else "",
        "ridge": f"{RIDGE:.0f}",
    }


def right(data: Data) -> list[int]:
    known = _known(data)
    share = known[max(known)] / known[1] / max(known)
    return [2, 0 if share > 0.75 else 1 if share > 0.4 else 2, 2]


def views(data: Data) -> list[View]:
    known = _known(data)
    whole = pass_costs(known)
    first = only_first(whole["data"][0], len(known))
    alone = f"One token: {milliseconds(known[1])}. And {max(known)} at once?"
    asked = showing(asking({**whole, "data": [first]}, range(1, len(known)), alone))
    return [
        {"figure": compared(open_answer=True), "calculated": True},
        asked,
        showing(whole, "measured"),
        {"figure": compared(open_answer=False), "calculated": True},
        {"figure": roofline(known)},
        {"figure": kv_cache(), "calculated": True},
        showing(whole, lit=["one by one"]),
    ]


NOTE = "Times the target on this machine with your prompt. It takes some seconds."
CHART = "One target pass"
LESSON = Lesson(1, "Measure it on this machine", NOTE, measure, words, right, views, chart=CHART, timed=True)
