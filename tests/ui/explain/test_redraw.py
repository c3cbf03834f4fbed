"""What the browser needs to draw a draft again: bins that sum to 1, or a reason why there are none."""

import pytest

from naive_speculate import SamplingParams
from naive_speculate.events import EventKind
from tests.ui.handmade import step_of, token, top
from ui.explain.inspector import OBSTACLES, UNRECORDED, redraw_data

JUDGED = (EventKind.ACCEPTED, EventKind.REJECTED)
RECORDED = {
    "draft_prob": 0.6,
    "target_prob": 0.3,
    "accept_prob": 0.5,
    "uniform": 0.7,
    "expected_accept": 0.55,
    "draft_top": top((" king", 0.6), (" queen", 0.2)),
    "draft_top_target": [0.3, 0.4],
    "target_top": top((" queen", 0.4), (" king", 0.3), (" on", 0.1)),
    "target_top_draft": [0.2, 0.6, 0.05],
}


def rejected(**numbers):
    event = token(EventKind.REJECTED, " king", **(RECORDED | numbers))
    return step_of(token(EventKind.PROPOSED, " king"), event, token(EventKind.RESAMPLED, " queen"))


def test_the_bins_are_the_union_of_both_lists_and_other_closes_the_sums():
    (king, queen, on, other) = redraw_data(rejected(), 2)["bins"]
    assert king == ["␣king", 0.3, 0.6, 0.3]
    assert queen == ["␣queen", 0.4, 0.2, 0.2]
    assert on == ["␣on", 0.1, 0.05, 0.05]
    assert other == ["", pytest.approx(0.2), pytest.approx(0.15), 0]
    assert redraw_data(rejected(), 1) == redraw_data(rejected(), 2)  # the proposed token and its verdict are one draft
    assert redraw_data(rejected(), 3) is None


def test_of_a_real_run_every_judged_draft_has_bins_that_sum_to_1(small_decoder):
    trace = small_decoder.generate("Once upon a time", SamplingParams(max_tokens=40, seed=5), num_draft_tokens=4).trace
    judged = [(number, event) for number, event in enumerate(trace) if event.kind in JUDGED]
    assert len(judged) > 9
    for number, event in judged:
        bins = redraw_data(trace, number)["bins"]
        assert sum(p for _, p, _, _ in bins) == pytest.approx(1)
        assert sum(q for _, _, q, _ in bins) == pytest.approx(1)
        assert sum(shared for *_, shared in bins) == pytest.approx(event.expected_accept, abs=1e-4)
        assert all(0 <= shared <= min(p, q) + 1e-12 for _, p, q, shared in bins)
        assert len(bins) <= 10


def test_where_it_makes_no_sense_it_says_why():
    for rule, why in OBSTACLES.items():
        block, typical = rule == "block_verification", rule == "typical_acceptance"
        trace = rejected(accept_prob=0.0, uniform=0.7 if block else None, threshold=0.1 if typical else None)
        trace[0].settings["verify_strategy"] = rule.value
        assert redraw_data(trace, 2) == {"why": why}
    for name in ("expected_accept", "draft_top_target", "target_top_draft", "draft_top", "draft_prob"):
        assert redraw_data(rejected(**{name: None}), 2) == {"why": UNRECORDED}


def test_what_a_file_claims_that_cannot_be_is_not_rolled():
    other = {"draft_top": top((" king", 0.6), (" sat", 0.1)), "draft_top_target": [0.3, 7.0]}
    for nonsense in (other, {"expected_accept": 5.0}, {"target_top_draft": [-1.0, 0.6, 0.0]}):
        assert redraw_data(rejected(**nonsense), 2) == {"why": UNRECORDED}
