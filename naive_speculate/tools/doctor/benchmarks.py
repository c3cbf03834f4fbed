"""Answers of Spec-Bench (`evaluation/`), one JSON object per line, with the tokens that each step
gave; the report of speculators, which measures vLLM; the table of llama.cpp's SPEED-Bench; and
xinfer's line of each request."""

import re
from collections import defaultdict
from typing import Any

from naive_speculate.tools.doctor.json_objects import objects, whole_number, whole_numbers
from naive_speculate.tools.doctor.reading import (
    SPEEDS,
    Format,
    Part,
    Reading,
    category,
    histogram_of,
    per_second,
    rates_of,
)

_FORM = Format("Spec-Bench", "answers", "evaluation/eval.py, `accept_lengths`")
_SPECULATORS = Format("vLLM", "speculators' acceptance report", "speculators, its evaluation")
_ROW = re.compile(
    r"^\s*(?:Num (drafts|draft tokens|accepted tokens)|Position (\d{1,3}))\s+(\d[\d.]*)\s*$",
    re.MULTILINE,
)
_SPEED_BENCH = Format(
    "llama.cpp",
    "SPEED-Bench table",
    "tools/server/bench/speed-bench/speed_bench.py, print_table (440e352597cb)",
)
_NO_COUNTS = "The table has neither steps nor rates per index; the server's log has them."
_XINFER = Format("xinfer", "log line “Speculation”", "src/server/server.rs (4f179f34ef43)")
_XINFER_LINE = re.compile(
    r"\bsteps=(\d{1,15}) proposed=(\d{1,15}) accepted=(\d{1,15})(?: rejected=\d+)? rate="
)
_NO_WINDOW = (
    "Spec-Bench does not record the window: give it (--num-draft-tokens). The rates per index end"
    " at the most tokens that a step accepted."
)


def read_spec_bench(text: str) -> Reading | None:
    """Answers of a method that accepts nothing give the speed of plain decoding."""
    methods: dict[str, list[tuple[Part, int, float]]] = defaultdict(list)
    for choice, answer in objects(text, ("accept_lengths",)):
        if (one := _of_choice(choice, answer)) is not None:
            methods[str(answer.get("model_id"))].append(one)
    parts, runs = list[Part](), list[tuple[bool, float, int]]()
    for answers in methods.values():
        drafts = any(part.accepted for part, *_ in answers)
        parts += [part for part, *_ in answers] if drafts else []
        runs += [(drafts, 1000 * seconds, tokens) for _, tokens, seconds in answers]
    if not parts:
        return None
    return _FORM.total(parts, unknown=(_NO_WINDOW,), **per_second(runs))


def _of_choice(choice: dict[str, Any], answer: dict[str, Any]) -> tuple[Part, int, float] | None:
    """An answer with its tokens and seconds. `accept_lengths` counts the target's own token, unless
    the sum is then too small for the text."""
    lengths = whole_numbers(choice.get("accept_lengths"), "accept_lengths")
    tokens = sum(whole_numbers(choice.get("new_tokens"), "new_tokens"))
    if not lengths:
        return None
    without = tokens and abs(sum(lengths) + len(lengths) - tokens) < abs(sum(lengths) - tokens)
    own = 0 if without else 1
    hits = [max(length - own, 0) for length in lengths]
    times = choice.get("wall_time")
    times = times if isinstance(times, list) else []
    seconds = sum(time for time in times if isinstance(time, int | float))
    rates = rates_of(histogram_of(hits), None)
    part = Part(sum(hits), None, len(hits), rates, category=category(answer))
    return part, tokens, float(seconds)


def read_speculators(text: str) -> Reading | None:
    if "Acceptance Report" not in text:
        return None
    counts: dict[str, int] = {}
    rates = list[float]()
    for name, position, value in _ROW.findall(text):
        if name:
            counts[name] = whole_number(float(value), f"Num {name}")
        elif int(position) == len(rates):
            rates.append(float(value))
    if len(counts) < 3:
        return None
    part = Part(counts["accepted tokens"], counts["draft tokens"], counts["drafts"], tuple(rates))
    return _SPECULATORS.total([part])


def read_speed_bench(text: str) -> Reading | None:
    """The tables of SPEED-Bench or of its comparison, plain or in Markdown. Speeds are those of
    `overall`."""
    columns, rates, speeds = list[str](), dict[str, float](), dict[str, Any]()
    for line in text.split("\n"):
        cells = re.findall(r"[^\s|]+", line)
        if "category" in cells and "accept_rate" in cells:
            columns = cells[cells.index("category") : cells.index("accept_rate") + 1]
        row = dict(zip(columns, cells[-len(columns) :], strict=False))
        drafts = re.fullmatch(r"[01]\.\d+", row.get("accept_rate", "")) is not None
        if drafts:
            rates[row["category"]] = float(row["accept_rate"])
        kinds = {"avg": drafts, "spec_avg": True, "base_avg": False}
        for name, drafting in kinds.items() if row.get("category") == "overall" else ():
            if re.fullmatch(r"[\d.]+", value := row.get(f"{name}_pred_t/s", "")):
                speeds[SPEEDS[not drafting]] = float(value)
    if not rates:
        return None
    each = {name: Reading(*_SPEED_BENCH, acceptance=rate) for name, rate in rates.items()}
    each.pop("overall", None)
    whole = rates.get("overall", rates.popitem()[1] if len(rates) == 1 else None)
    return Reading(
        *_SPEED_BENCH, acceptance=whole, categories=each, unknown=(_NO_COUNTS,), **speeds
    )


def read_xinfer(text: str) -> Reading | None:
    counts = [tuple(map(int, line)) for line in _XINFER_LINE.findall(text)]
    parts = [Part(accepted, drafted, steps) for steps, drafted, accepted in counts if drafted]
    return _XINFER.total(parts) if parts else None
