"""Lesson 1: decoding waits for memory, so a pass over many tokens takes hardly longer than a pass over one."""

from collections.abc import Iterator, Mapping

from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, asking, only_first, showing
from ui.experiments.lessons.roofline import RIDGE, compared, kv_cache, roofline, speed_words
from ui.experiments.pass_costs import costs_in_words, measure_passes, pass_costs
from ui.labels import as_shown, milliseconds


def measure(trial: Trial) -> Iterator[Progress]:
    """Time passes of the target; see `measure_passes`."""
    about = trial.catalog.of(trial.settings.pair).engine.about
    # A float32 weight has four bytes; llama.cpp reports no number of weights, and other devices use other types.
    size = 4 * about.num_parameters.get("target", 0) if about.device == "cpu" else 0
    known: dict[int, float] = {}
    for known in measure_passes(trial.catalog, trial.settings, trial.cancel):
        yield Progress("Measuring …", _data(known, size) if 1 in known else None)
    if known:
        yield Progress(f"{costs_in_words(_known(_data(known, size)))}.", _data(known, size))


def _data(known: Mapping[int, float], size: int) -> Data:
    return {"seconds": {str(width): seconds for width, seconds in known.items()}, "bytes": size}


def _known(data: Data) -> dict[int, float]:
    """Seconds by number of tokens, rounded as shown: readers multiply them."""
    return {int(width): as_shown(seconds) for width, seconds in data["seconds"].items()}


def words(data: Data) -> dict[str, str]:
    known = _known(data)
    widest, top = max(known), pass_costs(known)["layout"]["yaxis"]["range"][1]
    return {
        "one": milliseconds(known[1]),
        "widest": str(widest),
        "many": milliseconds(known[widest]),
        "singly": milliseconds(widest * known[1]),
        "above": " It is above the edge of the chart." if 1000 * widest * known[1] > top else "",
        "times": f"{known[widest] / known[1]:.1f}",
        "left": f"{widest * known[1] / known[widest]:.1f}",
        "bytes_here": speed_words(known[1], data["bytes"]) if data["bytes"] else "",
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
