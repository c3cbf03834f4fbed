"""SGLang's `meta_info` of a response.

`python/sglang/srt/managers/tokenizer_manager_components/spec_decoding_meta.py` at 9155cf0e6eff, before that
`tokenizer_manager.py` (c60799d0eb1b); the counters were renamed twice.
"""

from dataclasses import replace
from itertools import zip_longest
from typing import Any

from naive_speculate.doctor.json_objects import objects, whole_number
from naive_speculate.doctor.reading import Reading, by_category, rates_of

SOURCE = "python/sglang/srt/managers/tokenizer_manager_components/spec_decoding_meta.py (9155cf0e6eff)"
TREES = "With topk above 1 SGLang drafts trees without reporting it; then it counts all branches as drafted."
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")


def read_meta_info(text: str) -> Reading | None:
    """All requests together; None if there is none. Of a streamed request the last report counts."""
    requests: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for number, (meta, outermost) in enumerate(objects(text, ("spec_verify_ct",))):
        steps = whole_number(meta["spec_verify_ct"], "spec_verify_ct")
        key = str(meta.get("id", number))
        if steps and (key not in requests or steps >= requests[key][0]["spec_verify_ct"]):
            requests[key] = meta, outermost
    if not requests:
        return None
    whole = _requests([meta for meta, _ in requests.values()])
    return replace(whole, categories=by_category(list(requests.values()), _requests))


def _requests(found: list[dict[str, Any]]) -> Reading:
    steps = accepted = drafted = 0
    complete, histogram = True, [0]
    for meta in found:
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
        unknown=(TREES, *(() if rates else ("There is no histogram, so the rates per index are unknown.",))),
    )


def _first(meta: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((meta[name] for name in names if meta.get(name) is not None), None)
