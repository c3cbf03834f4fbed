"""llama.cpp: the server's log and `timings`, the statistics of `common/speculative.cpp`, and the output of its examples.
(`llamacpp_steps` reads its lines of each step.)

Versions: `tools/server/server-task.cpp` 00efb3e18426 (`timings`), `common/speculative.cpp` 001d906a6d86 ("statistics"),
`examples/speculative-simple/speculative-simple.cpp` 08d0baaca674 and `examples/speculative/speculative.cpp` 007d71358afe.
"""

import re
from itertools import zip_longest
from typing import Any

from naive_speculate.doctor.json_objects import objects, whole_number
from naive_speculate.doctor.reading import Format, Reading, rates_in, weighted_rates

_TIMINGS = Format("llama.cpp", "server `timings`", "tools/server/server-task.cpp, result_timings::to_json (00efb3e18426)")
_ROUNDS = Format("mlx-vlm", "server `timings` that count rounds", "mlx_vlm/server, timings (mlx-vlm#1788, #2324)")
_LOG = Format(
    "llama.cpp", "server log “draft acceptance”", "tools/server/server-context.cpp, server_slot::print_timings (2026)"
)
_LINE = Format("llama.cpp", "“statistics” line", "common/speculative.cpp, common_speculative_print_stats (001d906a6d86)")
_EXAMPLE = Format(
    "llama.cpp", "`n_drafted` and `n_accept`", "examples/speculative-simple/speculative-simple.cpp (08d0baaca674)"
)
_MEAN = r"(?:mean|avg) (?:acc(?:ept(?:ance|ed)?)? )?len(?:gth)?"
_RATES = r"acc(?:ept(?:ance)?)?(?: rate)?(?:/| per )pos(?:ition)?"
_STATISTICS = re.compile(
    r"statistics +(\S+): #calls(?:\(b,g,a\))? = +(?:\d+ +\d+ +)?(\d+), #gen drafts = +(\d+), #acc drafts = +(\d+), "
    r"#gen tokens = +(\d+), #acc tokens = +(\d+)(.*)"
)
_DURATIONS = re.compile(r"dur\(b,g,a\) = *[\d.]+, *([\d.]+), *[\d.]+ ms")
_EVALS = re.compile(
    r"(?<!prompt )\beval time = +([\d.]+) ms / +(\d+) (?:tokens|runs)|draft acc(?:eptance|ept)?(?: rate)? *[=:] *[\d.]+%? *\("
)
_REQUEST = re.compile(
    r"(?<!prompt )\beval time = +[\d.]+ ms / +(\d+) tokens"
    r"|draft acc(?:eptance|ept)?(?: rate)? *[=:] *[\d.]+%? *\( *(\d+) accepted */ *(\d+) (?:generated|drafted)\)"
    rf"(?:, *{_MEAN} *[=:] *([\d.]+))?"
    rf"|(?<!#){_RATES} *[=:] *\(([\d., ]*)\)"
)
_ROUND_NAMES = re.compile(
    r"(?:(?:n|num|total|draft|drafting|spec|speculative|verify|decoding)_)*"
    r"(?:rounds|drafts|verifications|verify_ct|verify_steps|spec_steps)(?:_(?:n|num|ct|count|total))?"
)
"""Other servers' names of the steps, in timings with llama.cpp's names."""
_PRINTED = re.compile(r"\b(n_predict|n_drafted|n_accept) += +(\d+)\s*$", re.MULTILINE)
_NO_RATES = "llama.cpp reports no rates per index here; its statistics line, at log level trace (-lv 4), does."
_MIXED = "Steps without a draft token are counted too, which makes windows look shorter."
_P_MIN = "llama.cpp ends a window if the draft is unsure (--draft-p-min), so windows differ in length."


def read_timings(text: str) -> Reading | None:
    """`timings` of all responses together; None if there are none. Of a streamed response the last report counts."""
    found: dict[Any, dict[str, Any]] = {}
    for timings, outermost in objects(text, ("draft_n", "draft_n_accepted")):
        found[outermost.get("id"), timings.get("prompt_n"), str(timings.get("prompt_ms"))] = timings
    if not found:
        return None
    drafted = sum(whole_number(timings.get("draft_n"), "draft_n") for timings in found.values())
    accepted = sum(whole_number(timings.get("draft_n_accepted"), "draft_n_accepted") for timings in found.values())
    times: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
    for timings, _ in objects(text, ("predicted_ms",)):
        spent, tokens = timings["predicted_ms"], timings.get("predicted_n")
        if isinstance(spent, int | float) and isinstance(tokens, int):
            times[bool(timings.get("draft_n"))].append((spent, tokens))
    rounds = [of_one for timings in found.values() if (of_one := _rounds(timings)) is not None]
    if len(rounds) < len(found):
        each = [_steps(timings) for timings in found.values()]
        steps = None if None in each else sum(of_one for of_one in each if of_one is not None)
        return _without_rates(_TIMINGS, drafted, accepted, steps, **_per_second(times))
    named = _ROUNDS if any("draft_kind" in timings for timings in found.values()) else _ROUNDS._replace(engine="llama.cpp")
    unknown = ("These timings have no rates per index.",)
    return named.counted(accepted, drafted, sum(rounds) or None, unknown=unknown, **_per_second(times))


