"""Prometheus text, and the counters of vLLM, llama.cpp's server and this project: the same names with different prefixes.

vLLM: `vllm/v1/spec_decode/metrics.py`, `SpecDecodingProm`, at ee4ceaae5953. llama.cpp: `llama-server --metrics`, in
`tools/server` since the server counts verification steps. This project: docs/metrics.md.
"""

import math
import re
from collections import defaultdict

from naive_speculate.doctor.reading import Format, Part, Reading, mean

_ENGINES = {
    "vllm": ("vLLM", "vllm/v1/spec_decode/metrics.py, SpecDecodingProm (ee4ceaae5953)", "num_requests_running"),
    "llamacpp": ("llama.cpp", "tools/server, GET /metrics (2026)", "requests_processing"),
    "naive_speculate": ("Naive Speculate", "ui/host/operations.py", "num_requests_running"),
}
_LINE = re.compile(  # what collects metrics may write "_" for ":", and prefix a container's name
    r"^[^#\n]*?(?<![\w:])(?P<prefix>vllm|llamacpp|naive_speculate|sglang)[:_](?P<name>\w+)[ \t]*"
    r"""(?P<labels>\{[^"{}\\\n]*(?:"[^"\\\n]*(?:\\.[^"\\\n]*)*"[^"{}\\\n]*)*\})?"""
    r"(?:[ \t]*\|[ \t]*|[ \t]+|(?<=\}))(?P<value>\S+)",
    re.MULTILINE,
)
_POSITION = re.compile(r'position="(\d{1,3})"')
_COUNTER = re.compile(r"spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)(?:_total)?")


def samples(text: str, prefix: str) -> dict[tuple[str, str], list[str]]:
    """The values of an engine's series by (name, labels), in the order of the text: of those that begin with a prefix such as
    "vllm"."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in _LINE.finditer(text):
        if line["prefix"] == prefix:
            found[line["name"], line["labels"] or ""].append(line["value"])
    return found


def read_prometheus(text: str) -> Reading | None:
    """The counters of all engines of a server together; None if there are none.

    A series that occurs twice was scraped twice; then the difference counts.
    """
    for prefix, (engine, source, running) in _ENGINES.items():
        series = samples(text, prefix)
        counters = {key: values for key, values in series.items() if _COUNTER.fullmatch(key[0])}
        if not any(name.removesuffix("_total").endswith("num_draft_tokens") for name, _ in counters):
            continue
        totals: dict[str, float] = defaultdict(float)  # by counter, and by index
        for (name, labels), texts in counters.items():
            values = [_number(value, name) for value in texts]
            value = values[-1] - values[0] if len(values) > 1 else values[0]
            if value < 0:
                fall = f"{prefix}:{name} falls from {values[0]:g} to {values[-1]:g}"
                raise ValueError(f"{fall}: the engine was restarted in between")
            position = _POSITION.search(labels)
            totals[position[1] if position else _COUNTER.sub(r"\1", name)] += value
        steps, indices = totals["drafts"], [int(index) for index in totals if index.isdecimal()]
        rates = tuple(totals[str(index)] / steps for index in range(max(indices) + 1)) if indices and steps else ()
        twice = any(len(values) > 1 for values in counters.values())
        requests = [_number(value, name) for (name, _), values in series.items() if name == running for value in values]
        since = "The counters cover the time since the engine started, so changes since then are mixed."
        return Format(engine, "Prometheus counters", source).total(
            [Part(int(totals["accepted_tokens"]), int(totals["draft_tokens"]), steps, rates)],
            requests_running=mean(requests),
            derived=("The counters were scraped twice: the difference counts.",) if twice else (),
            unknown=() if twice else (since,),
        )
    return None


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a number, got {text!r:.40}")
    return value
