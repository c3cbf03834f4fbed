"""vLLM's log, request metrics and benchmark summary.

The log line "SpecDecoding metrics" covers the few seconds since the previous one: `vllm/v1/spec_decode/metrics.py`,
`SpecDecodingLogging.log`, at ee4ceaae5953. Earlier versions have fewer fields in another order.
"""

import re
from itertools import zip_longest
from typing import Any

from naive_speculate.doctor.json_objects import objects, whole_number
from naive_speculate.doctor.reading import ROUNDING, Reading, mean, rates_in, rates_of, weighted_rates

SOURCE = "vllm/v1/spec_decode/metrics.py, SpecDecodingLogging.log (ee4ceaae5953)"
REQUEST_SOURCE = "the response's metrics.speculative_decoding (2026)"
SUMMARY_SOURCE = "vllm bench serve, and examples/offline_inference/spec_decode.py"
_LINE = re.compile(r"SpecDecoding metrics: (.*)")
_RATES = re.compile(r"Per-position acceptance rate: \[?([\d., ]+)")
_RUNNING = re.compile(r"Running: (\d+) reqs")  # vllm/v1/metrics/loggers.py, a line written at the same time
_SUMMARY = re.compile(
    r"^[ \t]*(?:(num_drafts|drafts)|(num_draft_tokens|draft tokens)|(num_accepted_tokens|accepted tokens)"
    r"|(position|acceptance at token) (\d+)): +(\d+(?:\.\d+)?)[ \t\r]*$",
    re.MULTILINE | re.IGNORECASE,
)
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
    return Reading.counted(
        accepted,
        drafted,
        steps if counted else None,
        engine="vLLM",
        format="log line “SpecDecoding metrics”",
        source=SOURCE,
        rates=weighted_rates(parts) if counted else (),
        requests_running=running,
        derived=(f"{_TOO_FEW}: they are derived from Drafted, Accepted and the rates.",) if counted else (),
        unknown=() if counted else (f"{_TOO_FEW}, and this version has no rates to derive them from.",),
    )


def read_request(text: str) -> Reading | None:
    """The metrics of all responses together; None if there are none. Of a streamed response the last report counts."""
    found: dict[Any, dict[str, Any]] = {}
    for number, (metrics, outermost) in enumerate(objects(text, ("num_spec_steps",))):
        found[outermost.get("id", number)] = metrics
    if not found:
        return None
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    steps, drafted, accepted = (sum(whole_number(one.get(name), name) for one in found.values()) for name in names)
    histogram = [0]
    for one in found.values():
        counts = [whole_number(count, "acceptance_histogram") for count in one.get("acceptance_histogram") or ()]
        histogram = [have + more for have, more in zip_longest(histogram, counts, fillvalue=0)]
    rates = rates_of(histogram, drafted / steps) if steps and sum(histogram) == steps else ()
    return Reading.counted(
        accepted,
        drafted,
        steps or None,
        engine="vLLM",
        format="request metrics",
        source=REQUEST_SOURCE,
        rates=rates,
        unknown=() if rates else ("There is no histogram, so the rates per index are unknown.",),
    )


def read_summary(text: str) -> Reading | None:
    """All summaries of vLLM's benchmark or example together; None if there are none."""
    totals = [0, 0, 0]  # steps, draft tokens, accepted tokens
    parts: list[tuple[float, list[float]]] = []
    for *counts, kind, index, value in _SUMMARY.findall(text):
        which = next((index for index, name in enumerate(counts) if name), None)
        if which is not None:
            totals[which] += whole_number(float(value), counts[which])
            parts += [(float(value), [])] if which == 0 else []
        elif parts and int(index) == len(parts[-1][1]):
            parts[-1][1].append(float(value) / (100 if kind.lower() == "position" else 1))
    steps, drafted, accepted = totals
    if not steps or not drafted:
        return None
    rates = [(of_run, tuple(by_index)) for of_run, by_index in parts]
    return Reading.counted(
        accepted,
        drafted,
        steps,
        engine="vLLM",
        format="summary of a run",
        source=SUMMARY_SOURCE,
        rates=weighted_rates(rates) if all(by_index for _, by_index in rates) else (),
    )


def _count(name: str, line: str) -> int | None:
    found = re.search(rf"(?<![A-Za-z] ){name}: (\d+) tokens", line)
    return int(found[1]) if found else None


def _steps(drafted: int, accepted: int, rates: tuple[float, ...], line: str) -> float | None:
    """Steps of one line: all windows have full length, unless that contradicts the rates, which are shares of the steps."""
    if not rates:
        found = re.search(r"[Mm]ean acceptance length: ([\d.]+)", line)
        beyond = float(found[1].rstrip(".")) - 1 if found else 0.0
        return accepted / beyond if beyond > 0 else None
    whole = drafted / len(rates)
    if abs(sum(rates) - accepted / whole) <= len(rates) * ROUNDING + 1e-9 or not sum(rates):
        return whole
    return accepted / sum(rates)
