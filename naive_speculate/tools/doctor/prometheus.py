"""Prometheus text, and the counters of vLLM, LMDeploy, llama.cpp's server and this project: the
same names with different prefixes. TensorRT-LLM counts the draft tokens of each index instead of
the steps.

vLLM: `vllm/v1/spec_decode/metrics.py`, `SpecDecodingProm`, at ee4ceaae5953; its
`examples/offline_inference/metrics.py` prints them with "=". llama.cpp: `llama-server
--metrics`, in `tools/server` since the server counts verification steps. This project:
docs/metrics.md.
"""

import ast
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from naive_speculate.tools.doctor.processes import together
from naive_speculate.tools.doctor.reading import GIVEN, Format, Part, Reading, mean

PROMETHEUS = ("Prometheus counters", "Prometheus gauges")  # the formats' names

_ENGINES = {
    "vllm": (
        "vLLM",
        "vllm/v1/spec_decode/metrics.py, SpecDecodingProm (ee4ceaae5953)",
        "num_requests_running",
    ),
    "llamacpp": ("llama.cpp", "tools/server, GET /metrics (2026)", "requests_processing"),
    "lmdeploy": ("LMDeploy", "lmdeploy/metrics/loggers.py (1263d5cd8)", "num_requests_running"),
    "trtllm": (
        "TensorRT-LLM",
        "tensorrt_llm/metrics/collector.py (050f80def8df)",
        "num_requests_running",
    ),
    "tokenspeed": (
        "tokenspeed",
        "python/tokenspeed/runtime/metrics/collector.py (tokenspeed#1443)",
        "num_running_reqs",
    ),
    "rapid_mlx": (
        "Rapid-MLX",
        "vllm_mlx/routes/metrics.py, spec_decode counters (2026)",
        "num_requests_running",
    ),
    "naive_speculate": ("Naive Speculate", "ui/host/operations.py", "num_requests_running"),
}
# what collects metrics may write "_" for ":", and prefix "ray_", a container's name or a file's
_LINE = re.compile(
    rf"^[^#\n]*?(?<!\w)(?:ray_)?(?P<prefix>{'|'.join(_ENGINES)}|sglang)[:_](?P<name>\w+)[ \t]*"
    r"""(?P<labels>\{[^"{}\\\n]*(?:"[^"\\\n]*(?:\\.[^"\\\n]*)*"[^"{}\\\n]*)*\})?"""
    r"(?:[ \t]*(?:\(\w+\)[ \t]*)?[|=][ \t]*|[ \t]+|(?<=\}))(?P<value>\[[\d., ]*\]|\S+)",
    re.MULTILINE,
)
_START = re.compile(r"^(?:\S+[ :])?process_start_time_seconds[ \t]+([\d.e+]+)", re.MULTILINE)
_CREATED = re.compile(r"spec_decode_\w+_created")
_METRIC = re.compile(  # `llm.get_metrics()` of vLLM, as Python prints it
    r"(?:Counter|Gauge|Vector)\(\s*name=(['\"])(?P<name>[a-z_]+:\w+)\1,"
    r"\s*labels=(?P<labels>\{[^{}]*\}),\s*values?=(?P<value>\[[^\[\]]*\]|[-+.\w]+),?\s*\)"
)
_RAPID = re.compile(
    r"rapid_mlx_spec_decode_(?P<name>attempts|accepts|drafted_by_depth|accepted_by_depth)_total"
    r"(?P<labels>\{[^{}\n]*\})?"
)
_RAPID_NAMES = {"attempts": "draft_tokens", "accepts": "accepted_tokens"}
_POSITION = re.compile(r',?(?:[a-z]+_)?position="(\d{1,3})"')
_COUNTER = re.compile(
    r"spec_decode_(?:num_)?"
    r"(drafts|draft(?:ed)?_tokens|emitted_tokens|accepted_tokens(?:_per_pos)?)(?:_total)?"
)
_WINDOW = re.compile(r'speculative_config_info\{[^\n]*spec_num_tokens="([1-9]\d{0,3})"')
_V0 = "vLLM's version 0 counts accepted tokens after a rejection too: {}"
_TWICE = "The counters were scraped twice: the difference counts."
_ONCE = "One process was scraped once: so all counters are those since its start."
_SINCE = "The counters cover the time since the engine started, so changes since then are mixed."
_Totals = defaultdict[str, defaultdict[int | None, float]]  # by counter and index


