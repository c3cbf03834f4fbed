"""Charts of what a pass waits for: memory or arithmetic (roofline model: Williams et al. 2009, see `theory.pass_seconds`)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ui.charts.figures import ACCEPTED, DRAFT, MUTED, TARGET, Figure, bars, category_axis, figure, inside, line
from ui.charts.waterfall import GPU, PRESETS
from ui.experiments.lessons.lesson import asking
from ui.labels import milliseconds

PRESET = PRESETS[0]
MODEL = PRESET.target
"""Llama 3.1 70B in FP8, on an H100."""
RIDGE = MODEL.weight_bytes / GPU.bandwidth * GPU.flops / (2 * MODEL.parameters)
"""Tokens in a pass from which computing takes longer than reading the weights."""
KV_BYTES = 80 * 2 * 8 * 128 * 2
"""Keys and values of one token: layers, key and value, heads, numbers per head, bytes; from the model's configuration."""
CONTEXTS = (1_000, 8_000, 128_000)


def compared(*, open_answer: bool) -> Figure:
    """Computing and reading for one token of the 70B model; the reading may be left open."""
    computing = 1000 * 2 * MODEL.parameters / GPU.flops
    reading = 1000 * MODEL.weight_bytes / GPU.bandwidth
    times = [computing, None if open_answer else reading]
    texts = [f"{computing:.2f} ms", "" if open_answer else f"{reading:.0f} ms"]
    drawn = bars("time", [0, 1], times, [DRAFT, TARGET], "%{text}", text=texts, textposition="outside", cliponaxis=False)
    said = (
        "Computing one token takes 0.07 ms. And reading the weights?" if open_answer else "One token of a 70B model on an H100"
    )
    top = 0.2 if open_answer else 1.2 * reading
    x = category_axis(["computing", "reading the weights"])
    made = figure([{**drawn, "showlegend": False}], takeaway=said, x=x, y={"range": [0, top], "ticksuffix": " ms"}, height=300)
    if open_answer:
        return asking(made, [1], said)
    return made


def roofline(measured: Mapping[int, float], marks: Sequence[tuple[str, int]] = ()) -> Figure:
    """Time of a pass by its tokens, on two logarithmic axes: the H100 calculated, this machine measured (if given).

    Args:
        measured: Seconds by tokens in the pass.
        marks: Labels and numbers of tokens to mark on the H100's curve.
    """
    widths = sorted({*(2**n for n in range(12)), round(RIDGE)})
    times = [1000 * GPU.seconds(MODEL, width) for width in widths]
    traces = [line("70B on an H100, calculated", widths, times, TARGET, "%{x:.0f} tokens: %{y:.1f} ms")]
    if measured:
        own = [1000 * seconds for seconds in measured.values()]
        traces.append(
            line("this machine, measured", list(measured), own, ACCEPTED, "%{x} tokens: %{y:.1f} ms", mode="lines+markers")
        )
    if marks:
        at = [tokens for _, tokens in marks]
        drawn: dict[str, Any] = {
            "mode": "markers+text",
            "text": [name for name, _ in marks],
            "textposition": "top center",
            "cliponaxis": False,
        }
        spots = [1000 * GPU.seconds(MODEL, tokens) for tokens in at]
        hover = "%{x} tokens: %{y:.1f} ms"
        dots = line("tokens in one pass", at, spots, DRAFT, hover, **drawn, marker={"size": 13})
        traces.append({**dots, "showlegend": False})
    said = f"70B on an H100: flat up to {RIDGE:.0f} tokens per pass, then the time grows with the tokens"
    x = {"type": "log", "title": {"text": "tokens in one pass"}, "tickvals": [1, 4, 16, 64, 256, 1024], "range": [-0.1, 3.4]}
    lowest = min([*measured.values(), GPU.seconds(MODEL, 1)]) * 1000
    y = {"type": "log", "title": {"text": "ms"}, "rangemode": "normal", "range": [math.log10(lowest) - 0.3, 2.4], "dtick": 1}
    return figure(traces, takeaway=said, x=x, y=y, height=320, margin={"l": 8, "r": 12, "t": 50, "b": 8})


def kv_cache() -> Figure:
    """Bytes that a pass reads for one text: the weights, and the KV cache by context length."""
    sizes = [MODEL.weight_bytes, *(KV_BYTES * tokens for tokens in CONTEXTS)]
    names = ["weights", *(f"KV cache,<br>{tokens // 1000}k tokens" for tokens in CONTEXTS)]
    texts = [f"{size / 1e9:.1f} GB" for size in sizes]
    colors = [TARGET, *[DRAFT] * len(CONTEXTS)]
    drawn = bars("read", list(range(len(sizes))), [size / 1e9 for size in sizes], colors, "%{text}", text=texts)
    more = {"textposition": "outside", "cliponaxis": False, "showlegend": False}
    y = {"range": [0, 85], "ticksuffix": " GB"}
    said = "What one pass over one text reads, with a 70B model"
    return figure([drawn | more], takeaway=said, x=category_axis(names), y=y, height=300)


def speed_words(seconds: float, size: float) -> str:
    """A pass's bandwidth in a sentence."""
    return f"Here {size / 1e6:.0f} MB took {milliseconds(seconds)}: {size / seconds / 1e9:.0f} GB per second."


def simple_bars(names: Sequence[str], values: Sequence[float], said: str, color: str = ACCEPTED) -> Figure:
    """Speedups as bars, with a line at plain decoding."""
    places = list(range(len(values)))
    drawn = bars("speedup", places, values, color, "%{text}", **inside([f"{value:.2f}×" for value in values]))
    plain = line("plain decoding", [-0.6, len(values) - 0.4], [1, 1], MUTED, dash="dot")
    y = {"range": [0, 1.2 * max(*values, 1)], "ticksuffix": "×"}
    return figure([{**drawn, "showlegend": False}, plain], takeaway=said, x=category_axis(names), y=y, height=300)
