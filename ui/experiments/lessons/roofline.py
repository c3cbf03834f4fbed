"""Charts of what a pass waits for: memory or arithmetic (roofline model: Williams et al. 2009, see `theory.pass_seconds`)."""

import math
from collections.abc import Mapping, Sequence

from ui.charts.figures import ACCEPTED, DRAFT, TARGET, Figure, above, bars, category_axis, figure, inside, line, plain_line
from ui.charts.waterfall import GPU, PRESETS
from ui.experiments.lessons.lesson import asking

PRESET = PRESETS[0]
MODEL = PRESET.target  # Llama 3.1 70B in FP8, on an H100
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
    drawn = bars("time", [0, 1], times, [DRAFT, TARGET], "%{text}", **above(texts), showlegend=False)
    said = "Computing one token takes 0.07 ms. And reading the weights?"
    x, y = category_axis(["computing", "reading the weights"]), {"range": [0, 0.2], "ticksuffix": " ms"}
    if open_answer:
        return asking(figure([drawn], takeaway=said, x=x, y=y, height=300), [1], said)
    y["range"] = [0, 1.2 * reading]
    return figure([drawn], takeaway="One token of a 70B model on an H100", x=x, y=y, height=300)


def roofline(measured: Mapping[int, float], marks: Sequence[tuple[str, int]] = ()) -> Figure:
    """Time of a pass by its tokens, on two logarithmic axes: the H100 calculated, this page's model `measured` if given, in
    seconds by tokens. `marks` are labels and numbers of tokens to mark on the H100's curve."""
    widths, hover = sorted({*(2**n for n in range(12)), round(RIDGE)}), "%{x:.0f} tokens: %{y:.1f} ms"
    times = [1000 * GPU.seconds(MODEL, width) for width in widths]
    traces = [line("70B on an H100, calculated", widths, times, TARGET, hover)]
    if measured:
        own = [1000 * seconds for seconds in measured.values()]
        traces.append(line("this page's model, measured", list(measured), own, ACCEPTED, hover, mode="lines+markers"))
    if marks:
        names, at = zip(*marks, strict=True)
        spots = [1000 * GPU.seconds(MODEL, tokens) for tokens in at]
        dots = line("tokens in one pass", at, spots, DRAFT, hover, mode="markers+text", text=names, textposition="top center")
        traces.append(dots | {"cliponaxis": False, "marker": {"size": 13}, "showlegend": False})
    said = f"70B on an H100: flat up to {RIDGE:.0f} tokens per pass, then the time grows with the tokens"
    x = {"type": "log", "title": {"text": "tokens in one pass"}, "tickvals": [1, 4, 16, 64, 256, 1024], "range": [-0.1, 3.4]}
    lowest = min([*measured.values(), GPU.seconds(MODEL, 1)]) * 1000
    y = {
        "type": "log",
        "title": {"text": "ms"},
        "range": [math.log10(lowest) - 0.3, 2.4],
        "tickvals": [1, 5, 10, 20, 50, 100, 200],
    }
    return figure(traces, takeaway=said, x=x, y=y, height=320, margin={"l": 8, "r": 12, "t": 50, "b": 8})


def kv_cache() -> Figure:
    """Bytes that a pass reads for one text: the weights, and the KV cache by context length."""
    sizes = [MODEL.weight_bytes, *(KV_BYTES * tokens for tokens in CONTEXTS)]
    names = ["weights", *(f"{tokens // 1000}k" for tokens in CONTEXTS)]
    texts, colors = [f"{size / 1e9:.1f} GB" for size in sizes], [TARGET, *[DRAFT] * len(CONTEXTS)]
    heights = [size / 1e9 for size in sizes]
    drawn = bars("read", range(len(sizes)), heights, colors, "%{text}", **above(texts), showlegend=False)
    said, y = "What one pass over one text reads, with a 70B model", {"range": [0, 85], "ticksuffix": " GB"}
    x = category_axis(names, title={"text": "KV cache, by tokens of context"}, tickangle=0)
    return figure([drawn], takeaway=said, x=x, y=y, height=300)


def simple_bars(names: Sequence[str], values: Sequence[float], said: str) -> Figure:
    """Speedups as bars, with a line at plain decoding."""
    texts = inside([f"{value:.2f}×" for value in values])
    drawn = bars("speedup", range(len(values)), values, ACCEPTED, "%{text}", **texts, showlegend=False)
    y = {"range": [0, 1.2 * max(*values, 1)], "ticksuffix": "×"}
    return figure([drawn, plain_line(len(values))], takeaway=said, x=category_axis(names), y=y, height=300)