class Series(NamedTuple):
    """A series: the process that reports it ("" if the text names none), its name and labels."""

    process: str
    name: str
    labels: str


def with_metrics(text: str) -> str:
    """The metrics of vLLM's `llm.get_metrics()`, as Python prints them, become Prometheus text, and
    Rapid-MLX's counters get vLLM's names."""
    text = _METRIC.sub(_as_lines, text) if "name=" in text else text
    return _RAPID.sub(_renamed, text) if "rapid_mlx_" in text else text


def _renamed(match: re.Match[str]) -> str:
    """Depths are counted from 1; a step drafts at least to depth 1."""
    name, labels = match["name"], match["labels"] or ""
    depth = re.search(r'depth="?(\d{1,3})"?', labels)
    if depth is None:
        name = _RAPID_NAMES.get(name, name)
        return f"rapid_mlx_spec_decode_num_{name}_total{labels}"
    rest = labels.replace(depth[0], f'position="{max(int(depth[1]) - 1, 0)}"')
    if name == "accepted_by_depth":
        return f"rapid_mlx_spec_decode_num_accepted_tokens_per_pos_total{rest}"
    if depth[1] == "1":
        labels = labels.replace(depth[0], "").replace("{,", "{").replace(",}", "}")
        return f"rapid_mlx_spec_decode_num_drafts_total{labels.replace(',,', ',')}"
    return match[0]


def _as_lines(match: re.Match[str]) -> str:
    try:
        labels = ast.literal_eval(match["labels"])
        values = ast.literal_eval(match["value"]) if match["value"].startswith("[") else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return match[0]
    rows = {None: match["value"]} if values is None else dict(enumerate(values))
    lines = []
    for index, value in rows.items():
        every = labels if index is None else labels | {"position": index}
        inner = ",".join(f'{key}="{label}"' for key, label in every.items())
        lines.append(f"{match['name']}{{{inner}}} {value}")
    return "\n" + "\n".join(lines) + "\n"


def samples(text: str, prefix: str) -> dict[Series, list[str]]:
    """The values of the series with a prefix such as "vllm", in the order of the text. Two servers'
    texts differ in the start of their processes."""
    if f"{prefix}:" not in text and f"{prefix}_" not in text:  # a long log is searched once
        return {}
    scrapes = [(start, dict(rows)) for start, rows in _scrapes(text, prefix)]
    starts = [start or _created(rows) for start, rows in scrapes]
    known = {start for start in starts if start}
    series: dict[Series, list[str]] = defaultdict(list)
    for start, (_, rows) in zip(starts, scrapes, strict=True):
        process = (start or min(known)) if len(known) == 1 else start
        for (name, labels), value in rows.items():
            series[Series(process if len(known) > 1 else "", name, labels)].append(value)
    return series


def _scrapes(text: str, prefix: str) -> Iterator[tuple[str, list[tuple[tuple[str, str], str]]]]:
    """Each scrape's process start and rows. One ends where a series, or a process's start,
    recurs."""
    rows, keys_so_far, start = list[tuple[tuple[str, str], str]](), set[tuple[str, str]](), ""
    lines = sorted([*_LINE.finditer(text), *_START.finditer(text)], key=lambda one: one.start())
    for line in lines:
        keys = list(_rows(line, prefix)) if line.re is _LINE else []
        again = start if line.re is _START else any(key in keys_so_far for key, _ in keys)
        if again:
            yield start, rows
            rows, keys_so_far, start = [], set(), ""
        if line.re is _START:
            # some write the process's own figures last
            start = line[1]
        rows += keys
        keys_so_far |= {key for key, _ in keys}
    yield start, rows


def names_processes(text: str) -> bool:
    return _START.search(text) is not None or "_created" in text


