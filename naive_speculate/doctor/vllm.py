"""vLLM's log and request metrics.

The log line "SpecDecoding metrics" covers the few seconds since the previous one: `vllm/v1/spec_decode/metrics.py`,
`SpecDecodingLogging.log`, at ee4ceaae5953. Earlier versions have fewer fields in another order. The request metrics:
`docs/features/speculative_decoding/acceptance_metrics.md`, at 02cf515f0b62.
"""

import re
from dataclasses import replace
from itertools import accumulate, zip_longest
from typing import Any

from naive_speculate.doctor.fading import Stretch
from naive_speculate.doctor.json_objects import objects, whole_number, whole_numbers
from naive_speculate.doctor.reading import ROUNDING, Format, Reading, by_category, mean, rates_in, rates_of, weighted_rates

_LOG = Format(
    "vLLM", "log line “SpecDecoding metrics”", "vllm/v1/spec_decode/metrics.py, SpecDecodingLogging.log (ee4ceaae5953)"
)
_REQUEST = Format("vLLM", "request metrics", "the response's metrics.speculative_decoding (vllm#48915)")
_LINE = re.compile(r"SpecDecoding metrics:\s*(.*)")
_RATES = re.compile(r"Per-position acceptance rate:\s*[\[(]?([\d., ]+)")
_RUNNING = re.compile(r"Running:\s*(\d+) reqs")  # vllm/v1/metrics/loggers.py, a line written at the same time
_TOO_FEW = "vLLM's line does not count the steps"


def read_log(text: str) -> Reading | None:
    """All lines together, weighted by their steps; None if there is none."""
    parts: list[tuple[float, tuple[float, ...]]] = []
    drafted = accepted = 0
    counted, steps = True, 0.0
    for line in _LINE.findall(text):
        of_line, of_them = _count("Drafted", line), _count("Accepted", line)
        if of_line is None or of_them is None:
            continue
        drafted, accepted = drafted + of_line, accepted + of_them
        found = _RATES.search(line)
        rates = rates_in(found[1]) if found else ()
        of_steps = _steps(of_line, of_them, rates, line) if of_line else 0.0
        counted = counted and of_steps is not None
        steps += of_steps or 0.0
        parts.append((of_steps or 0.0, rates))
    if not parts:
        return None
    running = mean(int(number) for number in _RUNNING.findall(text) if int(number))
    return _LOG.counted(
        accepted,
        drafted,
        steps if counted else None,
        rates=weighted_rates(parts) if counted else (),
        requests_running=running,
        course=tuple(Stretch(None, of_steps, of_steps * rates[0]) for of_steps, rates in parts if rates),
        derived=(f"{_TOO_FEW}: they are derived from Drafted, Accepted and the rates.",) if counted else (),
        unknown=() if counted else (f"{_TOO_FEW}, and this version has no rates to derive them from.",),
    )


def read_request(text: str) -> Reading | None:
    """The metrics of all responses together; None if there are none. Of a streamed response the last report counts."""
    found: dict[Any, tuple[Any, dict[str, Any]]] = {}
    for number, (metrics, outermost) in enumerate(objects(text, ("num_spec_steps",))):
        outermost = outermost["data"] if isinstance(outermost.get("data"), dict) else outermost
        name = outermost.get("id")
        found[name if isinstance(name, str) else number] = {**metrics, "usage": outermost.get("usage")}, outermost
    if not found:
        return None
    whole = _requests([metrics for metrics, _ in found.values()])
    return replace(whole, categories=by_category(list(found.values()), _requests))


def _requests(found: list[dict[str, Any]]) -> Reading:
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    steps, drafted, accepted = (sum(whole_number(one.get(name), name) for one in found) for name in names)
    rates: tuple[float, ...] = ()
    judged: tuple[float, ...] = ()
    histograms = [_dense(one.get("acceptance_histogram")) for one in found]
    histogram = [sum(counts) for counts in zip_longest(*histograms, fillvalue=0)] or [0]
    if steps and sum(histogram) == steps:
        rates = rates_of(histogram, drafted / steps)
        judged = _judged([_by_length(one) for one in found], steps, len(rates))
    course = tuple(stretch for one in found for stretch in _course(one))
    unknown = () if rates else ("There is no histogram, so the rates per index are unknown.",)
    return _REQUEST.counted(accepted, drafted, steps or None, rates=rates, judged=judged, course=course, unknown=unknown)


def _dense(histogram: Any) -> list[int]:
    """A histogram as a list; tools also write it as an object without the empty counts."""
    name = "acceptance_histogram"
    if isinstance(histogram, dict):
        sparse = {int(key): whole_number(count, name) for key, count in histogram.items() if str(key).isdecimal()}
        return [sparse.get(key, 0) for key in range(min(max(sparse, default=0), 1000) + 1)]
    return whole_numbers(histogram, name)


def _by_length(one: dict[str, Any]) -> dict[int, list[int]]:
    """Steps by window length and accepted tokens; empty if unknown."""
    lengths = one.get("acceptance_histogram_by_draft_length")
    if isinstance(lengths, dict):
        return {int(length): _dense(counts) for length, counts in lengths.items() if str(length).isdecimal()}
    found: dict[int, list[int]] = {}
    for accepted, drafted in _each_step(one):
        counts = found.setdefault(drafted, [0] * (drafted + 1))
        counts[min(accepted, drafted)] += 1
    return found


def _each_step(one: dict[str, Any]) -> list[tuple[int, int]]:
    """Accepted and draft tokens of each step; empty if unknown."""
    accepted, drafted = (whole_numbers(one.get(name), name) for name in ("per_step_accepted", "per_step_drafted"))
    return list(zip(accepted, drafted, strict=True)) if len(accepted) == len(drafted) else []


def _judged(lengths: list[dict[int, list[int]]], steps: int, indices: int) -> tuple[float, ...]:
    """Per index, the share of steps that judge a draft token there; empty unless known for all steps."""
    if sum(sum(counts) for of_one in lengths for counts in of_one.values()) != steps:
        return ()
    return tuple(
        sum(sum(counts[index:]) for of_one in lengths for length, counts in of_one.items() if length > index) / steps
        for index in range(indices)
    )


def _course(one: dict[str, Any]) -> list[Stretch]:
    """Each step, with its position if the response states the prompt's length."""
    usage = one.get("usage")
    prompt = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    accepted = [accepted for accepted, _ in _each_step(one)]
    at = accumulate((1 + count for count in accepted), initial=prompt if isinstance(prompt, int) else 0)
    return [
        Stretch(position if isinstance(prompt, int) else None, 1, min(count, 1))
        for count, position in zip(accepted, at, strict=False)
    ]


def _count(name: str, line: str) -> int | None:
    found = re.search(rf"(?<![A-Za-z] )\b{name}:\s*(\d+)\s*tokens", line)
    return int(found[1]) if found else None


def _steps(drafted: int, accepted: int, rates: tuple[float, ...], line: str) -> float | None:
    """Steps of one line: all windows have full length, unless that contradicts the rates, which are shares of the steps."""
    if not rates:
        found = re.search(r"[Mm]ean acceptance length:\s*([\d.]+)", line)
        beyond = float(found[1].rstrip(".")) - 1 if found else 0.0
        return accepted / beyond if beyond > 0 else None
    whole = drafted / len(rates)
    if abs(sum(rates) - accepted / whole) <= len(rates) * ROUNDING + 1e-9 or not sum(rates):
        return whole
    return accepted / sum(rates)
