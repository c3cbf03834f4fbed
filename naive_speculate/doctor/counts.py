"""Reports that count draft tokens under names of their own: TensorRT-LLM's iterations, requests and benchmark, LM Studio's and
tabbyAPI's responses.
"""

import re
from typing import Any, NamedTuple

from naive_speculate.doctor.json_objects import last_reports, objects, whole_number
from naive_speculate.doctor.reading import NO_HISTOGRAM, Format, Part, Reading, mean


class _Kind(NamedTuple):
    """Names of a report's counts; without `drafted` the draft tokens are the accepted and rejected ones."""

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
        Format("LM Studio", "response statistics", "its server's responses and log, `stats` or `usage` (0.4.24)"),
        accepted="accepted_draft_tokens_count",
        rejected="rejected_draft_tokens_count",
    ),
    _Kind(
        Format("LM Studio", "prediction statistics", "lmstudio-js, LLMPredictionStats (lmstudio-js#210)"),
        accepted="acceptedDraftTokensCount",
        rejected="rejectedDraftTokensCount",
    ),
    _Kind(
        Format("tabbyAPI", "response statistics", "`usage.completion_tokens_details` (tabbyAPI#452)"),
        accepted="accepted_prediction_tokens",
        rejected="rejected_prediction_tokens",
    ),
)
_BENCH = Format(_TRT, "summary of a run", "tensorrt_llm/bench/dataclasses/reporting.py (024997657505)")
_AVERAGE = re.compile(r"\[(DT|ADT|DAR|AL)\] +AVERAGE *: *(\d{1,15}(?:\.\d{1,9})?)")
_LINE = re.compile(r"(\d{1,15}) tokens generated in [^()]{0,60}\([^()]{0,400}?Draft: (\d{1,15}) / (\d{1,15}) tokens accepted")
_AVERAGES = {
    "DT": "num_draft_tokens",
    "ADT": "num_accepted_draft_tokens",
    "DAR": "draft_acceptance_rate",
    "AL": "acceptance_length",
}


def read_counts(text: str) -> Reading | None:
    """All reports of one engine together; None if there are none. Of a streamed response the last report counts."""
    for kind in _KINDS:
        found = last_reports(text, (kind.accepted,), lambda _, response: response.get("id"))
        parts = [part for part in (_of_report(kind, *one) for one in found) if part is not None]
        if kind.form.engine == "tabbyAPI":
            lines = [tuple(map(int, line)) for line in _LINE.findall(text)]
            parts += [Part(accepted, drafted, _steps(tokens, accepted)) for tokens, accepted, drafted in lines if drafted]
        if parts:
            running = mean(part.steps for part in parts if part.steps)  # a report counts a step of each request
            counted = {"requests_running": running, "derived": ()} if kind.steps else {}
            return kind.form.of_tokens(parts, NO_HISTOGRAM, **counted)
    return None


def _of_report(kind: _Kind, report: dict[str, Any], response: dict[str, Any]) -> Part | None:
    """One report; None if nothing was drafted."""
    counts = {name: whole_number(report[name], name) for name in kind[1:] if report.get(name) is not None}
    accepted, drafted = counts.get(kind.accepted), counts.get(kind.drafted)
    if accepted is not None and kind.rejected in counts:
        drafted = accepted + counts[kind.rejected]
    if accepted is None or not drafted:
        return None
    usage = report if "completion_tokens" in report else response.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else report.get("predictedTokensCount")
    steps: int | None = counts.get(kind.steps)
    if tokens is not None and not kind.steps:
        steps = _steps(whole_number(tokens, "completion_tokens"), accepted)
    return Part(accepted, drafted, steps or None)


def _steps(tokens: int, accepted: int) -> int | None:
    """The steps of a response: each gives one token of the target, and so does the prompt."""
    return max(tokens - 1 - accepted, 0) or None


def read_benchmark(text: str) -> Reading | None:
    """`trtllm-bench`'s runs, printed or saved, which are means over the requests; None if there is none."""
    runs: list[dict[str, float]] = []
    for name, value in _AVERAGE.findall(text):
        if not runs or name in runs[-1]:
            runs.append({})
        runs[-1][name] = float(value)
    for stats, _ in objects(text, ("acceptance_length_percentiles",)):
        given = {short: stats.get(f"{name}_percentiles") for short, name in _AVERAGES.items()}
        averages = {short: one.get("average") for short, one in given.items() if isinstance(one, dict)}
        runs.append({short: float(value) for short, value in averages.items() if isinstance(value, int | float)})
    parts = []
    for run in runs:
        if len(run) == len(_AVERAGES):
            k = round((run["AL"] - 1) / run["DAR"]) if run["DAR"] else 0
            parts.append(Part(round(run["ADT"]), round(run["DT"]), run["DT"] / k if k > 0 else None))
    return _BENCH.total(parts, unknown=(NO_HISTOGRAM,)) if parts else None
