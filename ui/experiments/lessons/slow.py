"""Lesson 1: decoding waits for memory, so a pass over many tokens takes hardly longer than a
pass over one.

The charts show what a pass waits for, memory or arithmetic (roofline model: Williams et al.
2009, see `theory.pass_seconds`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from naive_speculate.events import EventKind
from naive_speculate.tools.ratio import undisturbed
from ui.charts.figures import (
    ACCEPTED,
    DRAFT,
    MUTED,
    TARGET,
    Figure,
    above,
    axis,
    bars,
    category_axis,
    figure,
    line,
    nice_ceiling,
)
from ui.charts.waterfall import GPU, PRESETS
from ui.experiments.lessons.lesson import (
    Data,
    Lesson,
    Progress,
    Trial,
    View,
    asking,
    bar_chart,
    showing,
)
from ui.labels import as_shown, milliseconds

WIDTHS = (1, 2, 4, 8, 16)
STEPS = 4
REPEATS = 4
PRESET = PRESETS[0]
MODEL = PRESET.target  # Llama 3.1 70B in FP8, on an H100
RIDGE = MODEL.weight_bytes / GPU.bandwidth * GPU.flops / (2 * MODEL.parameters)
"""Tokens in a pass from which computing takes longer than reading the weights."""
KV_BYTES = 80 * 2 * 8 * 128 * 2
"""Keys and values of one token: layers, key and value, heads, numbers per head, bytes; from the
model's configuration."""
CONTEXTS = (1_000, 8_000, 24_000)  # with the weights, the last one fills an H100


def compared(*, open_answer: bool) -> Figure:
    """Computing and reading for one token of the 70B model; the reading may be left open."""
    computing = 1000 * 2 * MODEL.parameters / GPU.flops
    reading = 1000 * MODEL.weight_bytes / GPU.bandwidth
    names = ["computing", "reading the weights"]
    texts = [f"{computing:.2f} ms", f"{reading:.0f} ms"]
    y = {"range": [0, 0.2 if open_answer else 1.2 * reading], "ticksuffix": " ms"}
    if open_answer:
        return bar_chart(
            "Computing one token takes 0.07 ms. And reading the weights?",
            names,
            [computing],
            texts,
            DRAFT,
            y,
        )
    return bar_chart(
        "One token of a 70B model on an H100",
        names,
        [computing, reading],
        texts,
        [DRAFT, TARGET],
        y,
    )


def roofline(measured: Mapping[int, float], marks: Sequence[int] = ()) -> Figure:
    """Time of a pass by its tokens, on two logarithmic axes: the H100 calculated, this page's
    model `measured` if given, in seconds by tokens. `marks` are numbers of tokens to mark on the
    H100's curve."""
    widths = sorted({*(2**n for n in range(12)), round(RIDGE)})
    hover = "%{x:.0f} tokens: %{y:.1f} ms"
    times = [1000 * GPU.seconds(MODEL, width) for width in widths]
    traces = [line("70B on an H100, calculated", widths, times, TARGET, hover)]
    if measured:
        own = [1000 * seconds for seconds in measured.values()]
        traces.append(
            line(
                "this page's model, measured",
                list(measured),
                own,
                ACCEPTED,
                hover,
                mode="lines+markers",
            )
        )
    if marks:
        spots = [1000 * GPU.seconds(MODEL, tokens) for tokens in marks]
        names: Data = {
            "mode": "markers+text",
            "text": list(map(str, marks)),
            "textposition": "top center",
        }
        dots = line("tokens in one pass", marks, spots, DRAFT, hover, **names)
        traces.append(dots | {"cliponaxis": False, "marker": {"size": 13}, "showlegend": False})
    said = (
        f"70B on an H100: flat up to {RIDGE:.0f} tokens per pass, then the time grows with the"
        " tokens"
    )
    x = axis("tokens in one pass", -0.1, 3.4, type="log", tickvals=[1, 4, 16, 64, 256, 1024])
    lowest = min([*measured.values(), GPU.seconds(MODEL, 1)]) * 1000
    y = axis("ms", math.log10(lowest) - 0.3, 2.4, type="log", tickvals=[1, 5, 10, 20, 50, 100, 200])
    return figure(
        traces, takeaway=said, x=x, y=y, height=320, margin={"l": 8, "r": 12, "t": 50, "b": 8}
    )


def kv_cache() -> Figure:
    """Bytes that a pass reads for one text: the weights, and the KV cache by context length."""
    sizes = [
        size / 1e9 for size in (MODEL.weight_bytes, *(KV_BYTES * tokens for tokens in CONTEXTS))
    ]
    names = ["weights", *(f"{tokens // 1000}k" for tokens in CONTEXTS)]
    texts, colors = [f"{size:.1f} GB" for size in sizes], [TARGET, *[DRAFT] * len(CONTEXTS)]
    said = "What one pass over one text reads, with a 70B model"
    y = {"range": [0, 85], "ticksuffix": " GB"}
    return bar_chart(said, names, sizes, texts, colors, y, title="KV cache, by tokens of context")


