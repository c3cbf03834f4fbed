"""The figures that the server sends with each step are the run's metrics, whatever its events
claim."""

import pytest

from naive_speculate import SamplingParams
from naive_speculate.events import Event, EventKind
from naive_speculate.events.metrics import summarize
from naive_speculate.events.steps import steps
from naive_speculate.events.trace import Trace
from naive_speculate.tools.show.expected import expected_acceptance
from tests.ui.handmade import run
from ui.run.figures import MOST_DRAFTS, MOST_SECONDS, Figures


def by_step(trace: Trace) -> list[tuple[int, dict]]:
    """Each step's event number and figures, requested from the last step to the first."""
    figures = Figures()
    numbers = [n for n, event in enumerate(trace) if event.kind == EventKind.STEP]
    return [(number, figures.of(trace.events, number)) for number in reversed(numbers)][::-1]


@pytest.mark.parametrize("tree", [None, "3x2"])
def test_the_sums_up_to_each_step_are_the_metrics_of_the_events_up_to_it(small_decoder, tree):
    params = SamplingParams(max_tokens=24, seed=3)
    trace = small_decoder.generate("Once upon a time", params, tree=tree).trace
    found = by_step(trace)
    assert len(found) == trace.metrics.num_spec_steps
    for number, figures in found:
        events = trace.events[: number + 1]
        metrics, sums = summarize(events), figures["sums"]
        assert (sums["drafted"], sums["accepted"], sums["tokens"]) == (
            metrics.num_draft_tokens,
            metrics.num_accepted_draft_tokens,
            metrics.num_generated_tokens,
        )
        assert sums["judged"] - sums["accepted"] == metrics.num_rejected_draft_tokens
        rejected, discarded = 0, 0
        for step in steps(events):  # a tree's siblings count, too
            nodes = [node.kind for node in step.end.tree or ()]
            lost = [e for e in step.events if e.kind == EventKind.DISCARDED]
            cut = [e for e in lost if e.reason != "rejected"]
            plainly = any(e.kind == EventKind.REJECTED for e in step.events)
            rejected += nodes.count("rejected") if nodes else plainly
            discarded += nodes.count("discarded") + len(cut) if nodes else len(lost)
        assert sums["judged"] - sums["accepted"] + sums["siblings"] == rejected
        assert sums["discarded"] == discarded
        assert sums["seconds"] == pytest.approx(metrics.total_seconds, rel=1e-6)
        if expected := expected_acceptance(events):
            assert figures["luck"]["alpha"] == pytest.approx(expected.alpha)
    assert Figures().of(trace.events, 0) is None, "only a step has figures"


def test_numbers_that_no_step_can_have_are_bounded():
    forged = Event(
        EventKind.STEP, step=0, num_draft=10**9, num_accepted=10**9, verify_seconds=1e300
    )
    figures = Figures().of([forged], 0)
    assert figures["sums"]["drafted"] == figures["sums"]["accepted"] == MOST_DRAFTS
    assert figures["sums"]["seconds"] == MOST_SECONDS
    assert figures["luck"] is None


def test_luck_is_said_relative_to_its_deviation():
    trace = run([(4, 4)] * 3)
    for event in trace:
        if event.kind == EventKind.PROPOSED:
            event.expected_accept = 0.5
    *_, (_, figures) = by_step(trace)
    assert figures["luck"]["sentence"].endswith("observed 1.00, much good luck")
    assert figures["luck"]["note"] == "Expected for this draft: 0.50 ± 0.14."
