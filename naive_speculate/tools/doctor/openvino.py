"""OpenVINO GenAI's figures: the print of its continuous-batching pipeline, and the perf metrics
as its samples print them (`samples/cpp/text_generation/speculative_decoding_lm.cpp`, 2026.4)."""

import re

from naive_speculate.tools.doctor.reading import (
    Format,
    Part,
    Reading,
    histogram_of,
    numbers_in,
    rates_of,
    ratio,
    steps_of,
)

_PRINT = Format(
    "OpenVINO GenAI",
    "print of the speculative decoding metrics",
    "src/cpp/src/speculative_decoding, SpeculativeDecodingMetrics (2026.4)",
)
_PERF = Format(
    "OpenVINO GenAI",
    "perf metrics of both models",
    "samples/cpp/text_generation/speculative_decoding_lm.cpp (2026.4)",
)
_BLOCK = re.compile(
    r"REQUEST_ID: *(\d+)\s+Main model iterations: *(\d+)(?:\s+Token per sec: *([\d.]+))?"
    r"[^=]{0,200}?Accepted tokens by draft model: *(\d+)\s+Generated tokens: *(\d+)",
    re.IGNORECASE,
)
_EACH = re.compile(r"Request_id: *(\d+) *\|\|\|([ \d.]+)", re.IGNORECASE)
_SHARE = re.compile(r"Draft model duration, %: *([\d.]+)")
_MODEL = re.compile(r"\b(MAIN|DRAFT) MODEL\b")
_COUNT = re.compile(
    r"Num (generated|accepted|draft) tokens?: *(\d+)|Total (iteration) number: *(\d+)",
    re.IGNORECASE,
)
_LAST = (
    "OpenVINO leaves out the draft tokens of the last step, whose accepted ones it counts: they"
    " are added, as many as in the other steps."
)
_UNKNOWN = "The only step is the last one, whose draft tokens OpenVINO does not count."
_WINDOW = "The window is derived from the accepted tokens and each step's percentage."


def read_print(text: str) -> Reading | None:
    each = {number: numbers_in(values) for number, values in _EACH.findall(text)}
    parts, speeds = list[Part](), list[float]()
    for number, steps_text, speed, accepted_text, _ in _BLOCK.findall(text):
        accepted, steps, shares = int(accepted_text), int(steps_text), each.get(number, ())
        width = ratio(100 * accepted, sum(shares))
        part = Part(accepted, None, steps)
        if width is not None and len(shares) == steps and abs(width - round(width)) < 0.1:
            k = round(width)
            histogram = histogram_of([round(share * k / 100) for share in shares])
            part = Part(accepted, k * steps, steps, rates_of(histogram, k))
        parts.append(part)
        speeds += [float(speed)] if speed else []
    if not parts:
        return None
    share = _SHARE.search(text)
    known = all(part.drafted is not None for part in parts)
    return _PRINT.total(
        parts,
        draft_share=float(share[1]) / 100 if share and 0 < float(share[1]) < 100 else None,
        tokens_per_second=sum(speeds) / len(speeds) if len(speeds) == len(parts) else None,
        derived=(known and _WINDOW,),
    )


def read_perf_metrics(text: str) -> Reading | None:
    """The main model's first token is of the prompt; each step gives the accepted draft tokens and
    one of the main model."""
    runs = list[dict[str, int]]()
    pieces = _MODEL.split(text)
    for model, figures in zip(pieces[1::2], pieces[2::2], strict=True):
        counts = {
            (one[0] or one[2]).lower(): int(one[1] or one[3]) for one in _COUNT.findall(figures)
        }
        if model == "MAIN":
            runs.append({})
        if runs:
            runs[-1] |= {f"{model} {name}": count for name, count in counts.items()}
    parts, last, unknown = list[Part](), False, False
    for run in runs:
        accepted = run.get("MAIN accepted", run.get("DRAFT accepted"))
        if accepted is None or "MAIN generated" not in run:
            continue
        steps = steps_of(run["MAIN generated"], accepted)
        drafted = run.get("MAIN draft", run.get("DRAFT draft", run.get("DRAFT generated")))
        if steps and steps > 1 and drafted:
            drafted, last = max(round(drafted * steps / (steps - 1)), accepted), True
        else:
            drafted, unknown = None, True
        parts.append(Part(accepted, drafted, steps))
    notes = {"derived": (last and _LAST,), "unknown": (unknown and _UNKNOWN,)}
    return _PERF.total(parts, **notes) if parts else None
