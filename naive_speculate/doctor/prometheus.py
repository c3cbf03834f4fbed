"""Prometheus counters of vLLM, llama.cpp's server and this project, which use the same names with different prefixes.

vLLM: `vllm/v1/spec_decode/metrics.py`, `SpecDecodingProm`, at ee4ceaae5953. llama.cpp: `llama-server --metrics`, in
`tools/server` since the server counts verification steps. This project: docs/metrics.md.
"""

import math
import re

from naive_speculate.doctor.reading import Reading, mean

_ENGINES = {
    "vllm": ("vLLM", "vllm/v1/spec_decode/metrics.py, SpecDecodingProm (ee4ceaae5953)", "num_requests_running"),
    "llamacpp": ("llama.cpp", "tools/server, GET /metrics (2026)", "requests_processing"),
    "naive_speculate": ("Naive Speculate", "ui/host/operations.py", "num_requests_running"),
}
_LINE = re.compile(r"^(vllm|llamacpp|naive_speculate):(\w+)(\{[^}\n]*\})?\s+(\S+)", re.MULTILINE)
_POSITION = re.compile(r'position="(\d{1,3})"')
_NAMES = ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")


def read_prometheus(text: str) -> Reading | None:
    """The counters of all engines of a server together; None if there are none.

    A series that occurs twice was scraped twice; then the difference counts.
    """
    for prefix in _ENGINES:
        series: dict[tuple[str, str], list[float]] = {}
        for line in _LINE.finditer(text):
            name = line[2].removesuffix("_total").removeprefix("spec_decode_num_")
            if line[1] == prefix and (name in _NAMES or line[2] == _ENGINES[prefix][2]):
                series.setdefault((name, line[3] or ""), []).append(_number(line[4], line[2]))
        if any(name == "draft_tokens" for name, _ in series):
            return _reading(prefix, series)
    return None


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
    return Reading.counted(
        int(totals["accepted_tokens"]),
        int(totals["draft_tokens"]),
        steps or None,
        engine=engine,
        format="Prometheus counters",
        source=source,
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
