"""A run's events by step."""

from dataclasses import replace
from itertools import zip_longest

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.events import TOKEN_KINDS, EventKind
from naive_speculate.events.steps import step_at, steps


def test_each_token_is_in_one_step_and_rows_that_alternate_stay_apart():
    decoder, params = SpeculativeDecoder(load_pair()), SamplingParams(max_tokens=12, seed=3)
    results = decoder.generate(["Once upon", "The old king"], params, num_draft_tokens=3)
    runs = [[replace(event, row=row) for event in run.trace] for row, run in enumerate(results)]
    events = [event for pair in zip_longest(*runs) for event in pair if event is not None]
    groups = list(steps(events))
    assert sum(len(group.events) for group in groups) == sum(
        event.kind in TOKEN_KINDS | {EventKind.STEP} for event in events
    )
    for group in groups:
        assert group.end is group.events[-1]
        assert {(event.row, event.step) for event in group.events} == {
            (group.end.row, group.number)
        }
        assert (len(group.drafts), group.num_accepted) == (
            group.end.num_draft,
            group.end.num_accepted,
        )
        for event in group.events:
            assert step_at(events, events.index(event)).events == group.events
    for row in (0, 1):
        generated = [group.before for group in groups if group.end.row == row]
        assert (generated[0], generated) == (0, sorted(set(generated)))
