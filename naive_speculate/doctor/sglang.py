"""SGLang: `meta_info` of a response, and the log line "Decode batch".

`python/sglang/srt/managers/tokenizer_manager_components/spec_decoding_meta.py` at 9155cf0e6eff, before that
`tokenizer_manager.py` (c60799d0eb1b): the counters were renamed twice. `scheduler_metrics_mixin.py` (78ac30c2056f) logs.
"""

import re
from itertools import zip_longest
from typing import Any

from naive_speculate.doctor.reading import Reading, mean
from naive_speculate.doctor.values import objects, whole_number

SOURCE = "python/sglang/srt/managers/tokenizer_manager_components/spec_decoding_meta.py (9155cf0e6eff)"
LOG_SOURCE = "python/sglang/srt/managers/scheduler_metrics_mixin.py (78ac30c2056f)"
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_FIELDS = tuple(re.compile(rf"{name}: (\d+(?:\.\d+)?)") for name in ("#running-req", "accept len", "accept rate"))
_TREES = "With topk above 1 SGLang drafts trees, which it does not say: what it counts as drafted are then all their branches."


def read_meta_info(text: str) -> Reading | None:
    """All requests together; None where there is none. Of a streamed request the last account counts."""
    requests: dict[Any, dict[str, Any]] = {}
    for number, (meta, _) in enumerate(objects(text, ("spec_verify_ct",))):
        steps = whole_number(meta["spec_verify_ct"], "spec_verify_ct")
        key = str(meta.get("id", number))
        if steps and steps >= requests.get(key, {}).get("spec_verify_ct", 0):
            requests[key] = meta
    if not requests:
        return None
    steps = accepted = drafted = 0
    told, histogram = True, [0]
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
            named = sum(place * count for place, count in enumerate(counts))
        elif named is None:
            named = max(whole_number(meta["completion_tokens"], "completion_tokens") - of_steps, 0)
        steps, accepted = steps + of_steps, accepted + whole_number(named, "accepted drafts")
        told = told and proposed is not None
        drafted += whole_number(proposed, "proposed drafts") if proposed is not None else 0
    width = drafted / steps if told else None
    rates = _rates(histogram, steps, width) if sum(histogram) == steps else ()
    return Reading.counted(
        accepted,
        drafted if told else None,
        steps,
        engine="SGLang",
        format="meta_info",
        source=SOURCE,
        rates=rates,
        unknown=(_TREES, *(() if rates else ("There is no histogram, so nothing is known of single places.",))),
    )


def read_log(text: str) -> Reading | None:
    """The mean of all lines, each weighted by its requests; None where there is none."""
    lines = []
    for line in text.splitlines():
        if "Decode batch" in line and "accept len: " in line:
            running, length, rate = (float(found[1]) if (found := field.search(line)) else None for field in _FIELDS)
            if running and length and length >= 1:
                lines.append((running, length, rate))
    if not lines:
        return None
    weight = sum(running for running, _, _ in lines)
    accepted = sum(running * (length - 1) for running, length, _ in lines) / weight
    rate = sum(running * (rate or 0.0) for running, _, rate in lines) / weight
    return Reading(
        engine="SGLang",
        format="log line “Decode batch”",
        source=LOG_SOURCE,
        accepted_per_step=accepted,
        drafted_per_step=round(accepted / rate, 1) if rate and all(line[2] for line in lines) else None,
        requests_running=mean(running for running, _, _ in lines),
        derived=("The window follows from accept len and accept rate, to their two decimals.",) if rate else (),
        unknown=(_TREES, "The line counts nothing, and tells nothing of single places; meta_info's histogram does."),
    )


def _rates(histogram: list[int], steps: int, width: float | None) -> tuple[float, ...]:
    """By place, the share of the steps that kept as many; a histogram ends at the most that was ever kept."""
    tails = [sum(histogram[place:]) / steps for place in range(1, len(histogram))]
    if width is not None and width == int(width):
        tails += [0.0] * (int(width) - len(tails))
    return tuple(tails)


def _first(meta: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((meta[name] for name in names if meta.get(name) is not None), None)
