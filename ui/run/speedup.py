"""A run's speedup: measured once and stored in its last event, so that a saved trace contains it."""

from dataclasses import replace
from typing import Any

from naive_speculate.events import Event, EventKind, FinishReason, MeasuredSpeedup
from naive_speculate.serving import Request
from ui.host.measuring import NotMeasured
from ui.host.weight import weight
from ui.run.runs import Run

GOES_ON = "The run is not finished."
NONE_SAVED = "This trace was saved without a measured speedup."
STOPPED = "The run was stopped."
FAILED = "The run ended in an error."


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
        finished = keep(run, run.measure())
    except (NotMeasured, ValueError, RuntimeError) as error:  # the decoder stopped or failed
        again = isinstance(error, NotMeasured) and error.again
        if again:
            run.plain.clear()  # it was cut off
        return _reason(str(error), again=again)
    run.size += weight(run.plain)
    return {"speedup": finished.to_dict()["speedup"]}


def keep(run: Run, speedup: MeasuredSpeedup) -> Event:
    """Store the speedup in the run's last event, and return that event."""
    run.events[-1] = replace(run.events[-1], speedup=speedup)
    return run.events[-1]


def seeded(request: Request, seed: int | None, **changes: Any) -> Request:
    """The request with its drawn seed and other changed parameters."""
    return replace(request, params=replace(request.params, seed=seed, **changes))


def _reason(why: str, *, again: bool = False) -> dict[str, Any]:
    return {"reason": why, "again": again}
