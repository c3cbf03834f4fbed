"""SGLang's log line "Decode batch" and its Prometheus gauges, which are means over the last few
steps, and the `meta_info` of a response (before 9155cf0e6eff in `tokenizer_manager.py`,
c60799d0eb1b; its counters were renamed twice).
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from naive_speculate.tools.doctor.ends import drop
from naive_speculate.tools.doctor.json_objects import last_reports, whole_number, whole_numbers
from naive_speculate.tools.doctor.prometheus import samples
from naive_speculate.tools.doctor.reading import (
    GIVEN,
    NO_HISTOGRAM,
    Format,
    Part,
    Reading,
    Stretch,
    category,
    mean,
    rates_of,
    ratio,
)

_LOG = Format(
    "SGLang",
    "log line “Decode batch”",
    "python/sglang/srt/managers/scheduler_metrics_mixin.py (78ac30c2056f)",
)
_STATED = [  # the server's printed arguments
    re.compile(rf"speculative[-_]{name}['\"]?\s*[=:\s]\s*(\d+)")
    for name in ("num[-_]steps", "eagle[-_]topk", "num[-_]draft[-_]tokens")
]
_MEANINGS = (
    (
        "“accept rate” is read as accepted ÷ drafted, as SGLang prints it since April 2026"
        " (sglang#23530)"
    ),
    (
        "“accept rate” is read as (accepted + 1) ÷ (drafted + 1), as SGLang printed it before April"
        " 2026 (sglang#23530)"
    ),
)
_UNDECIDED = (
    "“accept rate” has two possible meanings, and the log does not decide: accepted ÷ drafted since"
    " April 2026 (sglang#23530), which is used here, and (accepted + 1) ÷ (drafted + 1) before."
)
_EACH = (
    "only this gives each report a whole number of draft tokens. The reports' windows differ, as"
    " with speculative-adaptive (sglang#21599)."
)
_TOKENSPEED = Format(
    "tokenspeed",
    "log line “Decode batch”",
    "python/tokenspeed/runtime/execution/model_executor.py (smg#1965)",
)
# as it is logged, or as people quote it
_ROW = re.compile(
    r"Decode batch|gen throughput \(token/s\):|(?<![\w-])accept len: *[\d.]+, *accept rate:"
)
_SPELLED = re.compile(r"avg_accept_len: ([\d.]+), accept_rate:")  # as tokenspeed spells it
_GAUGE = Format(
    "SGLang",
    "Prometheus gauges",
    "python/sglang/srt/observability/metrics_collector.py (44cedc2b9c7d)",
)
_NO_RATES = "This format has no counts and no rates per index; meta_info's histogram has them."
_TREE = "The server drafts trees: the window is their depth, and {} tokens are verified per step."
_META = Format(
    "SGLang",
    "meta_info",
    "python/sglang/srt/managers/tokenizer_manager_components/spec_decoding_meta.py (9155cf0e6eff)",
)
TREES = (
    "With topk above 1 SGLang drafts trees without reporting it; then it counts all branches as"
    " drafted."
)
_ENDS = (
    "No step accepts more than {} draft tokens: the server drafts trees of this depth (topk above"
    " 1) and counts all branches as drafted, or acceptance ends there."
)
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
INTERVAL = 40  # forwards that one line covers (`--decode-log-interval`)
_MOST = 1024  # the largest window that is tried
_HALF, _EXACT = 0.005, 1e-4  # rounding errors of two decimals, and of gauges that were not rounded


# the window, the window by the rate's other meaning, and their source
_Width = tuple[float | None, float | None, str]


@dataclass(frozen=True, slots=True)
class _Line:
    running: float
    length: float
    rate: float | None = None
    position: float | None = None
    throughput: float | None = None


def read_log(text: str) -> Reading | None:
    """The mean of all lines, weighted by their requests."""
    text, spelled = _SPELLED.subn(r"accept len: \1, accept rate:", text)
    rows = [row for row in text.split("\n") if _ROW.search(row)]
    busy = [line for line in map(_line, rows) if line.running]
    lines = [line for line in busy if line.length >= 1]
    plain = [line for line in busy if not line.length]
    if not lines:
        return None
    speeds, plain_speeds = _speeds(lines), _speeds(plain)
    common = speeds.keys() & plain_speeds.keys()
    speed, plain_speed = (mean(part[load] for load in common) for part in (speeds, plain_speeds))
    windows, tree = stated(text)
    width: _Width = (
        (float(windows[0]), None, GIVEN)
        if tree
        else _width(lines, windows, 0 if spelled else None, stated_by="tokenspeed computes it so")
    )
    # A step that accepts any accepts three at most, or this is an underestimate.
    hits = [(line, min((line.length - 1) / 3, 1.0), line.running * INTERVAL) for line in lines]
    return Reading(
        *(_TOKENSPEED if spelled else _LOG),
        **_means(lines, width),
        requests_running=mean(line.running for line in lines),
        course=tuple(Stretch(line.position, steps, steps * share) for line, share, steps in hits),
        unknown=(_TREE.format(tree) if tree else TREES, _NO_RATES)[bool(spelled) :],
        tokens_per_second=None if plain_speed is None else speed,
        plain_tokens_per_second=None if speed is None else plain_speed,
    )


def _speeds(lines: Sequence[_Line]) -> dict[float, float]:
    throughputs = defaultdict[float, list[float]](list)
    for line in lines:
        if line.throughput:
            throughputs[line.running].append(line.throughput)
    return {running: fmean(values) for running, values in throughputs.items()}


def _line(line: str) -> _Line:
    def number(name: str) -> float | None:
        match = re.search(rf"(?<![\w-]){name}:\s*(\d+(?:\.\d+)?)", line)
        return float(match[1]) if match else None

    running, tokens = number("#running-req"), number("#(?:full )?token")
    running = 1.0 if running is None else running  # quoted without it
    position = tokens / running if tokens is not None and running else None
    throughput = number(r"gen throughput \(token/s\)")
    return _Line(running, number("accept len") or 0.0, number("accept rate"), position, throughput)


def read_gauges(text: str) -> Reading | None:
    """The gauges of all workers, weighted by their requests."""
    if not (workers := _workers(text)):
        return None
    lines = []
    for gauges in workers:
        lengths, rates = gauges["spec_accept_length"], gauges.get("spec_accept_rate", [])
        running = mean(gauges.get("num_running_reqs", [])) or 1.0
        each = rates if len(rates) == len(lengths) else [None] * len(lengths)
        pairs = zip(lengths, each, strict=True)
        lines += [_Line(running, length, rate) for length, rate in pairs if length >= 1]
    if not lines:
        raise ValueError("SGLang reports that nothing was drafted: sglang:spec_accept_length is 0")
    depth, verified = (
        max((value for gauges in workers for value in gauges.get(name, [])), default=0.0)
        for name in ("spec_num_steps", "spec_num_draft_tokens")
    )
    if own := [k for k in (depth, verified - 1) if k >= 1]:
        width: _Width = (float(int(own[0])), None, "The window is from the server's gauges.")
    else:
        figures = [value for line in lines for value in (line.length, line.rate or 0.0)]
        rounded = all(round(value, 2) == value for value in figures)
        width = _width(lines, stated(text)[0], _meaning(text), _HALF if rounded else _EXACT)
    tree = depth >= 1 and verified >= 1 and verified != depth + 1
    reported = [mean(gauges.get("num_running_reqs", ())) for gauges in workers]
    return Reading(
        *_GAUGE,
        **_means(lines, width),
        requests_running=mean(count for count in reported if count),
        unknown=(
            _TREE.format(f"{verified:.0f}") if tree else TREES,
            _NO_RATES,
            "Gauges cover the last few steps only.",
        ),
    )


def _workers(text: str) -> list[dict[str, list[float]]]:
    """The gauges of each data-parallel worker. Its tensor-parallel ranks repeat them: the first
    counts."""
    workers: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for key, values in samples(text, "sglang").items():
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', key.labels))
        labels = ("engine_type", "model_name", "dp_rank", "instance", "pod")
        worker = workers.setdefault((*(pairs.get(label, "") for label in labels), key.process), {})
        worker.setdefault(
            key.name,
            [float(value) for value in values if re.fullmatch(r"[\d.]+(?:[eE][+-]?\d+)?", value)],
        )
    drafting = {key: gauges for key, gauges in workers.items() if "spec_accept_length" in gauges}
    verifying = [gauges for (kind, *_), gauges in drafting.items() if kind != "draft"]
    return verifying or list(drafting.values())


def _meaning(text: str) -> int | None:
    """Which of the two meanings the HELP line of the accept rate states."""
    match = re.search(r"# HELP sglang[:_]spec_accept_rate (.*)", text)
    words = match[1] if match else ""
    return 0 if "proposed drafts" in words else 1 if "total draft tokens" in words else None


def stated(text: str) -> tuple[list[int], int]:
    """The windows that the server's arguments state, and how many tokens it verifies per step if it
    drafts trees, else 0. Of a tree the first window is the depth. With topk 1 SGLang verifies steps
    + 1, whatever was requested."""
    steps, branches, verified = (
        [int(number) for number in pattern.findall(text)] for pattern in _STATED
    )
    windows = [k for k in (*steps, *(count - 1 for count in verified)) if k >= 1]
    is_tree = windows and steps and verified and max(branches, default=1) > 1
    return windows, verified[0] if is_tree else 0


def _means(lines: Sequence[_Line], width: _Width) -> dict[str, Any]:
    length = sum(line.running * line.length for line in lines) / sum(line.running for line in lines)
    figures = {
        "accepted_per_step": length - 1,
        "drafted_per_step": width[0],
        "other_drafted_per_step": width[1],
    }
    return figures | {"derived": (width[2],) if width[2] else ()}


def _width(
    lines: Sequence[_Line],
    windows: Sequence[int],
    meaning: int | None = None,
    half: float = _HALF,
    stated_by: str = "its HELP line states this",
) -> _Width:
    """From the stated windows, from the rate's meaning if that is stated, or from the meaning that
    gives a whole number; `half` is the rounding error of the figures."""
    reports = [(line.running, line.length, line.rate) for line in lines if line.rate is not None]
    if len(reports) < len(lines):
        return (windows[0], None, GIVEN) if windows else (None, None, "")
    fitting = [
        [k for k in {*range(1, _MOST + 1), *windows} if _fits(k, own, reports, half)]
        for own in (0, 1)
    ]
    for words, ks in zip(_MEANINGS, fitting, strict=True):
        if fits := [k for k in windows if k in ks]:
            return fits[0], None, f"{words}: this fits the window in the server's arguments."
    weighted_rate = sum(running * rate for running, _, rate in reports)
    if not weighted_rate:
        return None, None, ""
    means = [
        sum(running * (length - 1 + own) for running, length, _ in reports) / weighted_rate - own
        for own in (0, 1)
    ]
    if meaning is not None:
        whole = abs(means[meaning] - round(means[meaning])) < 0.1
        width = float(max(round(means[meaning]), 1)) if whole else means[meaning]
        return width, None, f"{_MEANINGS[meaning]}: {stated_by}."
    if not any(fitting) and (adaptive := _adaptive(reports, half)) is not None:
        return adaptive
    nearest = [
        min(((abs(k - near), k) for k in ks), default=None)
        for ks, near in zip(fitting, means, strict=True)
    ]
    new, old = (None if fits is None else fits[1] for fits in nearest)
    if new is not None and old is not None and new != old:
        return new, old, _UNDECIDED
    if new is None and old is None:
        return round(means[0], 1), round(means[1], 1), _UNDECIDED
    words = f"{_MEANINGS[new is None]}: only this gives a whole number of draft tokens."
    return new or old, None, words


def _adaptive(reports: Sequence[tuple[float, float, float]], half: float) -> _Width | None:
    """The mean window of reports whose windows differ, by the meanings under which each has a whole
    number of draft tokens. A report that accepts nothing does not show its window."""
    widths = []
    for own in (0, 1):
        steps = [one for one in reports if one[2] and one[1] - 1 + own > half]
        ks = [max(round((length - 1 + own) / rate - own), 1) for _, length, rate in steps]
        whole = all(_fits(k, own, [one], half) for k, one in zip(ks, steps, strict=True))
        if steps and whole:
            weight = sum(running for running, *_ in steps)
            mean_k = sum(one[0] * k for k, one in zip(ks, steps, strict=True)) / weight
            widths.append((mean_k, f"{_MEANINGS[own]}: {_EACH}"))
    if len(widths) == 2:
        return widths[0][0], widths[1][0], _UNDECIDED
    return (widths[0][0], None, widths[0][1]) if widths else None


def _fits(k: int, own: int, reports: Sequence[tuple[float, float, float]], half: float) -> bool:
    """Whether rate = (accepted + own) ÷ (k + own) in all reports, within rounding."""
    return all(
        (rate - half) * (k + own) - 1e-9 <= length - 1 + half + own
        and max(length - 1 - half, 0.0) + own <= (rate + half) * (k + own) + 1e-9
        for _, length, rate in reports
    )


def read_meta_info(text: str) -> Reading | None:
    """Of a streamed request the last report counts."""
    reports = last_reports(text, ("spec_verify_ct",), lambda meta, _: meta.get("id"))
    name = "spec_verify_ct"
    parts = [_of_request(*one) for one in reports if whole_number(one[0][name], name)]
    if not parts:
        return None
    known = all(part.rates for part in parts)
    reading = _META.total(parts, unknown=(TREES, not known and NO_HISTOGRAM))
    depth, end = sum(rate > 0 for rate in reading.rates), drop(reading.rates, reading.num_steps)
    if end is None or end[0] != depth or set(_STATED[1].findall(text)) == {"1"}:
        return reading
    window, ends = reading.drafted_per_step, _ENDS.format(depth)
    return replace(
        reading,
        rates=reading.rates[:depth],
        drafted_per_step=float(depth),
        other_drafted_per_step=window,
        unknown=(ends,),
    )


def _of_request(meta: dict[str, Any], outermost: dict[str, Any]) -> Part:
    def first(names: tuple[str, ...]) -> Any:
        return next((meta[name] for name in names if meta.get(name) is not None), None)

    steps, histogram = int(meta["spec_verify_ct"]), first(_HISTOGRAM)
    counts = whole_numbers(
        histogram if isinstance(histogram, list | tuple) else None, "spec_accept_histogram"
    )
    if counts and sum(counts) != steps:
        raise ValueError(
            f"spec_accept_histogram counts {sum(counts)} steps, spec_verify_ct is {steps}"
        )
    accepted, proposed = first(_ACCEPTED), first(_DRAFTED)
    if accepted is None and counts:
        accepted = sum(index * count for index, count in enumerate(counts))
    elif accepted is None and "completion_tokens" in meta:
        accepted = max(whole_number(meta["completion_tokens"], "completion_tokens") - steps, 0)
    elif accepted is None:
        raise ValueError(
            "meta_info: spec_verify_ct is given without completion_tokens or a count of accepted"
            " drafts"
        )
    drafted = None if proposed is None else whole_number(proposed, "proposed drafts")
    rates = rates_of(counts, ratio(drafted, steps)) if counts else ()
    return Part(
        whole_number(accepted, "accepted drafts"),
        drafted,
        steps,
        rates,
        category=category(outermost),
    )
