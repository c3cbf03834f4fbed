"""What the other strategies would have made of a run: the steps' events as a view."""

import re

import pytest
from markupsafe import escape

from naive_speculate import Event, EventKind, SamplingParams, Trace
from naive_speculate.theory import expected_accepted
from tests.ui.handmade import run
from ui.run.strategies import GREEDY, NO_DRAFTS, NOT_RECORDED, compared_steps, markup


@pytest.mark.parametrize("strategy", ["speculative_sampling", "block_verification", "typical_acceptance"])
def test_the_view_states_the_rounds_as_the_events_do(small_decoder, strategy):
    params = SamplingParams(max_tokens=40, temperature=1.0, seed=2)
    trace = small_decoder.generate("Once upon a time", params, num_draft_tokens=4, verify_strategy=strategy).trace
    steps = [event for event in trace if event.kind == EventKind.STEP and event.num_draft]
    rounds = compared_steps(trace)
    assert [one.number for one in rounds] == [step.step for step in steps]
    for one, step in zip(rounds, steps, strict=True):
        assert one.accepted == step.others | {strategy: step.num_accepted}
        assert one.distances == step.typical_distances
        assert len(one.drafts) == step.num_draft
    shown = markup(trace)
    for name in rounds[0].accepted:
        told = [int(kept) for kept in re.findall(rf'data-strategy="{name}" data-kept="(\d+)"', shown)]
        assert told == [one.accepted[name] for one in rounds]
        assert f"{sum(told)} of {sum(len(one.drafts) for one in rounds)} <" in shown
    drafts = [event for event in trace if event.kind == EventKind.PROPOSED]
    windows = [[e.target_prob / e.draft_prob for e in drafts if e.step == one.number] for one in rounds]
    for name, block in (("speculative_sampling", False), ("block_verification", True)):
        expected = sum(expected_accepted(window, block=block) for window in windows)
        assert re.search(rf'data-strategy="{name}"><th.*?>{expected:.1f} of ', shown)
    for one in rounds:
        assert one.expected["block_verification"] >= one.expected["speculative_sampling"] - 1e-12
        assert one.expected["greedy_match"] == one.accepted["greedy_match"]
    own = re.search(rf'data-strategy="{strategy}"><th.*?([\d.]+) tokens per target pass', shown)[1]
    assert own == f"{trace.metrics.mean_acceptance_length:.2f}"  # the figure of the page's tile
    parting = sum(one.differs for one in rounds)
    assert parting
    assert f"differ in {parting} of" in shown
    assert shown.count("data-same") == len(rounds) - parting


def test_kept_is_counted_over_the_rounds_that_state_it_and_what_is_left_out_or_not_recorded_is_said(monkeypatch):
    nothing = {
        NOT_RECORDED: [run([(3, 1)])],
        NO_DRAFTS: [run([(0, 0), (0, 0)]), Trace()],
        escape(GREEDY): [run([(3, 1)], temperature=0), run([(3, 1)], verify_strategy="greedy_match")],
    }
    for why, traces in nothing.items():
        assert all(why in markup(trace) for trace in traces)
    monkeypatch.setattr("ui.run.strategies.MOST_STEPS", 1)
    trace = run([(2, 1), (3, 3)])
    steps = [event for event in trace if event.kind == EventKind.STEP]
    steps[0].others, steps[1].others = {"block_verification": 2}, {}
    shown = markup(trace)
    for said in (">2 of 2 <", ">4 of 5 <", "1 later step is not shown."):
        assert said in shown


def test_what_a_foreign_trace_claims_is_only_text_and_within_its_drafts():
    trace = run([(2, 1)])
    for event in trace:
        if event.kind == EventKind.STEP:
            event.others = {"block_verification": 900, "<b>": 1}
            event.typical_distances = [0.5] * 9
        if event.text:
            event.text = "<img src=x>"
    shown = markup(trace)
    assert "<img" not in shown
    assert "<b>" not in shown
    assert compared_steps(trace)[0].accepted == {"speculative_sampling": 1, "block_verification": 2}
    assert compared_steps(trace)[0].distances == [0.5, 0.5]
    trace.events[0].settings["verify_strategy"] = "<i>"
    assert NOT_RECORDED in markup(trace)
    assert NOT_RECORDED in markup(Trace([Event(EventKind.STARTED, settings={}), *trace.events[1:]]))
