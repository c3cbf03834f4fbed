"""A run's speedup: kept at its end, where a saved trace keeps it too, and measured once for whoever asks."""

from dataclasses import replace
from typing import Any

from naive_speculate.events import Event, EventKind, FinishReason, MeasuredSpeedup
from naive_speculate.serving import Request
from ui.host.measuring import NotMeasured
from ui.run.runs import Run

GOES_ON = "The run goes on."
NONE_SAVED = "This trace was saved without a measured speedup."
STOPPED = "The run was stopped."
FAILED = "The run ended in an error."


def speedup_of(run: Run, *, asked: bool) -> dict[str, Any]:
    """What the browser is told of a run: its `speedup`, measured now where it can be, or a `reason` and whether the visitor may
    ask (`again`). A run that was stopped is measured only for a visitor who `asked`."""
    finished = _finished(run)
    if finished is None:
        return _reason(NONE_SAVED if run.measure is None else GOES_ON)
    if finished.speedup is None:
        if run.measure is None:
            return _reason(NONE_SAVED)
        if finished.finish_reason == FinishReason.ERROR:
            return _reason(FAILED)
        if finished.finish_reason == FinishReason.CANCELLED and not asked:
            return _reason(STOPPED, again=True)
        try:
            finished = keep(run, run.measure())
        except (NotMeasured, ValueError, RuntimeError) as error:  # the pair's decoder stops or fails
            return _reason(str(error), again=isinstance(error, NotMeasured) and error.again)
    return {"speedup": finished.to_dict()["speedup"]}


def keep(run: Run, speedup: MeasuredSpeedup) -> Event:
    """Write the figure into the run's last event, and give that."""
    run.events[-1] = replace(run.events[-1], speedup=speedup)
    return run.events[-1]


def seeded(request: Request, seed: int | None, **changes: Any) -> Request:
    """The request with the seed that was drawn for it, and other parameters changed."""
    return replace(request, params=replace(request.params, seed=seed, **changes))


def _finished(run: Run) -> Event | None:
    last = run.events[-1] if run.events else None
    return last if last is not None and last.kind == EventKind.FINISHED else None


def _reason(why: str, *, again: bool = False) -> dict[str, Any]:
    return {"reason": why, "again": again}