def _steps(timings: dict[str, Any]) -> int | None:
    """The counted steps; else the tokens of the response that were not draft tokens, without the prefill's."""
    rounds = _rounds(timings)
    if rounds is not None or timings.get("predicted_n") is None:
        return rounds
    return (
        whole_number(timings["predicted_n"], "predicted_n") - whole_number(timings["draft_n_accepted"], "draft_n_accepted") - 1
    )


def _rounds(timings: dict[str, Any]) -> int | None:
    """The steps with draft tokens, if the timings count them."""
    name = next((name for name, value in timings.items() if _ROUND_NAMES.fullmatch(name) and value is not None), None)
    return None if name is None else whole_number(timings[name], name)


def read_server_log(text: str) -> Reading | None:
    """All requests of the server's log together; None if there are none."""
    drafted = accepted = 0
    steps: float | None = 0.0
    parts: list[tuple[float, tuple[float, ...]]] = []
    generated: int | None = None
    of_request: float | None = None
    for tokens, accepted_text, proposed, length, rates_text in _REQUEST.findall(text):
        if tokens:
            generated = int(tokens)
        elif proposed:
            drafted, accepted = drafted + int(proposed), accepted + int(accepted_text)
            of_request = round(int(accepted_text) / (float(length) - 1)) if length and float(length) > 1 else None
            if of_request is None and generated is not None:
                of_request = max(generated - 1 - int(accepted_text), 0)
            generated = None
            steps = None if steps is None or of_request is None else steps + of_request
        elif of_request:
            parts.append((of_request, rates_in(rates_text)))
    if not drafted:
        return None
    if not parts:
        return _without_rates(_LOG, drafted, accepted, steps, **speeds(text))
    derived = ("The steps are derived from the mean length, which has two decimals.",)
    rates = weighted_rates(parts)
    return _LOG.counted(accepted, drafted, steps, rates=rates, derived=derived, unknown=(_P_MIN,), **speeds(text))


def speeds(text: str) -> dict[str, Any]:
    """What the server's log says of speed: tokens per second with and without drafting, and the drafter's share of the time.

    A request without a line on its drafts was decoded without drafting.
    """
    times: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
    found = list(_EVALS.finditer(text))
    for one, after in zip_longest(found, found[1:]):
        if one[1]:
            drafted = after is not None and not after[1]
            times[drafted].append((float(one[1]), int(one[2])))
    last = {line[0]: durations[1] for line in _STATISTICS.findall(text) if (durations := _DURATIONS.search(line[6]))}
    total = sum(spent for spent, _ in times[True])
    share = sum(map(float, last.values())) / total if total else 0.0
    return _per_second(times) | ({"draft_share": share} if 0 < share < 1 else {})


def _per_second(times: dict[bool, list[tuple[float, int]]]) -> dict[str, Any]:
    """Tokens per second with and without drafting, from milliseconds and tokens of each request; empty if unknown."""
    named: dict[str, Any] = {}
    for drafted, name in ((True, "tokens_per_second"), (False, "plain_tokens_per_second")):
        spent, tokens = (sum(column) for column in zip((0.0, 0), *times[drafted], strict=True))
        if spent > 0 and tokens > len(times[drafted]):
            named[name] = 1000 * tokens / spent
    return named


def read_statistics(text: str) -> Reading | None:
    """The last statistics line of each drafter, since its counters grow; None if there is none."""
    last = {line[0]: line for line in _STATISTICS.findall(text) if int(line[4])}
    if not last:
        return None
    steps = drafted = accepted = 0
    parts: list[tuple[float, tuple[float, ...]]] = []
    complete = True
    for _, calls, drafts, first, of_drafter, of_accepted, rest in last.values():
        of_steps = min(int(calls), int(drafts)) or int(drafts)
        found = re.search(rf"#{_RATES} *= *\(([\d., ]*)\)", rest)
        complete = complete and found is not None
        rates = rates_in(found[1]) if found else (int(first) / of_steps,)
        parts.append((of_steps, rates))
        steps, drafted, accepted = steps + of_steps, drafted + int(of_drafter), accepted + int(of_accepted)
    first_only = "This version's line has a rate for the first index only (#acc drafts ÷ the steps)."
    unknown = (_P_MIN, "The line counts since the start of a server's slot.", *(() if complete else (first_only,)))
    return _LINE.counted(accepted, drafted, steps, rates=weighted_rates(parts), unknown=unknown, **speeds(text))


def read_example(text: str) -> Reading | None:
    """`n_drafted` and `n_accept`, as printed by llama-speculative, llama-speculative-simple and llama-lookup; None without
    them."""
    found: dict[str, list[int]] = {"n_predict": [], "n_drafted": [], "n_accept": []}
    for name, number in _PRINTED.findall(text):
        found[name].append(int(number))
    runs = len(found["n_drafted"])
    if not runs or len(found["n_accept"]) != runs:
        return None
    drafted, accepted = sum(found["n_drafted"]), sum(found["n_accept"])
    steps = sum(found["n_predict"]) - accepted if len(found["n_predict"]) == runs else None
    return _without_rates(_EXAMPLE, drafted, accepted, steps)


def _without_rates(form: Format, drafted: int, accepted: int, steps: float | None, **figures: Any) -> Reading:
    """Figures without rates and steps: each step gives the accepted draft tokens and one token of the target."""
    known = steps is not None and steps > 0
    derived = (f"The steps are derived from the tokens that were not draft tokens. {_MIXED}",) if known else ()
    unknown = (_NO_RATES, _P_MIN, *(() if known else ("The number of steps cannot be derived.",)))
    return form.counted(accepted, drafted, steps if known else None, derived=derived, unknown=unknown, **figures)
