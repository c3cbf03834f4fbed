"""Words for what is so: no verdict before its time, no unsaid loss."""

import pytest

from naive_speculate.events import EventKind
from tests.ui.handmade import step_of, token, top
from ui.explain.case import warning
from ui.explain.inspector import distributions, explain
from ui.run.settings import checked

PROPOSED, REJECTED = EventKind.PROPOSED, EventKind.REJECTED


@pytest.mark.parametrize(("p", "u"), [(1e-9, 0.996), (0.00004, 0.9)])
def test_a_hopeless_draft_is_said_without_stumbling(p, u):
    numbers = {"draft_prob": 0.7, "target_prob": p, "accept_prob": p / 0.7, "uniform": u}
    said = " ".join(explain(step_of(token(REJECTED, " king", **numbers)), 1).sentences)
    assert "p/q, which is under 0.0001" in said
    assert f"The draw {u} was not below that: rejected." in said


def test_a_draft_that_playback_has_not_seen_judged_hides_what_the_target_thinks():
    numbers = {"draft_prob": 0.55, "target_prob": 0.12, "target_entropy": 2.0, "draft_entropy": 1.0}
    tops = {"draft_top": top((" king", 0.55), ("the", 0.1)), "target_top": top((" queen", 0.31), (" king", 0.12))}
    trace = step_of(token(PROPOSED, " king", **numbers, **tops))
    shown = explain(trace, 1)
    assert not any("0.12" in value for _, value in shown.details)
    assert "How sure was the target" not in " ".join(shown.sentences)
    told = distributions(trace, 1)
    assert told["series"] == ["draft"]
    assert not any("queen" in entry["text"] for entry in told["tokens"])


def test_what_changes_the_target_s_distribution_is_said_with_the_result():
    for lossless in (
        {},
        {"verify_strategy": "typical_acceptance", "temperature": 0.0},
        {"verify_strategy": "block_verification"},
    ):
        assert warning({"verify_strategy": "speculative_sampling", "temperature": 0.7, **lossless}) == ""
    for lossy in ("typical_acceptance", "greedy_match"):
        assert "Not the target's distribution" in warning({"verify_strategy": lossy, "temperature": 0.7})
    assert warning({"verify_strategy": "typical_acceptance", "temperature": "hot"}) == warning({}) == ""


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_empty_field_is_called_empty(nothing):
    with pytest.raises(ValueError, match="max_tokens must be a whole number, and is empty"):
        checked({"max_tokens": nothing})