def measure(trial: Trial) -> Iterator[Progress]:
    about = trial.catalog.of(trial.settings.pair).engine.about
    # A float32 weight has four bytes; llama.cpp reports no number of weights, and other devices use
    # other types.
    size = 4 * about.num_parameters.get("target", 0) if about.device == "cpu" else 0
    data = None
    for known in measure_passes(trial):
        data = (
            {"seconds": {str(width): seconds for width, seconds in known.items()}, "bytes": size}
            if 1 in known
            else None
        )
        yield Progress("Measuring …", data)
    if data:
        yield Progress(f"{costs_in_words(_known(data))}.", data)


def measure_passes(trial: Trial) -> Iterator[dict[int, float]]:
    """Undisturbed time of a target pass over 1, 2, 4 … tokens, in seconds; yields the results so
    far."""
    times: dict[int, list[float]] = {}
    for width in WIDTHS * REPEATS:  # alternating, so that a disturbance affects all widths
        chosen = replace(
            trial.settings,
            num_draft_tokens=width - 1,
            drafter=trial.drafter,
            max_tokens=width * (STEPS + 2),
        )
        steps = (
            e
            for e in trial.catalog.stream(chosen.pair, chosen.request("none"))
            if e.kind == EventKind.STEP
        )
        # The first step includes the warm-up.
        seconds = (
            e.verify_seconds
            for e in steps
            if e.step and e.num_draft == width - 1 and e.verify_seconds
        )
        times.setdefault(width, []).extend(islice(seconds, STEPS))
        yield {width: undisturbed(measured) for width, measured in times.items() if measured}


def pass_costs(known: dict[int, float]) -> Figure:
    x, times = list(range(len(known))), [1000 * seconds for seconds in known.values()]
    singly = [width * 1000 * known[1] for width in known]
    look = above([milliseconds(seconds) for seconds in known.values()]) | {
        "constraintext": "none",
        "textangle": 0,
    }
    return figure(
        [
            bars("measured", x, times, TARGET, "%{text}", **look),
            line("one by one", x, singly, MUTED, "%{y:.1f} ms", dash="dash", mode="lines+markers"),
        ],
        takeaway=costs_in_words(known),
        x=category_axis([str(width) for width in known], "tokens in one pass"),
        y=axis("ms", 0, nice_ceiling(max(1.15 * max(times), min(2.0 * max(times), singly[-1])))),
        height=300,
    )


def costs_in_words(known: dict[int, float]) -> str:
    widest = max(known)
    if widest == 1:
        return f"One token: {milliseconds(known[1])}"
    return f"{widest} tokens: {known[widest] / known[1]:.1f} times the time of one"


def _known(data: Data) -> dict[int, float]:
    """Seconds by number of tokens, rounded as shown: readers multiply them."""
    return {int(width): as_shown(seconds) for width, seconds in data["seconds"].items()}


def words(data: Data) -> dict[str, str]:
    known = _known(data)
    size, speed = data["bytes"], data["bytes"] / known[1] / 1e9
    widest = max(known)
    return {
        "one": milliseconds(known[1]),
        "widest": str(widest),
        "many": milliseconds(known[widest]),
        "singly": milliseconds(widest * known[1]),
        "times": f"{known[widest] / known[1]:.1f}",
        "left": f"{widest * known[1] / known[widest]:.1f}",
        "bytes_here": (
            f"Measured: {size / 1e6:.0f} MB in {milliseconds(known[1])}, {speed:.0f} GB per second."
            if size
            else ""
        ),
        "ridge": f"{RIDGE:.0f}",
    }


def right(data: Data) -> list[int]:
    known = _known(data)
    share = known[max(known)] / known[1] / max(known)
    return [0, 0 if share > 0.75 else 1 if share > 0.4 else 2, 2]


def views(data: Data) -> list[View]:
    known = _known(data)
    whole = pass_costs(known)
    one = {name: whole["data"][0][name][:1] for name in ("x", "y", "text")}
    alone = f"One token: {milliseconds(known[1])}. And {max(known)} at once?"
    singly = 1.12 * 1000 * max(known) * known[1]
    gap = {**whole, "layout": {**whole["layout"], "yaxis": {"range": [0, singly]}}}
    asked = asking({**whole, "data": [whole["data"][0] | one]}, range(1, len(known)), alone)
    return [
        {"figure": compared(open_answer=True), "calculated": True},
        showing(asked, "measured"),
        showing(whole, "measured"),
        {"figure": compared(open_answer=False), "calculated": True},
        {"figure": roofline(known)},
        {"figure": kv_cache(), "calculated": True},
        showing(gap),
    ]


LESSON = Lesson(1, measure, words, right, views, timed=True)