def _rows(line: re.Match[str], prefix: str) -> Iterator[tuple[tuple[str, str], str]]:
    if line["prefix"] != prefix:
        return
    if line["value"].startswith("["):  # one number for each index
        for index, value in enumerate(line["value"].strip("[]").replace(",", " ").split()):
            yield (line["name"], f'{{position="{index}"}}'), value
    else:
        yield (line["name"], line["labels"] or ""), line["value"]


def _created(rows: dict[tuple[str, str], str]) -> str:
    """ "" if unknown."""
    times = []
    for (name, _), value in rows.items():
        if _CREATED.fullmatch(name) and re.fullmatch(r"[\d.]+(?:e\+?\d+)?", value):
            times.append(float(value))
    return f"{min(times):.3f}" if times else ""


def read_prometheus(text: str) -> Reading | None:
    """The counters of all processes. A series that occurs twice was scraped twice: the difference
    counts."""
    for prefix in _ENGINES:
        series = samples(text, prefix)
        counters = {key: values for key, values in series.items() if _COUNTER.fullmatch(key.name)}
        # Ray writes each counter twice, with _total and without.
        totals = {key for key in counters if key._replace(name=f"{key.name}_total") in counters}
        counters = {key: values for key, values in counters.items() if key not in totals}
        if not any(_of_drafts(key.name) for key in counters):
            continue
        if len(processes := _processes(counters)) > 1:
            with suppress(ValueError):  # the labels differ for another reason
                if reading := _of_processes(prefix, text, series, counters, processes):
                    return reading
        return _of_series(prefix, text, series, counters)
    return None


def _of_drafts(name: str) -> bool:
    return _COUNTER.sub(r"\1", name) in ("draft_tokens", "drafted_tokens")


def _identity(key: Series) -> tuple[str, str]:
    return key.process, _POSITION.sub("", key.labels).replace("{,", "{").replace("{}", "")


