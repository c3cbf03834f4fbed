"""llama.cpp: the server's log and `timings`, the statistics of `common/speculative.cpp`, the
output of its examples, and its lines of each step, at log level debug or with LLAMA_TRACE."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from naive_speculate.tools.doctor.json_objects import objects, whole_number
from naive_speculate.tools.doctor.reading import (
    Format,
    Part,
    Reading,
    Stretch,
    histogram_of,
    judged_of,
    last_of_each,
    numbers_in,
    per_second,
    rates_of,
    steps_of,
)

_TIMINGS = Format(
    "llama.cpp",
    "server `timings`",
    "tools/server/server-task.cpp, result_timings::to_json (00efb3e18426)",
)
_ROUNDS = Format(
    "mlx-vlm", "server `timings` that count rounds", "mlx_vlm/server, timings (mlx-vlm#1788, #2324)"
)
_LOG = Format(
    "llama.cpp",
    "server log “draft acceptance”",
    "tools/server/server-context.cpp, server_slot::print_timings (2026)",
)
_LINE = Format(
    "llama.cpp",
    "“statistics” line",
    "common/speculative.cpp, common_speculative_print_stats (001d906a6d86)",
)
_EXAMPLE = Format(
    "llama.cpp",
    "`n_drafted` and `n_accept`",
    "examples/speculative-simple/speculative-simple.cpp (08d0baaca674)",
)
_STEPS = Format(
    "llama.cpp",
    "lines of each step",
    "tools/server/server-context.cpp, after verification (001d906a6d86)",
)
_RATES = r"acc(?:ept(?:ance)?)?(?: rate)?(?:/| per )pos(?:ition)? *[=:] *\(([\d., ]*)\)"
_STATISTICS = re.compile(
    r"statistics\s+(\S+):\s+#calls(?:\(b,g,a\))?\s*=\s+(?:(\d+)\s+(\d+)\s+)?(\d+),\s+#gen"
    r" drafts\s*=\s+(\d+),\s+"
    r"#acc drafts\s*=\s+(\d+),\s+#gen tokens\s*=\s+(\d+),\s+#acc tokens\s*=\s+(\d+)(.*(?:\n["
    r" \t]+#.*)*)"
)
_DURATIONS = re.compile(r"dur\(b,g,a\) = *[\d.]+, *([\d.]+), *[\d.]+ ms")
_EVAL = r"(?<!prompt )\beval time = +([\d.]+) ms / +(\d+)"
_ACCEPTANCE = r"draft acc(?:eptance|ept)?(?: rate)? *[=:] *[\d.]+%? *\("
_REQUEST = re.compile(
    rf"{_EVAL} tokens|{_ACCEPTANCE} *(\d+) accepted */ *(\d+) (?:generated|drafted)\)"
    rf"(?:, *(?:mean|avg) (?:acc(?:ept(?:ance|ed)?)? )?len(?:gth)? *[=:] *([\d.]+))?|(?<!#){_RATES}"
)
_BENCH = re.compile(
    r"(?<!\S)(\S{1,60})\s+pred=\s*(\d{1,9})\s+draft=\s*(\d{1,9})\s+acc=\s*(\d{1,9})"
    r"\s+rate=\S+\s+tok/s=\s*(\d{1,9}(?:\.\d{1,9})?)"
)
_ROUND_NAMES = re.compile(
    r"(?:(?:n|num|total|draft|drafting|spec|speculative|verify|decoding)_)*"
    r"(?:rounds|drafts|verifications|verify_ct|verify_steps|spec_steps)"
    r"(?:_(?:n|num|ct|count|total))?"
)
"""Other servers' names of the steps, in timings with llama.cpp's names."""
_PRINTED = re.compile(r"\b(n_predict|n_drafted|n_accept) += +(\d+)\s*$", re.MULTILINE)
_STEP = re.compile(
    r"(?:\bid\s+(?P<slot>\d+)\s*\|[^\n]{0,80}?)?"
    r"(?:\baccepted\s+(?P<accepted>\d+)\s*/\s*(?P<drafted>\d+)\s+draft tokens"
    r"(?:[^\n]{0,80}?(?:new n_(?:tokens|past)\s*=\s*(?P<position>\d+)|(?P<restores>restore"
    r" checkpoint)))?"
    r"|\badd accepted tokens:[^\n]{0,80}?ids\.size=(?P<size>\d+),\s*n_draft=(?P<n_draft>\d+)"
    r"|(?P<restoring>\brestoring speculative checkpoint))"
)
# by the last group that matched
_KINDS = {"position": "new", "n_draft": "added", "restoring": "restoring"}
_NO_RATES = (
    "llama.cpp reports no rates per index here; its statistics line, at log level trace (-lv 4),"
    " does."
)
_P_MIN = (
    "llama.cpp ends a window if the draft is unsure (--draft-p-min), so windows differ in length."
)
_UNDRAFTED = (
    "This build prints 0 for the draft tokens of a step (llama.cpp#18211), so the window is"
    " unknown."
)
_AFTER_END = (
    "In {} of {} responses more draft tokens are accepted than the answer has room for: llama.cpp"
    " counts those that it accepted after the end, too. Where others are left, these are left out."
)
_COMMAS = re.compile(r"\beval time = +\d+,\d+ ms|\bacceptance(?: rate)? = +\d+,\d")
_COMMA = re.compile(r"(?<=\d),(?=\d)")
_NUMBERS = re.compile(r"(?:eval|total) time =|draft acc|statistics|acc per pos|#acc|dur\(|mean ")
_REPLAYED = (
    "Partly accepted windows were decoded again: without trace lines their full length is unknown,"
    " and counted too short."
)


def with_points(text: str) -> str:
    """A text in which the numbers of a locale with commas have decimal points."""
    if not _COMMAS.search(text):
        return text
    lines = text.split("\n")
    return "\n".join(_COMMA.sub(".", line) if _NUMBERS.search(line) else line for line in lines)


def read_timings(text: str) -> Reading | None:
    """`timings` of all responses; of a streamed one the last report counts."""
    reports = _reports(text, ("draft_n", "draft_n_accepted"))
    if not reports:
        return None
    parts, rounds, after_end = [], [], 0
    for timings, _ in reports:
        drafted, accepted = (
            whole_number(timings.get(name), name) for name in ("draft_n", "draft_n_accepted")
        )
        known = [name for name, value in timings.items() if value is not None]
        name = next(filter(_ROUND_NAMES.fullmatch, known), None)
        rounds.append(name)
        steps = whole_number(timings[name], name) if name else None  # as counted
        if name is None and "predicted_n" in known:
            tokens = whole_number(timings["predicted_n"], "predicted_n")
            steps = steps_of(tokens, accepted) if drafted else tokens - accepted - 1
            after_end += steps is None
        parts.append(Part(accepted, drafted, steps))
    times = [
        (bool(timings.get("draft_n")), timings["predicted_ms"], timings["predicted_n"])
        for timings, _ in _reports(text, ("predicted_ms",))
        if isinstance(timings["predicted_ms"], int | float)
        and isinstance(timings.get("predicted_n"), int)
    ]
    if None in rounds:
        return _of_answers(_TIMINGS, parts, after_end, **per_second(times))
    by_mlx = any("draft_kind" in timings for timings, _ in reports)
    form = _ROUNDS if by_mlx else _ROUNDS._replace(engine="llama.cpp")
    unknown = ("These timings have no rates per index.",)
    return form.total(parts, unknown=unknown, **per_second(times))


def read_mtp_bench(text: str) -> Reading | None:
    """The lines of mtp-bench.py, with the timings of some prompts by llama.cpp's server."""
    parts, times, after_end = [], [], 0
    for name, *numbers, speed in _BENCH.findall(text):
        tokens, drafted, accepted = map(int, numbers)
        if drafted:
            parts.append(Part(accepted, drafted, steps_of(tokens, accepted), category=name))
            after_end += parts[-1].steps is None
        if float(speed):
            times.append((drafted > 0, 1000 * tokens / float(speed), tokens))
    return _of_answers(_TIMINGS, parts, after_end, **per_second(times)) if parts else None


