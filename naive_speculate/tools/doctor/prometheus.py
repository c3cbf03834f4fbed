"""Prometheus text, and the counters of vLLM, LMDeploy, llama.cpp's server and this project: the
same names with different prefixes. TensorRT-LLM counts the draft tokens of each index instead of
the steps.

vLLM: `vllm/v1/spec_decode/metrics.py`, `SpecDecodingProm`, at ee4ceaae5953; its
`examples/offline_inference/metrics.py` prints them with "=". llama.cpp: `llama-server
--metrics`, in `tools/server` since the server counts verification steps. This project:
docs/metrics.md.
"""

import math
import re
from collections import defaultdict
from itertools import pairwise

from naive_speculate.tools.doctor.reading import Format, Part, Reading, mean

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
    "naive_speculate": ("Naive Speculate", "ui/host/operations.py", "num_requests_running"),
}
# what collects metrics may write "_" for ":", and prefix "ray_", a container's name or a file's
_LINE = re.compile(
    rf"^[^#\n]*?(?<!\w)(?:ray_)?(?P<prefix>{'|'.join(_ENGINES)}|sglang)[:_](?P<name>\w+)[ \t]*"
    r"""(?P<labels>\{[^"{}\\\n]*(?:"[^"\\\n]*(?:\\.[^"\\\n]*)*"[^"{}\\\n]*)*\})?"""
    r"(?:[ \t]*(?:\(\w+\)[ \t]*)?[|=][ \t]*|[ \t]+|(?<=\}))(?P<value>\[[\d., ]*\]|\S+)",
    re.MULTILINE,
)
_POSITION = re.compile(r'position="(\d{1,3})"')
_COUNTER = re.compile(
    r"spec_decode_(?:num_)?(drafts|draft(?:ed)?_tokens|emitted_tokens|accepted_tokens(?:_per_pos)?)(?:_total)?"
)
_WINDOW = re.compile(r'speculative_config_info\{[^\n]*spec_num_tokens="([1-9]\d{0,3})"')
_V0 = "vLLM's version 0 counts accepted tokens after a rejection too: {}"
_Totals = defaultdict[str, defaultdict[int | None, float]]  # by counter and index


def samples(text: str, prefix: str) -> dict[tuple[str, str], list[str]]:
    """The values of an engine's series by (name, labels), in the order of the text: of those
    that begin with a prefix such as "vllm"."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in _LINE.finditer(text):
        if line["prefix"] == prefix and line["value"].startswith("["):  # one number for each index
            for index, value in enumerate(line["value"].strip("[]").replace(",", " ").split()):
                found[line["name"], f'{{position="{index}"}}'].append(value)
        elif line["prefix"] == prefix:
            found[line["name"], line["labels"] or ""].append(line["value"])
    return found


def read_prometheus(text: str) -> Reading | None:
    """The counters of all engines of a server together; None if there are none.

    A series that occurs twice was scraped twice; then the difference counts.
    """
    for prefix, (engine, source, running) in _ENGINES.items():
        series = samples(text, prefix)
        counters = {key: values for key, values in series.items() if _COUNTER.fullmatch(key[0])}
        # Ray writes each counter twice, with _total and without.
        counters = {
            key: counters[key] for key in counters if (f"{key[0]}_total", key[1]) not in counters
        }
        totals: _Totals = defaultdict(lambda: defaultdict(float))
        for (name, labels), texts in counters.items():
            values = [_number(value, name) for value in texts]
            for before, after in pairwise(values):
                if after < before:
                    fall = f"{prefix}:{name} falls from {before:g} to {after:g}"
                    raise ValueError(f"{fall}: the engine was restarted in between")
            index = int(position[1]) if (position := _POSITION.search(labels)) else None
            totals[_COUNTER.sub(r"\1", name)][index] += (
                values[-1] - values[0] if len(values) > 1 else values[0]
            )
        if not totals["draft_tokens"] and not totals["drafted_tokens"]:
            continue
        twice = any(len(values) > 1 for values in counters.values())
        requests = [
            _number(value, name)
            for (name, _), values in series.items()
            if name == running
            for value in values
        ]
        derived = ("The counters were scraped twice: the difference counts.",) if twice else ()
        since = (
            "The counters cover the time since the engine started, so changes since then are mixed."
        )
        part, window = _part(totals, prefix), _WINDOW.search(text)
        stated, unknown = {}, () if twice else (since,)
        if emitted := totals["emitted_tokens"].get(None):
            listed = [
                values
                for (name, _), values in series.items()
                if name == "spec_decode_efficiency" and not twice
            ]
            known = [
                _number(values[-1], "spec_decode_efficiency")
                for values in listed
                if values[-1].lower() != "nan"
            ]
            efficiency = mean(
                number for number in known if number
            )  # an engine without requests has none
            if (of_emitted := _of_emitted(part, emitted, efficiency)) is not None:
                part, derived = (
                    of_emitted,
                    (*derived, _V0.format("the emitted ones and the efficiency give the figures.")),
                )
            else:
                unknown = (*unknown, _V0.format("fewer were emitted than it states."))
        if window and not part.steps:
            stated, derived = (
                {"drafted_per_step": float(window[1])},
                (*derived, "The window is from the server's arguments."),
            )
        return Format(engine, "Prometheus counters", source).total(
            [part],
            requests_running=mean(number for number in requests if number),
            derived=derived,
            unknown=unknown,
            **stated,
        )
    return None


def _part(totals: _Totals, prefix: str) -> Part:
    """All counters as one report. Raises `ValueError` if the accepted tokens are missing."""
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
        raise ValueError(
            f"{prefix}:spec_decode_num_accepted_tokens is missing: the text was not copied in full"
        )
    accepted = accepted or 0
    width = (
        max([index for index in (*of_indices, *drafted_at) if index is not None], default=-1) + 1
    )
    whole = (
        steps and abs(sum(of_indices.values()) - accepted) <= 0.02 * accepted
    )  # otherwise some were not copied
    rates = tuple(of_indices[index] / steps for index in range(width)) if whole and steps else ()
    return Part(int(accepted), int(drafted or 0), steps, rates)


def _of_emitted(part: Part, emitted: float, efficiency: float | None) -> Part | None:
    """The report of vLLM's version 0, whose efficiency is emitted ÷ (draft tokens + steps); None
    if no whole window fits."""
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
