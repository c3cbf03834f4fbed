"""The steps of a run: its events in groups, those of one step and row together."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from naive_speculate.events.event import (
    OUTPUT_KINDS,
    TARGET_KINDS,
    TOKEN_KINDS,
    VERDICT_KINDS,
    Event,
    EventKind,
)

_KINDS = TOKEN_KINDS | {EventKind.STEP}


@dataclass(frozen=True, slots=True)
class Step:
    """The events of one step of one row, in order, so far as the run has them.

    Attributes:
        number: From 0.
        events: Those of its tokens, and the one that ends it.
        before: Number of tokens that the row had generated before it.
    """

    number: int
    events: list[Event]
    before: int = 0

    @property
    def drafts(self) -> list[Event]:
        """The proposals, by index; of a tree, those of the window."""
        return [event for event in self.events if event.kind == EventKind.PROPOSED]

    @property
    def verdicts(self) -> list[Event]:
        """The verdicts on draft tokens."""
        return [event for event in self.events if event.kind in VERDICT_KINDS]

    def verdict(self, index: int | None) -> Event | None:
        """The verdict on the draft token of this index; None before it is judged."""
        return next((event for event in self.verdicts if event.index == index), None)

    @property
    def num_accepted(self) -> int:
        return sum(event.kind == EventKind.ACCEPTED for event in self.events)

    @property
    def rejected(self) -> Event | None:
        """The verdict of the rejected draft token."""
        return next((event for event in self.events if event.kind == EventKind.REJECTED), None)

    @property
    def added(self) -> Event | None:
        """The target's own token; None if the text ended before it."""
        return next((event for event in self.events if event.kind in TARGET_KINDS), None)

    @property
    def end(self) -> Event | None:
        """The event with its counts and times; None before."""
        return next((event for event in self.events if event.kind == EventKind.STEP), None)


def steps(events: Iterable[Event]) -> Iterator[Step]:
    """The steps of a run, in the order in which they began."""
    groups: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event.kind in _KINDS:
            groups[event.row, event.step or 0].append(event)
    generated: dict[int, int] = defaultdict(int)  # by row
    for (row, number), group in groups.items():
        yield Step(number, group, generated[row])
        generated[row] += sum(event.kind in OUTPUT_KINDS for event in group)


def step_at(events: Sequence[Event], number: int) -> Step:
    """The step of event `number` of a run, without its `before`. The events of a step are
    adjacent but for those of other rows, so this takes the same time for any length of a run."""
    chosen, first, last = events[number], number, number + 1
    while first > 0 and _adjacent(events[first - 1], chosen):
        first -= 1
    while last < len(events) and _adjacent(events[last], chosen):
        last += 1
    group = [event for event in events[first:last] if event.row == chosen.row]
    return Step(chosen.step or 0, group)


def _adjacent(event: Event, chosen: Event) -> bool:
    if event.row != chosen.row:
        return event.kind != EventKind.STARTED
    return event.kind in _KINDS and event.step == chosen.step
