"""Prometheus text, and the counters of vLLM, llama.cpp's server and this project: the same names with different prefixes.

vLLM: `vllm/v1/spec_decode/metrics.py`, `SpecDecodingProm`, at ee4ceaae5953. llama.cpp: `llama-server --metrics`, in
`tools/server` since the server counts verification steps. This project: docs/metrics.md.
"""

import math
import re
from collections.abc import Mapping

from naive_speculate.doctor.reading import Format, Reading, mean

_ENGINES = {
    "vllm": ("vLLM", "vllm/v1/spec_decode/metrics.py, SpecDecodingProm (ee4ceaae5953)", "num_requests_running"),
    "llamacpp": ("llama.cpp", "tools/server, GET /metrics (2026)", "requests_processing"),
    "naive_speculate": ("Naive Speculate", "ui/host/operations.py", "num_requests_running"),
}
_LINE = re.compile(  # what collects metrics may write "_" for ":", and prefix a container's name
    r"^[^#\n]*?(?<![\w:])(?P<prefix>vllm|llamacpp|naive_speculate|sglang)[:_](?P<name>\w+)[ \t]*(?P<labels>\{[^}\n]*\})?"
    r"(?:[ \t]*\|[ \t]*|[ \t]+|(?<=\}))(?P<value>\S+)",
    re.MULTILINE,
)
_POSITION = re.compile(r'position="(\d{1,3})"')
_NAMES = ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")


def read_prometheus(text: str) -> Reading | None:
    """The counters of all engines of a server together; None if there are none.

    A series that occurs twice was scraped twice; then the difference counts.
    """
    for prefix, (_, _, running) in _ENGINES.items():
        names = {f"spec_decode_num_{name}{total}": name for name in _NAMES for total in ("", "_total")}
        found = samples(text, prefix, names | {running: running})
        if any(name == "draft_tokens" for name, _ in found):
            series = {key: [_number(value, key[0]) for value in values] for key, values in found.items()}
            return _reading(prefix, series)
    return None


def samples(text: str, prefix: str, names: Mapping[str, str]) -> dict[tuple[str, str], list[str]]:
    """The values of an engine's series by (name, labels), in the order of the text. `prefix`: what its series' names begin
    with, such as "vllm"; `names`: the series to find, and what to call them."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in _LINE.finditer(text):
        if line["prefix"] == prefix and line["name"] in names:
            found.setdefault((names[line["name"]], line["labels"] or ""), []).append(line["value"])
    return found


def _reading(prefix: str, series: dict[tuple[str, str], list[float]]) -> Reading:
    engine, source, running = _ENGINES[prefix]
    totals = dict.fromkeys(_NAMES, 0.0)
    by_index: dict[int, float] = {}
    for (name, labels), values in series.items():
        if name == running:
            continue
        value = values[-1] - values[0] if len(values) > 1 else values[0]
        if value < 0:
            raise ValueError(f"{prefix}:{name} falls from {values[0]:g} to {values[-1]:g}: the engine was restarted in between")
        totals[name] += value
        index = _POSITION.search(labels)
        if name == "accepted_tokens_per_pos" and index:
            by_index[int(index[1])] = by_index.get(int(index[1]), 0.0) + value
    steps = totals["drafts"]
    indices = range(max(by_index) + 1) if by_index and steps else ()
    twice = any(len(values) > 1 for (name, _), values in series.items() if name != running)
    return Format(engine, "Prometheus counters", source).counted(
        int(totals["accepted_tokens"]),
        int(totals["draft_tokens"]),
        steps or None,
        rates=tuple(by_index.get(index, 0.0) / steps for index in indices),
        requests_running=mean(value for (name, _), values in series.items() if name == running for value in values),
        derived=("The counters were scraped twice: the difference counts.",) if twice else (),
        unknown=() if twice else ("The counters cover the time since the engine started, so changes since then are mixed.",),
    )


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a number, got {text!r:.40}")
    return value
