"""SGLang: `meta_info` of a response, and the log line "Decode batch".

`python/sglang/srt/managers/tokenizer_manager_components/spec_decoding_meta.py` at 9155cf0e6eff, before that
`tokenizer_manager.py` (c60799d0eb1b); the counters were renamed twice. `scheduler_metrics_mixin.py` (78ac30c2056f) logs.
"""

import math
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from naive_speculate.doctor.json_objects import objects, whole_number
from naive_speculate.doctor.reading import Reading, mean, rates_of

SOURCE = "python/sglang/srt/managers/tokenizer_manager_components/spec_decoding_meta.py (9155cf0e6eff)"
LOG_SOURCE = "python/sglang/srt/managers/scheduler_metrics_mixin.py (78ac30c2056f)"
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_FIELDS = tuple(re.compile(rf"{name}: (\d+(?:\.\d+)?)") for name in ("#running-req", "accept len", "accept rate"))
_VERIFIED = re.compile(r"speculative[-_]num[-_]draft[-_]tokens['\"]?\s*[=:\s]\s*(\d+)")
_STEPS = re.compile(r"speculative[-_]num[-_]steps['\"]?\s*[=:\s]\s*(\d+)")
_MEANINGS = (
    "“accept rate” is read as accepted ÷ drafted, as SGLang prints it since April 2026 (sglang#23530)",
    "“accept rate” is read as (accepted + 1) ÷ (drafted + 1), as SGLang printed it before April 2026 (sglang#23530)",
)
_UNDECIDED = (
    "“accept rate” has two possible meanings, and the log does not decide: accepted ÷ drafted since April 2026 (sglang#23530), "
    "which is used here, and (accepted + 1) ÷ (drafted + 1) before."
)
_TREES = "With topk above 1 SGLang drafts trees without reporting it; then it counts all branches as drafted."


def read_meta_info(text: str) -> Reading | None:
    """All requests together; None if there is none. Of a streamed request the last report counts."""
    requests: dict[Any, dict[str, Any]] = {}
    for number, (meta, _) in enumerate(objects(text, ("spec_verify_ct",))):
        steps = whole_number(meta["spec_verify_ct"], "spec_verify_ct")
        key = str(meta.get("id", number))
        if steps and steps >= requests.get(key, {}).get("spec_verify_ct", 0):
            requests[key] = meta
    if not requests:
        return None
    steps = accepted = drafted = 0
    complete, histogram = True, [0]
    for meta in requests.values():
        of_steps, counts = meta["spec_verify_ct"], _first(meta, _HISTOGRAM)
        if isinstance(counts, list | tuple) and counts:
            counts = [whole_number(count, "spec_accept_histogram") for count in counts]
            if sum(counts) != of_steps:
                raise ValueError(f"spec_accept_histogram counts {sum(counts)} steps, spec_verify_ct is {of_steps}")
            histogram = [have + more for have, more in zip_longest(histogram, counts, fillvalue=0)]
        else:
            counts = None
        named, proposed = _first(meta, _ACCEPTED), _first(meta, _DRAFTED)
        if named is None and counts is None and "completion_tokens" not in meta:
            raise ValueError("meta_info: spec_verify_ct is given without completion_tokens or a count of accepted drafts")
        if named is None and counts:
            named = sum(index * count for index, count in enumerate(counts))
        elif named is None:
            named = max(whole_number(meta["completion_tokens"], "completion_tokens") - of_steps, 0)
        steps, accepted = steps + of_steps, accepted + whole_number(named, "accepted drafts")
        complete = complete and proposed is not None
        drafted += whole_number(proposed, "proposed drafts") if proposed is not None else 0
    width = drafted / steps if complete else None
    rates = rates_of(histogram, width) if sum(histogram) == steps else ()
    return Reading.counted(
        accepted,
        drafted if complete else None,
        steps,
        engine="SGLang",
        format="meta_info",
        source=SOURCE,
        rates=rates,
        unknown=(_TREES, *(() if rates else ("There is no histogram, so the rates per index are unknown.",))),
    )


