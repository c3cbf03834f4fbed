"""One token of a trace together with what it takes to explain it: its verdict, its step, the rule that judged it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from naive_speculate.events import TOKEN_KINDS, Event, EventKind
from naive_speculate.events.trace import Trace

JUDGED = (EventKind.ACCEPTED, EventKind.REJECTED, EventKind.DISCARDED)


class Rule(StrEnum):
    """How drafts were judged; what `VerifyStrategy` says, but for temperature 0, which is greedy under each of them."""

    GREEDY = "greedy_match"
    SAMPLING = "speculative_sampling"
    BLOCK = "block_verification"
    TYPICAL = "typical_acceptance"


@dataclass(frozen=True, slots=True)
class Case:
    """A token and its surroundings.

    Attributes:
        event: The token's event; for a proposed token its verdict, once there is one.
        step: All token events of the same step and sequence.
        rule: How the step's drafts were judged.
        settings: What the run was started with; empty where the trace does not say.
    """

    event: Event
    step: list[Event]
    rule: Rule
    settings: dict[str, Any]

    def first(self, kind: EventKind) -> Event | None:
        """The step's first event of a kind."""
        return next((e for e in self.step if e.kind == kind), None)

    @property
    def num_draft(self) -> int:
        """How many tokens the step drafted."""
        return sum(e.kind == EventKind.PROPOSED for e in self.step)


def case_of(trace: Trace, number: int) -> Case:
    """The case of one event.

    Args:
        trace: A run, whole or so far.
        number: The event's place in the trace, from 0.

    Raises:
        ValueError: If there is no such event, or it does not speak of a token.
    """
    if not 0 <= number < len(trace):
        raise ValueError(f"there is no event number {number}: the trace has {len(trace)}")
    event = trace[number]
    if event.kind not in TOKEN_KINDS:
        raise ValueError(f"event number {number} is {event.kind.value!r}, which speaks of no token")
    # A step's events stand together; walking out from the event keeps this cheap however long the trace.
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
    """What must stand beside a result that the target alone would not have given so, by what the run was started with; empty
    where nothing must."""
    temperature = setting(settings, "temperature")
    if not isinstance(temperature, int | float) or temperature <= 0:
        return ""
    name = setting(settings, "verify_strategy")
    if name == Rule.TYPICAL:
        return "Not the target's distribution: typical acceptance also keeps guesses that the target would write less often."
    if name == Rule.GREEDY:
        return (
            f"Not the target's distribution at temperature {temperature:g}: greedy match takes its likeliest token each time, "
            "as at temperature 0."
        )
    return ""


def _may_belong(event: Event, chosen: Event) -> bool:
    if event.row != chosen.row:  # sequences of a batch stand between one another
        return event.kind != EventKind.STARTED
    return event.kind in TOKEN_KINDS and event.step == chosen.step


def _rule(event: Event, settings: dict[str, Any]) -> Rule:
    if event.threshold is not None:
        return Rule.TYPICAL
    name = setting(settings, "verify_strategy")
    # The events decide where they can: a draw means sampling, a certain verdict without a draw means greedy.
    if name == Rule.GREEDY or setting(settings, "temperature") == 0:
        return Rule.GREEDY
    if event.uniform is None and event.accept_prob in (0, 1):
        return Rule.GREEDY
    return Rule(name) if name in list(Rule) else Rule.SAMPLING


def setting(settings: dict[str, Any], name: str) -> Any:
    """A setting by name, among the run's own or the sampling parameters inside them."""
    if name in settings:
        return settings[name]
    inner = settings.get("params")
    return inner.get(name) if isinstance(inner, dict) else None
