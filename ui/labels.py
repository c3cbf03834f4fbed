"""Model text made safe and visible in sentences, in HTML and in Plotly's labels, which read a
subset of HTML.

A model may write anything: markup, line breaks, characters that change the writing direction.
None of it may act on the page. A space or a line break must be visible, since to the model it is
a token like any other.
"""

import html
import json
import math
from typing import Any

import orjson
from markupsafe import Markup

from naive_speculate.text import MAX_LABEL
from naive_speculate.text import visible as visible
from naive_speculate.tools.show.spans import Span, to_markup

CONTEXT = 70
LEAST = 1e-4  # smaller probabilities are shown as "under 0.0001"


def label(text: str | None, limit: int = MAX_LABEL) -> str:
    """The text as one Plotly label or piece of HTML."""
    # Plotly does not know the name of this entity
    return html.escape(visible(text, limit)).replace("&quot;", "&#34;")


def token(text: str | None, kind: str, *, chip: bool = False) -> Markup:
    """A token as the stage shows it, with visible signs for invisible characters."""
    return Markup(to_markup(Span(kind, visible(text)), chip=chip))


def end_of(text: str, characters: int = CONTEXT) -> str:
    """The last whole words of a text, after an ellipsis if it is longer."""
    if len(text) <= characters:
        return text
    return "… " + text[-characters:].partition(" ")[2]


def to_json(value: Any) -> str:
    """JSON text for the browser; `<` is escaped, so that nothing in it can look like a tag."""
    try:
        text = orjson.dumps(value).decode()
    except (
        orjson.JSONEncodeError
    ):  # an opened trace may hold half a character, or an integer of more than 64 bits
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def number(value: float, digits: int = 3) -> str:
    """A probability or entropy for readers: significant digits, no powers of ten, and 0 or 1
    only if it is exactly that."""
    if (
        not math.isfinite(value) or value < 0 or value >= 1e6
    ):  # neither a probability nor an entropy: a forged trace
        return f"{value:.3g}"
    if value == 0 or abs(value - 1) < 1e-6:  # rounding may have changed the last digits of a 1
        return "0" if value == 0 else "1"
    if 0 < value < LEAST:
        return "under 0.0001"
    if value < 1:
        decimals = digits - 1 - math.floor(math.log10(value))
        shown = f"{value:.{decimals}f}".rstrip("0").rstrip(".")
        return shown if shown != "1" else f"{value:.6f}".rstrip("0")
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(value)))}f}"


def duration(seconds: float) -> str:
    """A duration in minutes, or in seconds if it is short; at least a second."""
    return f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(1, round(seconds))} s"


def apart(a: float, b: float) -> tuple[str, str]:
    """Two numbers with as many digits as needed to see which is larger."""
    for digits in range(3, 16):
        shown = number(a, digits), number(b, digits)
        if shown[0] != shown[1] or a == b:
            return shown
    return repr(a), repr(b)


def percent(value: float) -> str:
    """A share as whole percents; 0% and 100% only if it is exactly that."""
    if 0 < value < 0.005:
        return "under 1%"
    if 0.995 <= value < 1:
        return "over 99%"
    return f"{math.floor(value * 100 + 0.5)}%"


def milliseconds(seconds: float) -> str:
    """A duration in milliseconds, or seconds from ten on."""
    if seconds >= 10:
        return f"{seconds:.1f} s"
    value = seconds * 1000
    return (
        f"{value:.0f} ms"
        if value >= 100
        else f"{value:.1f} ms"
        if value >= 1
        else f"{value:.2f} ms"
    )


def as_shown(seconds: float) -> float:
    """The duration that `milliseconds` shows, in seconds."""
    value, unit = milliseconds(seconds).split()
    return float(value) / (1000 if unit == "ms" else 1)


def count(amount: int, noun: str) -> str:
    """`1 token`, `2 tokens`."""
    return f"{amount:,} {noun}" + ("" if amount == 1 else "s")
