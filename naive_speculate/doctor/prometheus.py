"""The counters that vLLM and, under its own prefix, llama.cpp's server give to Prometheus.

vLLM: `vllm/v1/spec_decode/metrics.py`, `SpecDecodingProm`, at ee4ceaae5953. llama.cpp: `llama-server --metrics`, the same names
behind `llamacpp:`, in `tools/server` since the server counts verification steps.
"""

import math
import re

from naive_speculate.doctor.reading import Reading, mean

_ENGINES = {
    "vllm": ("vLLM", "vllm/v1/spec_decode/metrics.py, SpecDecodingProm (ee4ceaae5953)", "num_requests_running"),
    "llamacpp": ("llama.cpp", "tools/server, GET /metrics (2026)", "requests_processing"),
}
_LINE = re.compile(r"^(vllm|llamacpp):(\w+)(\{[^}\n]*\})?\s+(\S+)", re.MULTILINE)
_PLACE = re.compile(r'position="(\d{1,3})"')
_NAMES = ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")


def read_prometheus(text: str) -> Reading | None:
    """The counters of all engines of a server together; None where there are none. A series that occurs twice was read twice:
    what is between the first and the last of it counts."""
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
    by_place: dict[int, float] = {}
    for (name, labels), values in series.items():
        if name == running:
            continue
        value = values[-1] - values[0] if len(values) > 1 else values[0]
        if value < 0:
            raise ValueError(f"{prefix}:{name} falls from {values[0]:g} to {values[-1]:g}: the engine was started anew between")
        totals[name] += value
        place = _PLACE.search(labels)
        if name == "accepted_tokens_per_pos" and place:
            by_place[int(place[1])] = by_place.get(int(place[1]), 0.0) + value
    steps = totals["drafts"]
    places = range(max(by_place) + 1) if by_place and steps else ()
    twice = any(len(values) > 1 for (name, _), values in series.items() if name != running)
    return Reading.counted(
        int(totals["accepted_tokens"]),
        int(totals["draft_tokens"]),
        steps or None,
        engine=engine,
        format="Prometheus counters",
        source=source,
        rates=tuple(by_place.get(place, 0.0) / steps for place in places),
        requests_running=mean(value for (name, _), values in series.items() if name == running for value in values),
        derived=("The counters were read twice: what is between them counts.",) if twice else (),
        unknown=() if twice else ("The counters are those since the engine was started: what changed since then is mixed.",),
    )


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a number, got {text!r:.40}")
    return value
