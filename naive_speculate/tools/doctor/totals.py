"""Totals of runs, requests or responses: the summaries of `vllm bench serve`, vLLM's offline
example and SGLang's `bench_serving`; TensorRT-LLM's iterations, requests and benchmark; LM
Studio's and tabbyAPI's responses.

`vllm/benchmarks/serve.py` at def9ce85ba10 prints the block and writes the same figures as JSON
(`--save-result`); `examples/offline_inference/spec_decode.py` first printed only the mean length
and the rates. SGLang's `bench_serving` prints the load before the requests; its JSON and
`/server_info` have the mean length too. A block without drafting, of the same number of requests
at once, gives the speed of plain decoding.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from naive_speculate.tools.doctor.json_objects import last_reports, objects, whole_number
from naive_speculate.tools.doctor.reading import (
    GIVEN,
    NO_HISTOGRAM,
    Format,
    Part,
    Reading,
    mean,
    steps_of,
)
from naive_speculate.tools.doctor.sglang import stated

SOURCE = (
    "vllm bench serve (def9ce85ba10), examples/offline_inference/spec_decode.py; SGLang's"
    " bench_serving"
)
_FIGURES = {  # figure → its names, as printed and as JSON
    "steps": ("drafts", "num_drafts", "spec_decode_num_drafts"),
    "drafted": ("draft tokens", "num_draft_tokens", "spec_decode_draft_tokens"),
    "accepted": ("accepted tokens", "num_accepted_tokens", "spec_decode_accepted_tokens"),
    "length": (
        "acceptance length",
        "mean acceptance length",
        "accept length",
        "average accept length",
        "acc_length",
        "spec_decode_acceptance_length",
        "accept_length",
        "avg_spec_accept_length",
    ),
    "rate": ("acceptance rate (%)", "spec_decode_acceptance_rate"),
    "requests": ("successful requests", "total_num_output_tokens"),
    "tpot": ("mean tpot (ms)", "mean_tpot_ms"),
    "running": ("maximum request concurrency", "max request concurrency", "max_concurrency"),
}
_NAMES = {name: figure for figure, names in _FIGURES.items() for name in names}
# a block's first line may be one of these
_FIRST = "max request concurrency", *_FIGURES["requests"]
_SGLANG = re.compile(r"accept[ _]length\b|\bacc_length\b|#questions:", re.IGNORECASE)
_LABEL = re.compile(
    rf"(?<![\w-])(?i:(?P<name>{'|'.join(map(re.escape, sorted(_NAMES, key=len, reverse=True)))})"
    r"|(?P<kind>position|acceptance at token)[ \t]+(?P<index>\d{1,3}))[ \t]*:["
    r" \t]*(?P<value>\d{1,15}(?:\.\d{1,15})?)[ \t\r]*$",
    re.MULTILINE,
)
_COUNTS = ("accepted", "drafted", "steps")


@dataclass
class _Block:
    figures: dict[str, float] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)

    @property
    def length(self) -> float | None:
        """Tokens per step; None without drafting."""
        figures = self.figures
        counted = all(name in figures for name in _COUNTS)
        return figures.get(
            "length", 1 + figures["accepted"] / max(figures["steps"], 1) if counted else None
        )


def read_summary(text: str) -> Reading | None:
    blocks = [*_printed(text), *_saved(text)]
    runs = [block for block in blocks if block.length is not None]
    if not runs:
        return None
    running = mean(block.figures["running"] for block in runs if "running" in block.figures)
    common: dict[str, Any] = {
        "requests_running": running,
        **_speeds(runs, [block for block in blocks if block.length is None]),
    }
    by_sglang = _SGLANG.search(text) is not None and not any(block.rates for block in runs)
    form = Format(
        "SGLang" if by_sglang else "vLLM",
        "summary of a run" if len(runs) == 1 else "summaries of runs",
        SOURCE,
    )
    if all(name in block.figures for block in runs for name in _COUNTS):
        parts = []
        for block in runs:
            accepted, drafted, steps = (whole_number(block.figures[name], name) for name in _COUNTS)
            # otherwise some were cut off
            whole = abs(sum(block.rates) - accepted / max(steps, 1)) <= 0.006 * len(block.rates)
            parts.append(Part(accepted, drafted, steps, tuple(block.rates) if whole else ()))
        return form.total(parts, **common)
    means = [((one.length or 1) - 1, one.figures.get("rate"), tuple(one.rates)) for one in runs]
    reading = form.of_means(means, **common)
    if reading.drafted_per_step is None and by_sglang and (windows := stated(text)[0]):
        reading = replace(reading, drafted_per_step=float(windows[0]), derived=(GIVEN,))
    return reading


def _printed(text: str) -> Iterator[_Block]:
    """A block ends where the next begins, or where a figure occurs again."""
    block = _Block()
    for match in _LABEL.finditer(text):
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()].split()
        if before and before[-1].isalpha() and not before[-1].isupper():
            # a container's name, a time or a level may stand before a label; a word changes its
            # meaning
            continue
        label = (match["name"] or "").lower()
        value, name = float(match["value"]), _NAMES.get(label)
        full = bool(block.rates or block.figures.keys() - {"running"})
        if (
            name in block.figures
            or (full and label in _FIRST)
            or (not name and block.rates and int(match["index"]) == 0)
        ):
            yield block
            block = _Block()
        if name is None and int(match["index"]) == len(block.rates):
            block.rates.append(value / (100 if match["kind"].lower() == "position" else 1))
        elif name is not None:
            block.figures[name] = value
    yield block


def _saved(text: str) -> Iterator[_Block]:
    lengths = [name for name in _FIGURES["length"] if "_" in name]
    for report, _ in objects(text, (*lengths, "mean_tpot_ms")):
        figures = {
            name: report[key]
            for key, name in _NAMES.items()
            if isinstance(report.get(key), int | float)
        }
        if figures.get("length", 1) < 1:  # SGLang's mark of a run without drafting
            del figures["length"]
        rates = report.get("spec_decode_per_position_acceptance_rates") or []
        known = isinstance(rates, list) and all(isinstance(rate, int | float) for rate in rates)
        yield _Block(figures, list(map(float, rates)) if known else [])


def _speeds(runs: list[_Block], plain: list[_Block]) -> dict[str, Any]:
    """Tokens per second and request, if the runs differ in nothing else that is known."""
    pairs = [
        (1000 / run.figures["tpot"], 1000 / other.figures["tpot"])
        for run in runs
        for other in plain
        if run.figures.get("tpot")
        and other.figures.get("tpot")
        and run.figures.get("running") == other.figures.get("running")
    ]
    speeds = [mean(column) for column in zip(*pairs, strict=True)]
    return dict(zip(("tokens_per_second", "plain_tokens_per_second"), speeds, strict=False))


class _Kind(NamedTuple):
    """Names of a report's counts; without `drafted` the draft tokens are the accepted and rejected
    ones: those that LM Studio ignored were not sent to the target."""

    form: Format
    accepted: str
    rejected: str = ""
    drafted: str = ""
    steps: str = ""


_TRT = "TensorRT-LLM"
_KINDS = (
    _Kind(
        Format(_TRT, "iteration statistics", "GET /metrics, specDecodingStats (050f80def8df)"),
        accepted="numAcceptedTokens",
        drafted="numDraftTokens",
        steps="numRequestsWithDraftTokens",
    ),
    _Kind(
        Format(_TRT, "request metrics", "GET /perf_metrics, speculative_decoding (050f80def8df)"),
        accepted="total_accepted_draft_tokens",
        drafted="total_draft_tokens",
    ),
    _Kind(
        Format(
            "LM Studio",
            "response statistics",
            "its server's responses and log, `stats` or `usage` (0.4.24)",
        ),
        accepted="accepted_draft_tokens_count",
        rejected="rejected_draft_tokens_count",
    ),
    _Kind(
        Format(
            "LM Studio",
            "prediction statistics",
            "lmstudio-js, LLMPredictionStats (lmstudio-js#210)",
        ),
        accepted="acceptedDraftTokensCount",
        rejected="rejectedDraftTokensCount",
    ),
    _Kind(
        Format(
            "tabbyAPI", "response statistics", "`usage.completion_tokens_details` (tabbyAPI#452)"
        ),
        accepted="accepted_prediction_tokens",
        rejected="rejected_prediction_tokens",
    ),
)
_BENCH = Format(
    _TRT, "summary of a run", "tensorrt_llm/bench/dataclasses/reporting.py (024997657505)"
)
_AVERAGE = re.compile(r"\[(DT|ADT|DAR|AL)\] +AVERAGE *: *(\d{1,15}(?:\.\d{1,9})?)")
_LINE = re.compile(
    r"(\d{1,15}) tokens generated in [^()]{0,60}\([^()]{0,400}?Draft: (\d{1,15}) / (\d{1,15})"
    r" tokens accepted"
)
_AVERAGES = {
    "DT": "num_draft_tokens",
    "ADT": "num_accepted_draft_tokens",
    "DAR": "draft_acceptance_rate",
    "AL": "acceptance_length",
}


def read_counts(text: str) -> Reading | None:
    """All reports of one engine; of a streamed response the last counts."""
    for kind in _KINDS:
        reports = last_reports(text, (kind.accepted,), lambda _, response: response.get("id"))
        parts = [part for part in (_of_report(kind, *one) for one in reports) if part is not None]
        if kind.form.engine == "tabbyAPI":
            lines = [tuple(map(int, line)) for line in _LINE.findall(text)]
            parts += [
                Part(accepted, drafted, steps_of(tokens, accepted))
                for tokens, accepted, drafted in lines
                if drafted
            ]
        if parts:
            # a report counts a step of each request
            running = mean(part.steps for part in parts if part.steps)
            counted = {"requests_running": running, "derived": ()} if kind.steps else {}
            return kind.form.of_tokens(parts, NO_HISTOGRAM, **counted)
    return None


def _of_report(kind: _Kind, report: dict[str, Any], response: dict[str, Any]) -> Part | None:
    counts = {
        name: whole_number(report[name], name) for name in kind[1:] if report.get(name) is not None
    }
    accepted, drafted = counts.get(kind.accepted), counts.get(kind.drafted)
    if accepted is not None and kind.rejected in counts:
        drafted = accepted + counts[kind.rejected]
    if accepted is None or not drafted:
        return None
    usage = report if "completion_tokens" in report else response.get("usage")
    tokens = report.get("predictedTokensCount")
    if isinstance(usage, dict):
        tokens = usage.get("completion_tokens")
    steps: int | None = counts.get(kind.steps)
    if tokens is not None and not kind.steps:
        steps = steps_of(whole_number(tokens, "completion_tokens"), accepted)
    return Part(accepted, drafted, steps or None)


def read_benchmark(text: str) -> Reading | None:
    """`trtllm-bench`'s runs, printed or saved, which are means over the requests."""
    runs: list[dict[str, float]] = []
    for name, value in _AVERAGE.findall(text):
        if not runs or name in runs[-1]:
            runs.append({})
        runs[-1][name] = float(value)
    for stats, _ in objects(text, ("acceptance_length_percentiles",)):
        runs.append({})
        for short, name in _AVERAGES.items():
            one = stats.get(f"{name}_percentiles")
            value = one.get("average") if isinstance(one, dict) else None
            if isinstance(value, int | float):
                runs[-1][short] = float(value)
    parts = []
    for run in runs:
        if len(run) == len(_AVERAGES):
            k = round((run["AL"] - 1) / run["DAR"]) if run["DAR"] else 0
            steps = run["DT"] / k if k > 0 else None
            parts.append(Part(round(run["ADT"]), round(run["DT"]), steps))
    return _BENCH.total(parts, unknown=(NO_HISTOGRAM,)) if parts else None