def _of_answers(form: Format, parts: list[Part], after_end: int, **figures: Any) -> Reading:
    """`after_end` requests count draft tokens after their end, and are left out if there are
    others."""
    left_out = after_end and _AFTER_END.format(after_end, len(parts))
    if 0 < after_end < len(parts):
        parts = [part for part in parts if part.steps is not None or not part.drafted]
    figures["num_after_end"] = after_end
    return form.of_tokens(parts, left_out, _NO_RATES, _P_MIN, **figures)


def _reports(text: str, names: tuple[str, ...]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The last report of each response, by its id or else the prompt's figures. Without an id, a
    report after the last one, or one that repeats it, is of another response."""
    reports, last = list[tuple[dict[str, Any], dict[str, Any]]](), dict[str, int]()
    for timings, outermost in objects(text, names):
        name = str([outermost.get("id"), timings.get("prompt_n"), timings.get("prompt_ms")])
        known = outermost.get("id") or timings.get("prompt_n") or timings.get("prompt_ms")
        new = name not in last or not known
        if not new and not outermost.get("id"):
            before = reports[last[name]]
            new = _is_last(before[1]) or before == (timings, outermost)
        if new:
            last[name] = len(reports)
            reports.append((timings, outermost))
        else:
            reports[last[name]] = timings, outermost
    return reports


def _is_last(response: dict[str, Any]) -> bool:
    choices = response.get("choices")
    choices = choices if isinstance(choices, list) else []
    ends = [one.get("finish_reason") for one in choices if isinstance(one, dict)]
    return response.get("stop") is True or any(ends)


def read_server_log(text: str) -> Reading | None:
    parts: list[Part] = []
    generated: int | None = None
    after_end = 0
    for _, tokens, accepted_text, proposed, length, rates_text in _REQUEST.findall(text):
        if tokens:
            generated = int(tokens)
        elif proposed:
            accepted, steps = int(accepted_text), None
            if length and float(length) > 1:
                steps = round(accepted / (float(length) - 1))
            if not steps and generated is not None:
                steps = steps_of(generated, accepted)
                after_end += steps is None
            parts.append(Part(accepted, int(proposed), steps))
            generated = None
        elif parts and parts[-1].steps:
            parts[-1] = parts[-1]._replace(rates=numbers_in(rates_text))
    if not any(part.drafted for part in parts):
        return None
    rated = [part for part in parts if part.rates]
    if not rated:
        return _of_answers(_LOG, parts, after_end, **speeds(text))
    derived = ("The steps are derived from the mean length, which has two decimals.",)
    return _LOG.total(
        parts, rates=_LOG.total(rated).rates, derived=derived, unknown=(_P_MIN,), **speeds(text)
    )


def speeds(text: str) -> dict[str, Any]:
    """Tokens per second with and without drafting, and the drafter's share of the time. A request
    without a line on its drafts was decoded without drafting."""
    matches = list(re.finditer(f"{_EVAL} (?:tokens|runs)|{_ACCEPTANCE}", text))
    times = [
        (after is not None and not after[1], float(one[1]), int(one[2]))
        for one, after in zip_longest(matches, matches[1:])
        if one[1]
    ]
    lines = [
        (int(line[1] or 0), float(spent[1]))
        for line in _statistics(text)
        if (spent := _DURATIONS.search(line[-1]))
    ]
    drafting = sum(spent for _, spent in lines)
    total = sum(spent for drafted, spent, _ in times if drafted)
    # The lines count all requests since the server's start; the log may lack some.
    whole = total and all(begun <= len(times) for begun, _ in lines)
    share = drafting / total if whole else 0.0
    return per_second(times) | ({"draft_share": share} if 0 < share < 1 else {})


def _statistics(text: str) -> list[tuple[str, ...]]:
    """The last line of each drafter and process, since its counters grow."""
    # Each accepted draft has an accepted token; a line with fewer was cut.
    by_name: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for line in _STATISTICS.findall(text):
        if int(line[6]) and int(line[5]) <= int(line[7]):
            by_name[line[0]].append(line)
    return [last for lines in by_name.values() for last in last_of_each(lines, slice(3, 8))]


def read_statistics(text: str) -> Reading | None:
    parts, complete, called = [], True, Counter[str]()
    for name, _, drafting, calls, drafts, first, of_drafter, of_accepted, rest in _statistics(text):
        called[name] += int(drafting or calls)
        steps, rate = min(int(calls), int(drafts)) or int(drafts), re.search(f"#{_RATES}", rest)
        # until May 2026 llama.cpp did not count a step that accepted nothing
        if not rate and calls == first:
            steps = int(drafts)
        complete = complete and rate is not None
        rates = numbers_in(rate[1]) if rate else (int(first) / steps,)
        parts.append(Part(int(of_accepted), int(of_drafter), steps, rates))
    if not parts:
        generated = [int(line[6]) for line in _STATISTICS.findall(text)]
        if any(generated):
            raise ValueError("llama.cpp's statistics line was not copied in full")
        return _LINE.total([Part(0, 0, 0)]) if generated else None  # refused: nothing was drafted
    first_only = (
        "This version's line has a rate for the first index only (#acc drafts ÷ the steps)."
    )
    unknown = (
        _P_MIN,
        "The line counts since the start of a server's slot.",
        not complete and first_only,
    )
    # the first drafter is called in every step
    share = sum(part.steps or 0 for part in parts) / max(*called.values(), 1)
    return _LINE.total(parts, unknown=unknown, drafted_share=min(share, 1.0), **speeds(text))


def read_example(text: str) -> Reading | None:
    """As printed by llama-speculative, llama-speculative-simple and llama-lookup."""
    predicted, drafted, accepted = (
        [int(number) for name, number in _PRINTED.findall(text) if name == field]
        for field in ("n_predict", "n_drafted", "n_accept")
    )
    if not drafted or len(accepted) != len(drafted):
        return None
    steps = sum(predicted) - sum(accepted) if len(predicted) == len(drafted) else None
    return _EXAMPLE.of_tokens([Part(sum(accepted), sum(drafted), steps)], _NO_RATES, _P_MIN)


@dataclass
class _LoggedStep:
    accepted: int
    drafted: int
    position: int | None = None
    replayed: bool = False


def read_steps(text: str) -> Reading | None:
    """Raises `ValueError` if a step accepts more tokens than it drafts."""
    steps = _steps(text)
    drafted_known = any(step.drafted for step in steps)
    if drafted_known:
        steps = [step for step in steps if step.drafted or step.accepted]
    if not steps:
        return None
    for step in steps:
        if drafted_known and step.accepted > step.drafted:
            words = f"{step.accepted} accepted of {step.drafted} drafted in one step is impossible"
            raise ValueError(f"llama.cpp's log: {words}")
    accepted = [step.accepted for step in steps]
    rates = rates_of(histogram_of(accepted), max(step.drafted for step in steps))
    drafted, judged = None, tuple[float, ...]()
    if drafted_known:
        drafted = sum(step.drafted for step in steps)
        judged = judged_of([(step.drafted, step.accepted, 1) for step in steps], len(rates))
    course = tuple(Stretch(step.position, 1, min(step.accepted, 1)) for step in steps)
    whole = Part(sum(accepted), drafted, len(steps), rates, judged, course)
    replayed = any(step.replayed for step in steps)
    unknown = (not drafted_known and _UNDRAFTED, replayed and _REPLAYED)
    return _STEPS.total([whole], unknown=unknown, **speeds(text))


def _steps(text: str) -> list[_LoggedStep]:
    """The steps, from the kind of line that occurs most.

    One step may be written three times: "accepted 2/ 3 draft tokens" (trace), "add accepted
    tokens: …, ids.size=3, n_draft=3" and "accepted 2/3 draft tokens, new n_tokens = 741" (debug;
    missing for a request's last step, which takes the position of the one before). Where a
    context cannot drop single tokens, a partly accepted window ends in "(restore checkpoint)",
    and its accepted tokens and the target's own are decoded again as a window of their own,
    which is no step.
    """
    lines = [(_KINDS.get(str(match.lastgroup), "trace"), match) for match in _STEP.finditer(text)]
    chosen = max(("trace", "added", "new"), key=[kind for kind, _ in lines].count)
    steps: list[_LoggedStep] = []
    last: dict[str, _LoggedStep] = {}
    replay: dict[str, str] = {}  # slot → the kind of the line that announced its replay
    for kind, match in lines:
        slot = match["slot"] or ""
        position = int(match["position"]) if match["position"] else None
        if kind == "restoring":
            replay.setdefault(slot, kind)
        if kind == chosen:
            announced = replay.pop(slot, None)
            if announced == "trace":  # the step is in the list already
                continue
            accepted = int(match["accepted"] or int(match["size"] or 0) - 1)
            drafted = int(match["drafted"] or match["n_draft"])
            if announced:  # the target's own token is part of the replayed window
                accepted = max(drafted - 1, 0)
            if match["restores"]:
                replay[slot] = "trace"
            last[slot] = _LoggedStep(accepted, drafted, position, bool(announced))
            steps.append(last[slot])
        if kind == "new" and slot in last and last[slot].position is None:
            last[slot].position = position
    before = next((step.position for step in steps if step.position is not None), None)
    for step in steps:
        step.position = before = before if step.position is None else step.position
    return steps
