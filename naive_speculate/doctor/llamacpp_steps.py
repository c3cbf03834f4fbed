"""llama.cpp's lines of each step, at log level debug or with LLAMA_TRACE: `tools/server/server-context.cpp` (001d906a6d86),
`examples/speculative-simple/speculative-simple.cpp` (08d0baaca674).

One step may be written three times: "accepted 2/ 3 draft tokens" (trace), "add accepted tokens: …, ids.size=3, n_draft=3" and
"accepted 2/3 draft tokens, new n_tokens = 741" (debug; missing for a request's last step). Where a context cannot drop single
tokens, a partly accepted window ends in "(restore checkpoint)", and its accepted tokens and the target's own are decoded again
as a window of their own, which is no step.
"""

import re
from dataclasses import dataclass

from naive_speculate.doctor.fading import Stretch
from naive_speculate.doctor.llamacpp import speeds
from naive_speculate.doctor.reading import Format, Part, Reading

_STEPS = Format("llama.cpp", "lines of each step", "tools/server/server-context.cpp, after verification (001d906a6d86)")
_LINE = re.compile(
    r"(?:\bid\s+(?P<slot>\d+)\s*\|[^\n]{0,80}?)?"
    r"(?:\baccepted\s+(?P<accepted>\d+)\s*/\s*(?P<drafted>\d+)\s+draft tokens"
    r"(?:[^\n]{0,80}?(?:new n_(?:tokens|past)\s*=\s*(?P<position>\d+)|(?P<restores>restore checkpoint)))?"
    r"|\badd accepted tokens:[^\n]{0,80}?ids\.size=(?P<size>\d+),\s*n_draft=(?P<n_draft>\d+)"
    r"|(?P<restoring>\brestoring speculative checkpoint))"
)
_KINDS = ("trace", "added", "new")
_UNDRAFTED = "This build prints 0 for the draft tokens of a step (llama.cpp#18211), so the window is unknown."
_REPLAYED = (
    "Partly accepted windows were decoded again: without trace lines their full length is unknown, and counted too short."
)


@dataclass
class _Step:
    accepted: int
    drafted: int
    position: int | None = None
    replayed: bool = False


def read_steps(text: str) -> Reading | None:
    """All steps; None if there is none. Raises `ValueError` if a step accepts more tokens than it drafts."""
    steps = _steps(text)
    drafted_known = any(step.drafted for step in steps)
    if drafted_known:
        steps = [step for step in steps if step.drafted or step.accepted]
    if not steps:
        return None
    for step in steps:
        if drafted_known and step.accepted > step.drafted:
            raise ValueError(f"llama.cpp's log: {step.accepted} accepted of {step.drafted} drafted in one step is impossible")
    indices, count = range(max(max(step.drafted, step.accepted) for step in steps)), len(steps)
    rates = tuple(sum(step.accepted > index for step in steps) / count for index in indices)
    judged = tuple(sum(step.accepted >= index < step.drafted for step in steps) / count for index in indices)
    course = tuple(Stretch(step.position, 1, min(step.accepted, 1)) for step in steps)
    drafted = sum(step.drafted for step in steps) if drafted_known else None
    whole = Part(sum(step.accepted for step in steps), drafted, count, rates, judged if drafted_known else (), course)
    replayed = any(step.replayed for step in steps)
    unknown = (*(() if drafted_known else (_UNDRAFTED,)), *((_REPLAYED,) if replayed else ()))
    return _STEPS.total([whole], unknown=unknown, **speeds(text))


def _steps(text: str) -> list[_Step]:
    """The steps, from the kind of line that occurs most; "new n_tokens" adds the position to the step before. The last step of
    a request has no position of its own: it takes the one before."""
    lines = [(_kind(found), found) for found in _LINE.finditer(text)]
    chosen = max(_KINDS, key=[kind for kind, _ in lines].count)
    steps: list[_Step] = []
    last: dict[str, _Step] = {}
    replay: dict[str, str] = {}  # slot → the kind of the line that announced its replay
    for kind, found in lines:
        slot = found["slot"] or ""
        position = int(found["position"]) if found["position"] else None
        if kind == "restoring":
            replay.setdefault(slot, kind)
        if kind == chosen:
            announced = replay.pop(slot, None)
            if announced == "trace":  # the step is in the list already
                continue
            accepted, drafted = int(found["accepted"] or int(found["size"] or 0) - 1), int(found["drafted"] or found["n_draft"])
            if announced:  # the target's own token is part of the replayed window
                accepted = max(drafted - 1, 0)
            if found["restores"]:
                replay[slot] = "trace"
            last[slot] = _Step(accepted, drafted, position, bool(announced))
            steps.append(last[slot])
        if kind == "new" and slot in last and last[slot].position is None:
            last[slot].position = position
    before = next((step.position for step in steps if step.position is not None), None)
    for step in steps:
        step.position = before = before if step.position is None else step.position
    return steps


def _kind(found: re.Match[str]) -> str:
    return "restoring" if found["restoring"] else "added" if found["size"] else "new" if found["position"] else "trace"