def read_log(text: str) -> Reading | None:
    """The mean of all lines, weighted by their requests; None if there is none."""
    lines = []
    for line in text.splitlines():
        if "Decode batch" in line and "accept len: " in line:
            running, length, rate = (float(found[1]) if (found := field.search(line)) else None for field in _FIELDS)
            if running and length and length >= 1:
                lines.append((running, length, rate))
    if not lines:
        return None
    weight = sum(running for running, _, _ in lines)
    rated = [(running, length, rate) for running, length, rate in lines if rate is not None]
    width, other, derived = _width(rated if len(rated) == len(lines) else [], _stated(text))
    return Reading(
        engine="SGLang",
        format="log line “Decode batch”",
        source=LOG_SOURCE,
        accepted_per_step=sum(running * (length - 1) for running, length, _ in lines) / weight,
        drafted_per_step=width,
        other_drafted_per_step=other,
        requests_running=mean(running for running, _, _ in lines),
        derived=derived,
        unknown=(_TREES, "The line has no counts and no rates per index; meta_info's histogram has them."),
    )


def _stated(text: str) -> list[int]:
    """Windows in the server's printed arguments: verified tokens per step minus one, and steps."""
    drafted = [int(number) - 1 for number in _VERIFIED.findall(text)]
    return [k for k in (*drafted, *map(int, _STEPS.findall(text))) if k >= 1]


def _width(
    lines: Sequence[tuple[float, float, float]], stated: Sequence[int]
) -> tuple[float | None, float | None, tuple[str, ...]]:
    """The window, the window under the rate's other meaning if that is undecided, and sentences on their source.

    Args:
        lines: Requests, accept len and accept rate of each line; empty if a line has no rate.
        stated: Windows in the server's arguments.
    """
    if not lines:
        return (stated[0], None, ("The window is from the server's arguments.",)) if stated else (None, None, ())
    ranges = [_range(lines, own) for own in (0, 1)]
    for meaning, (low, high) in zip(_MEANINGS, ranges, strict=True):
        if found := [k for k in stated if low <= k <= high]:
            return found[0], None, (f"{meaning}: this fits the window in the server's arguments.",)
    weighted_rate = sum(running * rate for running, _, rate in lines)
    if not weighted_rate:
        return None, None, ()
    means = [sum(running * (length - 1 + own) for running, length, _ in lines) / weighted_rate - own for own in (0, 1)]
    new, old = (_whole_number_in(*bounds, mean) for bounds, mean in zip(ranges, means, strict=True))
    if new is not None and old is not None and new != old:
        return new, old, (_UNDECIDED,)
    if new is None and old is None:
        return round(means[0], 1), round(means[1], 1), (_UNDECIDED,)
    meaning = _MEANINGS[0] if new is not None else _MEANINGS[1]
    return new or old, None, (f"{meaning}: only this gives a whole number of draft tokens.",)


def _range(lines: Sequence[tuple[float, float, float]], own: int) -> tuple[float, float]:
    """Least and largest k that fit all lines to two decimals, where rate = (accepted + own) ÷ (k + own)."""
    half, rounding = 0.005, 1e-9
    lows = [(max(length - 1 - half, 0.0) + own) / (rate + half) - own for _, length, rate in lines]
    highs = [(length - 1 + half + own) / (rate - half) - own if rate > half else math.inf for _, length, rate in lines]
    return max(lows) - rounding, min(highs) + rounding


def _whole_number_in(low: float, high: float, near: float) -> int | None:
    """The positive whole number in a range nearest to `near`; None if there is none."""
    least = max(math.ceil(low), 1)
    return None if least > high else int(min(max(round(near), least), high))


def _first(meta: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((meta[name] for name in names if meta.get(name) is not None), None)
