"""One token of a trace with its verdict, its step, and the rule that judged it."""

from dataclasses import dataclass
from typing import Any

from naive_speculate.events import TOKEN_KINDS, Event, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.verify import VerifyStrategy

JUDGED = (EventKind.ACCEPTED, EventKind.REJECTED, EventKind.DISCARDED)


@dataclass(frozen=True, slots=True)
class Case:
    """A token and its context: its event (for a proposed token its verdict, once there is one), all token events of the same
    step and sequence, how the step's draft tokens were judged, and the run's settings, empty if the trace has none."""

    event: Event
    step: list[Event]
    rule: VerifyStrategy
    settings: dict[str, Any]

    def first(self, kind: EventKind) -> Event | None:
        return next((e for e in self.step if e.kind == kind), None)


def case_of(trace: Trace, number: int) -> Case:
    """The case of the event of this number, from 0, in a run, whole or so far. Raises ValueError if there is no such event, or
    it is not about a token."""
    if not 0 <= number < len(trace):
        raise ValueError(f"there is no event number {number}: the trace has {len(trace)}")
    event = trace[number]
    if event.kind not in TOKEN_KINDS:
        raise ValueError(f"event number {number} is {event.kind.value!r}, which is not about a token")
    # A step's events are adjacent; searching outwards is cheap for any length of trace.
    first, last = number, number + 1
    while first > 0 and _may_belong(trace[first - 1], event):
        first -= 1
    while last < len(trace) and _may_belong(trace[last], event):
        last += 1
    step = [e for e in trace.events[first:last] if e.kind in TOKEN_KINDS and e.row == event.row]
    if event.kind == EventKind.PROPOSED:
        event = next((e for e in step if e.kind in JUDGED and e.index == event.index), event)
    return Case(event, step, _rule(event, trace.settings), trace.settings)


def warning(settings: dict[str, Any]) -> str:
    """The warning for settings whose output does not follow the target's distribution; empty for all others."""
    temperature = setting(settings, "temperature")
    if not isinstance(temperature, int | float) or temperature <= 0:
        return ""
    name = setting(settings, "verify_strategy")
    if name == VerifyStrategy.TYPICAL_ACCEPTANCE:
        return "Not the target's distribution: typical acceptance accepts some tokens too often."
    if name == VerifyStrategy.GREEDY_MATCH:
        return (
            f"Not the target's distribution at temperature {temperature:g}: greedy match always takes the most probable token, "
            "as at temperature 0."
        )
    return ""


def _may_belong(event: Event, chosen: Event) -> bool:
    if event.row != chosen.row:  # the sequences of a batch alternate
        return event.kind != EventKind.STARTED
    return event.kind in TOKEN_KINDS and event.step == chosen.step


def _rule(event: Event, settings: dict[str, Any]) -> VerifyStrategy:
    if event.threshold is not None:
        return VerifyStrategy.TYPICAL_ACCEPTANCE
    name = setting(settings, "verify_strategy")
    # The event decides if possible: a verdict of probability 0 or 1 without a draw is greedy.
    if name == VerifyStrategy.GREEDY_MATCH or setting(settings, "temperature") == 0:
        return VerifyStrategy.GREEDY_MATCH
    if event.uniform is None and event.accept_prob in (0, 1):
        return VerifyStrategy.GREEDY_MATCH
    return VerifyStrategy(name) if name in list(VerifyStrategy) else VerifyStrategy.SPECULATIVE_SAMPLING


def setting(settings: dict[str, Any], name: str) -> Any:
    """A setting by name, from the run's settings or their sampling parameters."""
    if name in settings:
        return settings[name]
    inner = settings.get("params")
    return inner.get(name) if isinstance(inner, dict) else None
