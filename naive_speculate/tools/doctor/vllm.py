"""vLLM's log and request metrics (`docs/features/speculative_decoding/acceptance_metrics.md`, at
02cf515f0b62).

The log line "SpecDecoding metrics" covers the few seconds since the previous one. Earlier
versions have fewer fields in another order.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from typing import Any

from naive_speculate.tools.doctor.json_objects import last_reports, whole_number, whole_numbers
from naive_speculate.tools.doctor.reading import (
    NO_HISTOGRAM,
    ROUNDING,
    Format,
    Part,
    Reading,
    Stretch,
    category,
    judged_of,
    last_of_each,
    mean,
    numbers_in,
    rates_of,
)

_LOG = Format(
    "vLLM",
    "log line “SpecDecoding metrics”",
    "vllm/v1/spec_decode/metrics.py, SpecDecodingLogging.log (ee4ceaae5953)",
)
_LOG_V0 = Format(
    "vLLM",
    "log line “Speculative metrics”",
    "vllm/engine/metrics.py, _format_spec_decode_metrics_str (v0.8)",
)
_REQUEST = Format(
    "vLLM", "request metrics", "the response's metrics.speculative_decoding (vllm#48915)"
)
_LMDEPLOY = _LOG._replace(
    engine="LMDeploy", source="lmdeploy/metrics/loggers.py, get_spec_msg (1263d5cd8)"
)
# a message may span lines, or follow another one on a line
_BEGIN, _LONGEST = re.compile(r"SpecDecoding\s+metrics:"), 2000
_COUNT = re.compile(r"(?<![A-Za-z] )\b(Accepted|Drafted):\s*(\d+)\s*tokens")
_LINE_V0 = re.compile(
    r"Speculative metrics:(?:[^,\n]{0,60},){2} Number of speculative tokens: (\d+), Number of"
    r" accepted tokens: \d+, "
    r"Number of draft tokens(?: tokens)?: (\d+), Number of emitted tokens(?: tokens)?: (\d+)"
)
_LENGTH = re.compile(r"[Mm]ean acceptance length:\s*(\d+(?:\.\d+)?)")
_PERCENTAGE = re.compile(r"Draft acceptance rate:\s*(\d+(?:\.\d+)?)%")
_RATES = re.compile(r"Per-position acceptance rate:\s*[\[(]?(\d+(?:\.\d+)?(?:,\s*\d+(?:\.\d+)?)*)")
# vllm/v1/metrics/loggers.py; LMDeploy
_RUNNING = re.compile(r"(?:Running:|Engine \(running/waiting\):)\s*(\d+)(?: reqs| /)")
_TOO_FEW = "The line does not count the steps"
_DERIVED_V0 = (
    "The steps are derived from the draft tokens and the window, the accepted tokens from the"
    " emitted ones."
)


def read_log(text: str) -> Reading | None:
    """All messages, weighted by their steps. One without rates, such as one that was cut, counts if
    no other has them."""
    messages = [re.sub(r"\s+", " ", message[:_LONGEST]) for message in _BEGIN.split(text)[1:]]
    counted = [(dict(reversed(_COUNT.findall(message))), message) for message in messages]
    parts = [_of_message(count, message) for count, message in counted if len(count) == 2]
    if any(part.rates for part in parts):
        parts = [part for part in parts if part.rates or not part.drafted]
    if not parts:
        return _of_shortened(messages)
    known = all(part.steps is not None for part in parts)
    return (_LMDEPLOY if "Avg thr (in/out)" in text else _LOG).total(
        parts,
        requests_running=mean(int(number) for number in _RUNNING.findall(text) if int(number)),
        derived=(known and f"{_TOO_FEW}: they are derived from Drafted, Accepted and the rates.",),
        unknown=(not known and f"{_TOO_FEW}, and this version has no rates to derive them from.",),
    )


def _of_shortened(messages: Sequence[str]) -> Reading | None:
    """Messages from which the counts were left out, as in reports."""
    runs = []
    for message in messages:
        percentage, rates = _PERCENTAGE.search(message), _RATES.search(message)
        if length := _LENGTH.search(message):
            percent = float(percentage[1]) if percentage else None
            runs.append((float(length[1]) - 1, percent, numbers_in(rates[1]) if rates else ()))
    return _LOG.of_means(runs) if runs else None


def read_v0_log(text: str) -> Reading | None:
    """The last line of each process, whose counters grow. Version 0 counts accepted tokens after a
    rejection too, so the emitted ones count."""
    parts = []
    for report in last_of_each(_LINE_V0.findall(text), slice(3)):
        k, drafted, emitted = map(int, report)
        steps = drafted / k if k else 0.0
        parts.append(Part(round(emitted - steps), drafted, steps))
    return _LOG_V0.total(parts, derived=(_DERIVED_V0,)) if parts else None


def _of_message(count: dict[str, str], message: str) -> Part:
    """All windows have full length, unless that contradicts the rates. Without rates if some were
    cut off: the mean length is 1 + their sum."""
    accepted, drafted = int(count["Accepted"]), int(count["Drafted"])
    rates_text, length, steps = _RATES.search(message), _LENGTH.search(message), None
    rates = numbers_in(rates_text[1]) if rates_text else ()
    if rates and length and abs(1 + sum(rates) - float(length[1])) > 0.005 + len(rates) * ROUNDING:
        rates = ()
    if not drafted:
        steps = 0.0
    elif rates:
        steps = drafted / len(rates)
        if sum(rates) and abs(sum(rates) - accepted / steps) > len(rates) * ROUNDING + 1e-9:
            steps = accepted / sum(rates)
    elif length and float(length[1]) > 1:
        steps = accepted / (float(length[1]) - 1)
    course = (Stretch(None, steps, steps * rates[0]),) if rates and steps else ()
    return Part(accepted, drafted, steps, rates, course=course)


def read_request(text: str) -> Reading | None:
    """Of a streamed response the last report counts."""
    reports = last_reports(
        text, ("num_spec_steps",), lambda _, response: _whole_response(response).get("id")
    )
    parts = [_of_request(metrics, _whole_response(response)) for metrics, response in reports]
    if not parts:
        return None
    known = all(part.rates for part in parts if part.steps)
    return _REQUEST.total(parts, unknown=(not known and NO_HISTOGRAM,))


def _whole_response(outermost: dict[str, Any]) -> dict[str, Any]:
    return outermost["data"] if isinstance(outermost.get("data"), dict) else outermost


def _of_request(metrics: dict[str, Any], response: dict[str, Any]) -> Part:
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    steps, drafted, accepted = (whole_number(metrics.get(name), name) for name in names)
    histogram = _dense(metrics.get("acceptance_histogram"))
    lists = ("per_step_accepted", "per_step_drafted")
    hits_of_steps, drafts = (whole_numbers(metrics.get(name), name) for name in lists)
    if len(hits_of_steps) != len(drafts):
        hits_of_steps = drafts = []
    windows = [(k, hits, 1) for k, hits in zip(drafts, hits_of_steps, strict=True)]
    if isinstance(by_length := metrics.get("acceptance_histogram_by_draft_length"), dict):
        windows = [
            (int(length), hits, count)
            for length, counts in by_length.items()
            if str(length).isdecimal()
            for hits, count in enumerate(_dense(counts))
        ]
    rates = rates_of(histogram, drafted / steps) if steps and sum(histogram) == steps else ()
    complete = sum(count for *_, count in windows) == steps
    judged = judged_of(windows, len(rates)) if complete else ()
    usage = response.get("usage")
    prompt = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    after: Iterable[int | None] = repeat(None)
    if isinstance(prompt, int):
        after = accumulate((1 + hits for hits in hits_of_steps), initial=prompt)
    pairs = zip(after, hits_of_steps, strict=False)
    course = tuple(Stretch(position, 1, min(hits, 1)) for position, hits in pairs)
    return Part(accepted, drafted, steps, rates, judged, course, category(response))


def _dense(histogram: Any) -> list[int]:
    """Tools also write a histogram as an object without the empty counts."""
    name = "acceptance_histogram"
    if isinstance(histogram, dict):
        counts = {int(key): one for key, one in histogram.items() if str(key).isdecimal()}
        sparse = {key: whole_number(one, name) for key, one in counts.items()}
        return [sparse.get(key, 0) for key in range(min(max(sparse, default=0), 1000) + 1)]
    return whole_numbers(histogram, name)
