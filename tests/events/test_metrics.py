"""A run's figures: the same by whichever way they are taken, and cheap however long the run is."""

import sys
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from naive_speculate.events import Event, EventKind
from naive_speculate.events.metrics import Summary, summarize


def steps(windows: list[tuple[int, int]]) -> list[Event]:
    return [Event(EventKind.STEP, num_draft=drafted, num_accepted=accepted) for drafted, accepted in windows]


def lines_run(work: Callable[[], Any], at_most: int) -> int:
    """How many lines of Python some work takes; it is cut off where it takes more than may be."""
    count = 0

    def look(frame, kind, _):
        nonlocal count
        count += kind == "line"
        assert count <= at_most, f"more than {at_most} lines"
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_a_long_run_with_wide_windows_costs_a_few_lines_an_event():
    few = steps([(1024, number % 1025) for number in range(1000)])
    assert lines_run(lambda: summarize(few), at_most=60_000) > 0
    many = steps([(1024, number % 1025) for number in range(20_000)])
    m = summarize(many)
    assert (m.num_spec_steps, sum(m.acceptance_histogram)) == (20_000, 20_000)
    assert len(m.acceptance_rate_per_position) == 1024


def test_a_summary_states_the_figures_at_any_time_without_looking_back():
    summary, told = Summary(), []
    events = steps([(4, number % 5) for number in range(1000)])

    def work() -> None:
        for event in events:
            summary.add(event)
            told.append(summary.metrics.num_accepted_draft_tokens)

    lines_run(work, at_most=200_000)
    assert told == [sum(event.num_accepted for event in events[: number + 1]) for number in range(1000)]


WINDOWS = st.lists(st.integers(0, 6).flatmap(lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted))))


@settings(deadline=None, max_examples=40)
@given(WINDOWS)
def test_the_rate_of_a_place_is_kept_among_those_that_reached_it(windows):
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


@settings(deadline=None, max_examples=40)
@given(WINDOWS)
def test_later_events_do_not_change_figures_that_were_reported_before(windows):
    summary, events = Summary(), steps(windows)
    told = []
    for event in events:
        summary.add(event)
        told.append(summary.metrics)
    assert told == [summarize(events[: number + 1]) for number in range(len(events))]
