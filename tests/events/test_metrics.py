"""A run's figures: the same by whichever way they are taken, and cheap however long the run is."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from naive_speculate.events import Event, EventKind
from naive_speculate.events.metrics import Summary, summarize


def steps(windows: list[tuple[int, int]]) -> list[Event]:
    return [Event(EventKind.STEP, num_draft=drafted, num_accepted=accepted) for drafted, accepted in windows]


@contextmanager
def at_most(lines: int) -> Iterator[None]:
    """A block that may run so many lines of Python; it is cut off where it takes more."""
    count = 0

    def look(frame, kind, _):
        nonlocal count
        count += kind == "line"
        assert count <= lines, f"more than {lines} lines"
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield
    finally:
        sys.settrace(before)


def test_a_long_run_with_wide_windows_costs_a_few_lines_an_event_and_figures_at_any_time_no_look_back():
    few, many = (steps([(1024, number % 1025) for number in range(count)]) for count in (1000, 20_000))
    with at_most(60_000):
        summarize(few)
    m = summarize(many)
    assert (m.num_spec_steps, sum(m.acceptance_histogram)) == (20_000, 20_000)
    assert len(m.acceptance_rate_per_position) == 1024
    summary, told, events = Summary(), [], steps([(4, number % 5) for number in range(1000)])
    with at_most(200_000):
        for event in events:
            summary.add(event)
            told.append(summary.metrics.num_accepted_draft_tokens)
    assert told == [*accumulate(event.num_accepted for event in events)]


WINDOWS = st.lists(st.integers(0, 6).flatmap(lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted))))


@settings(deadline=None, max_examples=40)
@given(WINDOWS)
def test_the_rate_of_a_place_is_kept_among_those_that_reached_it_at_any_time_of_the_run(windows):
    m = summarize(steps(windows))
    longest = max((drafted for drafted, _ in windows), default=0)
    expected = []
    for place in range(longest):
        reached = [accepted for drafted, accepted in windows if drafted > place and accepted >= place]
        expected.append(sum(accepted > place for accepted in reached) / len(reached) if reached else None)
    assert m.acceptance_rate_per_position == expected
    windows_drafted = [accepted for drafted, accepted in windows if drafted]
    assert m.unconditional_acceptance_rate_per_position == [
        sum(accepted > place for accepted in windows_drafted) / len(windows_drafted) for place in range(longest)
    ]
    assert m.acceptance_histogram == [sum(a == count for _, a in windows) for count in range(longest + 1 if windows else 0)]
    summary, told = Summary(), []
    for event in (events := steps(windows)):
        summary.add(event)
        told.append(summary.metrics)
    assert told == [summarize(events[: number + 1]) for number in range(len(events))], "later events change nothing before"
