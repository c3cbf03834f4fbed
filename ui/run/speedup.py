"""What is decoded after a run to compare it: its speedup, and the acceptance without its guide.

The speedup is measured once and stored in the run's last event, so that a saved trace contains it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from naive_speculate.events import Event, EventKind, FinishReason
from naive_speculate.events.metrics import summarize
from naive_speculate.serving import Request
from ui.host.measuring import NotMeasured
from ui.host.weight import weight
from ui.run.runs import Run

GOES_ON = "The run is not finished."
NONE_SAVED = "This trace was saved without a measured speedup."
STOPPED = "The run was stopped."
FAILED = "The run ended in an error."
UNREPEATED = "This run was not decoded here, so it cannot be repeated without its guide."
FAILURES = (NotMeasured, ValueError, RuntimeError)  # the decoder stopped or failed


def speedup_of(run: Run, *, asked: bool) -> dict[str, Any]:
    """The answer for the browser: the `speedup`, measured now if possible, or a `reason` and whether to ask `again`. A
    stopped run is measured only if the visitor `asked`."""
    finished = run.events[-1] if run.events and run.events[-1].kind == EventKind.FINISHED else None
    if finished is not None and finished.speedup is not None:
        return {"speedup": finished.to_dict()["speedup"]}
    if run.measure is None:
        return _reason(NONE_SAVED)
    if finished is None:
        return _reason(GOES_ON)
    if finished.finish_reason == FinishReason.ERROR:
        return _reason(FAILED)
    if finished.finish_reason == FinishReason.CANCELLED and not asked:
        return _reason(STOPPED, again=True)
    run.plain.clear()
    try:
        run.events[-1] = replace(run.events[-1], speedup=run.measure())
    except FAILURES as error:
        answer = _failed(error)
        if answer["again"]:
            run.plain.clear()  # it was cut off
        return answer
    run.size += weight(run.plain)
    return {"speedup": run.events[-1].to_dict()["speedup"]}


def acceptance(events: Sequence[Event]) -> dict[str, Any]:
    """How many judged draft tokens of a run were accepted, and whether it was cut off."""
    m = summarize(events)
    judged = m.num_accepted_draft_tokens + m.num_rejected_draft_tokens
    cut = any(event.finish_reason == FinishReason.CANCELLED for event in events)
    return {"accepted": m.num_accepted_draft_tokens, "judged": judged, "cut": cut}


def without_guide(run: Run) -> dict[str, Any]:
    """The acceptance of a guided run without its guide, for the browser, or a `reason` and whether to ask `again`."""
    if run.unguided is None:
        return _reason(UNREPEATED)
    try:
        return run.unguided()
    except FAILURES as error:
        return _failed(error)


def seeded(request: Request, seed: int | None, **changes: Any) -> Request:
    """The request with its drawn seed and other changed parameters."""
    return replace(request, params=replace(request.params, seed=seed, **changes))


def _failed(error: Exception) -> dict[str, Any]:
    return _reason(str(error), again=isinstance(error, NotMeasured) and error.again)


def _reason(why: str, *, again: bool = False) -> dict[str, Any]:
    return {"reason": why, "again": again}