def _processes(counters: dict[Series, list[str]]) -> dict[tuple[str, str], str]:
    """Those that count draft tokens, with a name made of what differs between them."""
    identities = dict.fromkeys(_identity(key) for key in counters if _of_drafts(key.name))
    labels = {one: dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', one[1])) for one in identities}
    differ = [
        name
        for name in dict.fromkeys(name for pairs in labels.values() for name in pairs)
        if len({pairs.get(name) for pairs in labels.values()}) > 1
    ]
    names = {}
    for one, pairs in labels.items():
        words = [f"{name} {pairs[name]}" for name in differ if name in pairs]
        if one[0] and len({process for process, _ in identities}) > 1:
            began = datetime.fromtimestamp(float(one[0]), UTC)
            words.append(f"started {began:%Y-%m-%d %H:%M:%S} UTC")
        names[one] = ", ".join(words) or "without labels"
    return names


def _of_processes(
    prefix: str,
    text: str,
    series: dict[Series, list[str]],
    counters: dict[Series, list[str]],
    processes: dict[tuple[str, str], str],
) -> Reading | None:
    scraped = [len(values) for key, values in counters.items() if _identity(key) in processes]
    last = min(scraped) == 1 < max(scraped)
    readings, left_out = dict[str, Reading](), []
    for one, name in processes.items():
        own, all_own = (
            {
                key: values[-1:] if last else values
                for key, values in part.items()
                if _identity(key) == one
            }
            for part in (counters, series)
        )
        try:
            readings[name] = _of_series(prefix, text, all_own, own)
        except ValueError as error:
            if "drafted" not in str(error):
                raise
            left_out.append(f"{name} is left out: {error}.")
    if not readings or (whole := together(readings)) is None:
        return None
    words = f"The text is of {len(processes)} processes, whose counters are summed."
    derived = (words, *whole.derived, *((_ONCE,) if last else ()))
    return replace(whole, derived=derived, unknown=(*whole.unknown, *left_out))


def _of_series(
    prefix: str, text: str, series: dict[Series, list[str]], counters: dict[Series, list[str]]
) -> Reading:
    """Raises `ValueError` if a counter falls or is missing."""
    engine, source, running = _ENGINES[prefix]
    totals, twice = _totals(counters, prefix)
    listed = [value for key, values in series.items() if key.name == running for value in values]
    requests = [_number(value, running) for value in listed]
    derived = (_TWICE,) if twice else ()
    part, window = _part(totals, prefix), _WINDOW.search(text)
    stated, unknown = {}, () if twice else (_SINCE,)
    if emitted := totals["emitted_tokens"].get(None):
        of_emitted = _of_emitted(part, emitted, None if twice else _efficiency(series))
        if of_emitted is not None:
            words = _V0.format("the emitted ones and the efficiency give the figures.")
            part, derived = of_emitted, (*derived, words)
        else:
            unknown = (*unknown, _V0.format("fewer were emitted than it states."))
    if window and not part.steps:
        stated = {"drafted_per_step": float(window[1])}
        derived = (*derived, GIVEN)
    return Format(engine, "Prometheus counters", source).total(
        [part],
        requests_running=mean(number for number in requests if number),
        derived=derived,
        unknown=unknown,
        **stated,
    )


def _totals(counters: dict[Series, list[str]], prefix: str) -> tuple[_Totals, bool]:
    """The counters by name and index, and whether they were scraped twice."""
    totals: _Totals = defaultdict(lambda: defaultdict(float))
    for key, texts in counters.items():
        values = [_number(value, key.name) for value in texts]
        for before, after in pairwise(values):
            if after < before:
                why = "the engine was restarted in between, or these are two engines"
                fall = f"{prefix}:{key.name} falls from {before:g} to {after:g}"
                raise ValueError(f"{fall}: {why}")
        index = int(position[1]) if (position := _POSITION.search(key.labels)) else None
        totals[_COUNTER.sub(r"\1", key.name)][index] += (
            values[-1] - values[0] if len(values) > 1 else values[0]
        )
    return totals, any(len(values) > 1 for values in counters.values())


def _efficiency(series: dict[Series, list[str]]) -> float | None:
    name = "spec_decode_efficiency"
    listed = [values[-1] for key, values in series.items() if key.name == name]
    known = [_number(value, name) for value in listed if value.lower() != "nan"]
    return mean(number for number in known if number)


def _part(totals: _Totals, prefix: str) -> Part:
    """Raises `ValueError` if the accepted tokens are missing."""
    steps, drafted, accepted = (
        totals[name].get(None) for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    of_indices, drafted_at = totals["accepted_tokens_per_pos"], totals["drafted_tokens"]
    if drafted_at:  # TensorRT-LLM's, of finished requests
        of_indices = totals["accepted_tokens"]
        cut = of_indices.pop(None, 0) > 0 and not of_indices
        steps, drafted, accepted = drafted_at[0], sum(drafted_at.values()), sum(of_indices.values())
    else:
        cut = accepted is None and prefix != "trtllm"  # which writes no counter that is 0
    if cut:
        missing = f"{prefix}:spec_decode_num_accepted_tokens is missing"
        raise ValueError(f"{missing}: the text was not copied in full")
    accepted = accepted or 0
    indices = [index for index in (*of_indices, *drafted_at) if index is not None]
    width = max(indices, default=-1) + 1
    # otherwise some were not copied
    whole = steps and abs(sum(of_indices.values()) - accepted) <= 0.02 * accepted
    rates = tuple(of_indices[index] / steps for index in range(width)) if whole and steps else ()
    return Part(int(accepted), int(drafted or 0), steps, rates)


def _of_emitted(part: Part, emitted: float, efficiency: float | None) -> Part | None:
    """For vLLM's version 0, whose efficiency is emitted ÷ (draft tokens + steps); None if no whole
    window fits."""
    drafted, most = part.drafted or 0, emitted / efficiency if efficiency else 0.0
    width = drafted / (most - drafted) if most > drafted else 0.0
    if round(width) < 1 or abs(width - round(width)) > 0.25:
        return None
    steps = drafted / round(width)
    return Part(max(round(emitted - steps), 0), drafted, steps)


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a number, got {text!r:.40}")
    return value
