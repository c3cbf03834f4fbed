"""What the inspector says of a token: the right reason, in the terms of the rule that judged it, with its own numbers."""

import json

import pytest

from naive_speculate.events import Event, EventKind
from naive_speculate.events.trace import Trace
from tests.ui.handmade import run, step_of, token, top
from ui.explain.case import case_of
from ui.explain.inspector import NO_DISTRIBUTIONS, distributions, explain, to_json
from ui.explain.why import NO_NUMBERS

ACCEPTED, REJECTED, DISCARDED = EventKind.ACCEPTED, EventKind.REJECTED, EventKind.DISCARDED
PROPOSED, RESAMPLED, BONUS = EventKind.PROPOSED, EventKind.RESAMPLED, EventKind.BONUS

KING = {
    "draft_prob": 0.55,
    "target_prob": 0.12,
    "accept_prob": 0.12 / 0.55,
    "draft_top": top((" king", 0.55), (" queen", 0.2), ("the", 0.05)),
    "target_top": top((" queen", 0.31), (" king", 0.12), ("the", 0.1)),
    "draft_entropy": 1.2,
    "target_entropy": 2.0,
}
QUEEN = {"draft_prob": 0.2, "target_prob": 0.31, "residual_top": top((" queen", 0.48), ("the", 0.22))}


def refused(**changes) -> Trace:
    return step_of(
        token(PROPOSED, " king", 0),
        token(PROPOSED, " sat", 1),
        token(REJECTED, " king", 0, **{**KING, "uniform": 0.64, **changes}),
        token(DISCARDED, " sat", 1, reason="rejected"),
        token(RESAMPLED, " queen", 0, **QUEEN),
    )


def said(trace: Trace, kind: EventKind) -> str:
    number = next(i for i, event in enumerate(trace) if event.kind == kind)
    return " ".join(explain(trace, number).sentences)


def test_a_rejected_draft_is_told_with_both_probabilities_the_draw_and_what_came_instead():
    words = said(refused(), REJECTED)
    assert "The draft gave “␣king” probability 0.55, the target only 0.12" in words
    assert "0.12 ÷ 0.55 = 0.218" in words
    assert "The draw 0.64 was not below 0.218: rejected." in words
    assert "“␣queen” was drawn instead; the target gave it 0.31, the draft 0.2." in words


def test_an_overrated_draft_may_be_kept_by_luck_of_the_draw():
    words = said(step_of(token(PROPOSED, " king"), token(ACCEPTED, " king", **KING, uniform=0.1)), ACCEPTED)
    assert "The draw 0.1 was below 0.218: accepted." in words


def test_a_draft_that_is_not_overrated_is_always_kept():
    numbers = {"draft_prob": 0.2, "target_prob": 0.31, "accept_prob": 1.0, "uniform": 0.97}
    words = said(step_of(token(PROPOSED, " queen"), token(ACCEPTED, " queen", **numbers)), ACCEPTED)
    assert "the target 0.31 – at least as much, so it is accepted for any draw: min(1, p/q) = 1" in words


def test_a_close_call_is_shown_with_enough_digits_to_see_who_won():
    assert "The draw 0.21819 was not below 0.21818: rejected." in said(refused(uniform=0.218190), REJECTED)


def test_a_replacement_is_told_to_come_from_the_residual():
    words = said(refused(), RESAMPLED)
    assert "replaces the rejected “␣king”" in words
    assert "max(0, p − q)" in words
    assert "in the residual it had 0.48" in words


def test_a_discarded_draft_names_what_it_followed():
    words = said(refused(), DISCARDED)
    assert "“␣sat” was drafted after the rejected “␣king”." in words
    assert "without being judged" in words


@pytest.mark.parametrize(("reason", "words"), [("stop", "end of the text"), ("length", "the limit of 9 tokens")])
def test_a_token_cut_at_the_end_says_what_cut_it(reason, words):
    trace = step_of(token(PROPOSED, " sat"), token(DISCARDED, " sat", reason=reason), max_tokens=9)
    assert words in said(trace, DISCARDED)


@pytest.mark.parametrize("settings", [{"verify_strategy": "greedy_match"}, {"temperature": 0.0}])
def test_greedy_is_told_as_a_comparison_with_the_most_probable_token(settings):
    numbers = {**KING, "accept_prob": 0.0}
    trace = step_of(
        token(PROPOSED, " king"), token(REJECTED, " king", **numbers), token(RESAMPLED, " queen", **QUEEN), **settings
    )
    words = said(trace, REJECTED)
    assert "most probable token here is “␣queen” (0.31), while “␣king” has 0.12: rejected" in words
    assert "draw" not in words
    assert "It is the target's most probable token (0.31)." in said(trace, RESAMPLED)


def test_greedy_keeps_the_same_token():
    numbers = {"target_prob": 0.31, "accept_prob": 1.0, "draft_prob": 0.5}
    trace = step_of(token(ACCEPTED, " queen", **numbers), verify_strategy="greedy_match")
    assert "most probable token here is the same (0.31): accepted" in said(trace, ACCEPTED)


def block(*judged: tuple[EventKind, float, float]) -> Trace:
    words = [" king", " sat", " on", " a"]
    events = [
        token(kind, words[i], i, accept_prob=h, uniform=u, draft_prob=0.5, target_prob=0.4)
        for i, (kind, h, u) in enumerate(judged)
    ]
    return step_of(*events, verify_strategy="block_verification")


def test_block_verification_keeps_a_place_that_failed_for_a_later_one_that_passed():
    words = said(block((ACCEPTED, 0.6, 0.9), (ACCEPTED, 0.5, 0.1), (REJECTED, 0.3, 0.8)), ACCEPTED)
    assert "h = 0.6" in words
    assert "it does not pass by itself, but position 2 does" in words


def test_block_verification_rejects_after_the_last_place_that_passed():
    trace = block((ACCEPTED, 0.6, 0.2), (REJECTED, 0.5, 0.7), (DISCARDED, 0.3, 0.8))
    assert "it does not pass, and the last position that did is 1" in said(trace, REJECTED)
    assert "discarded, as all draft tokens after the rejected one" in said(trace, DISCARDED)
    assert "no position did" in said(block((REJECTED, 0.5, 0.7)), REJECTED)


def test_typical_acceptance_is_told_by_its_threshold_and_marked_lossy():
    numbers = {"target_prob": 0.12, "draft_prob": 0.55, "target_entropy": 2.0}
    kept = step_of(token(ACCEPTED, " king", **numbers, accept_prob=1.0, threshold=0.09), verify_strategy="typical_acceptance")
    words = said(kept, ACCEPTED)
    assert "The target gives “␣king” probability 0.12, above the threshold 0.09: accepted." in words
    assert "7.4 tokens of equal probability" in words
    assert "lossy" in words
    refused_ = step_of(
        token(REJECTED, " king", **numbers, accept_prob=0.0, threshold=0.2), verify_strategy="typical_acceptance"
    )
    assert "not above the threshold 0.2: rejected" in said(refused_, REJECTED)
    assert "lossy" in said(refused_, REJECTED)


def test_a_bonus_token_is_free_after_kept_drafts_and_plain_without_any():
    events = [token(PROPOSED, " king"), token(ACCEPTED, " king", **KING, uniform=0.1)]
    words = said(step_of(*events, token(BONUS, " sat", 1, target_prob=0.4)), BONUS)
    assert "The one draft token was accepted." in words
    assert "this token is free" in words
    assert "where it had probability 0.4" in words
    words = said(step_of(token(BONUS, " sat", 0, target_prob=0.4)), BONUS)
    assert "plain decoding" in words


@pytest.mark.parametrize("drafter", ["suffix", "prompt_lookup"])
def test_a_copied_guess_is_told_as_certain(drafter):
    numbers = {"draft_prob": 1.0, "target_prob": 0.3, "accept_prob": 0.3, "uniform": 0.5}
    words = said(step_of(token(REJECTED, " king", **numbers), drafter=drafter), REJECTED)
    assert "was copied from similar earlier text" in words
    assert "q = 1" in words
    assert "draft model" not in words


@pytest.mark.parametrize(("forced", "why"), [("token", "allows no other token"), ("text", "requires the text")])
def test_a_forced_draft_is_told_as_the_guide_s(forced, why):
    numbers = {"draft_prob": 1.0, "target_prob": 0.3, "accept_prob": 0.3, "uniform": 0.5, "forced": forced}
    for drafter in ("suffix", "head"):
        words = said(step_of(token(REJECTED, " king", **numbers), drafter=drafter), REJECTED)
        assert f"was forced: the guide {why}" in words
        assert "A forced token counts as certain (q = 1)" in words


@pytest.mark.parametrize(("source", "words"), [(3, "was copied from similar earlier text"), (None, "The draft head proposed")])
def test_of_suffix_and_head_the_one_that_drafted_is_named(source, words):
    drafted = token(PROPOSED, " king", draft_prob=1.0, copied_from=source)
    assert words in said(step_of(drafted, drafter="suffix+head"), PROPOSED)
    judged = step_of(drafted, token(ACCEPTED, " king", **KING, uniform=0.1), drafter="suffix+head")
    assert ("was copied from similar earlier text" in said(judged, ACCEPTED)) == (source is not None)


@pytest.mark.parametrize(("drafter", "who"), [("model", "draft model"), ("head", "draft head"), ("mtp", "MTP layer")])
def test_who_guessed_is_said(drafter, who):
    words = said(step_of(token(PROPOSED, " king", draft_prob=0.6), drafter=drafter), PROPOSED)
    assert f"The {who} proposed" in words


def test_a_proposal_is_explained_by_its_verdict_and_waits_while_there_is_none():
    assert case_of(refused(), 1).event.kind == REJECTED
    waiting = Trace(refused().events[:3])
    assert case_of(waiting, 1).event.kind == PROPOSED
    assert "has not judged it yet" in " ".join(explain(waiting, 1).sentences)


def test_without_recorded_numbers_the_words_say_so():
    trace = step_of(token(PROPOSED, " king"), token(REJECTED, " king"))
    assert NO_NUMBERS in said(trace, REJECTED)


def test_details_are_the_events_own_numbers():
    details = dict(explain(refused(), 3).details)
    assert details["target probability p"] == "0.12"
    assert details["acceptance probability"] == f"{0.12 / 0.55:.6g}"
    assert details["draw u"] == "0.64"
    assert details["target entropy, nats"] == "2"
    assert details["step"] == "1"


@pytest.mark.parametrize("number", [-1, 0, 6, 99])
def test_an_event_that_is_no_token_is_refused(number):
    with pytest.raises(ValueError, match="event"):
        explain(refused(), number)


def test_another_sequences_events_of_a_batch_do_not_mix_in():
    trace = refused()
    for event in list(trace):
        if event.kind == PROPOSED:
            trace.events.insert(2, Event(PROPOSED, row=1, step=0, index=0, text="other"))
    number = next(i for i, event in enumerate(trace) if event.kind == DISCARDED)
    assert "the rejected “␣king”" in " ".join(explain(trace, number).sentences)


def test_every_token_of_a_long_run_can_be_explained():
    trace = run([(5, n % 6) for n in range(50)] + [(0, 0)])
    numbers = [i for i, event in enumerate(trace) if event.token_id is not None]
    assert all(explain(trace, number).sentences and to_json(trace, number) for number in numbers)


HOSTILE = '<img src=x onerror="alert(1)">&amp;\u202e'


def test_model_text_can_be_no_markup():
    told = to_json(step_of(token(REJECTED, HOSTILE, **KING, uniform=0.5)), 1)
    assert "<" not in told
    assert "\\u003cimg" in told
    assert "\u202e" not in json.loads(told)["words"]["sentences"][0][0][0]


def labels(told: dict) -> list[str]:
    return [entry["text"] for entry in told["tokens"]]


def chosen(told: dict) -> list[str]:
    return [entry["text"] for entry in told["tokens"] if entry["chosen"]]


def test_model_text_is_made_visible_in_the_chart():
    numbers = {**KING, "target_top": top((HOSTILE, 0.31), ("\n", 0.2), (" ", 0.1), ("", 0.05))}
    trace = step_of(token(REJECTED, " king", **numbers))
    told = distributions(trace, 1)
    assert {"⏎", "␣", "∅"} <= set(labels(told))
    assert "\u202e" not in str(told)
    assert "<" not in to_json(trace, 1)


def test_distributions_stand_side_by_side_with_the_chosen_token_marked():
    told = distributions(refused(), 3)
    assert told["series"] == ["draft", "target"]
    assert labels(told) == ["␣queen", "␣king", "the"]
    assert chosen(told) == ["␣king"]
    assert [entry["probs"] for entry in told["tokens"]] == [[0.2, 0.31], [0.55, 0.12], [0.05, 0.1]]
    assert distributions(refused(), 5)["series"] == ["draft", "target", "residual"]


def test_a_token_outside_the_top_lists_is_shown_by_its_own_probability():
    numbers = {**KING, "target_top": top((" queen", 0.5)), "draft_top": top(("the", 0.9)), "target_prob": 0.001}
    told = distributions(step_of(token(REJECTED, " king", **numbers)), 1)
    assert labels(told)[1] == chosen(told)[0] == "␣king"
    assert told["tokens"][1]["probs"][1] == 0.001
    assert told["tokens"][2]["probs"][1] is None  # not recorded, which is not the same as zero


def test_tokens_whose_bars_nobody_could_see_take_no_room_but_the_chosen_one_does():
    unseen = {**KING, "target_top": top((" queen", 0.9999), ("the", 0.00009)), "draft_top": None, "target_prob": 0.00002}
    told = distributions(step_of(token(REJECTED, " king", **unseen)), 1)
    assert labels(told) == ["␣queen", "␣king"]
    assert chosen(told) == ["␣king"]


def test_without_distributions_the_chart_says_so():
    nothing = {"takeaway": NO_DISTRIBUTIONS, "series": [], "tokens": [], "rest": []}
    assert distributions(step_of(token(BONUS, " sat")), 1) == nothing


def test_the_rows_of_a_distribution_and_what_they_leave_sum_to_1():
    told = distributions(refused(), 3)
    for column in range(2):
        assert sum(entry["probs"][column] for entry in told["tokens"]) + told["rest"][column] == pytest.approx(1)
    unsure = {**KING, "draft_top": top((" king", 0.55)), "target_top": top((" queen", 0.31)), "target_prob": 0.12}
    told = distributions(step_of(token(REJECTED, " king", **unsure)), 1)
    assert told["rest"] == pytest.approx([0.45, 0.57])
    assert told["takeaway"].endswith("tokens marked – are part of “all others”")
    crossed = {**unsure, "draft_top_target": [0.12], "target_top_draft": [0.2]}
    told = distributions(step_of(token(REJECTED, " king", **crossed)), 1)
    assert [entry["probs"] for entry in told["tokens"]] == [[0.2, 0.31], [0.55, 0.12]]
    assert told["rest"] == pytest.approx([0.25, 0.57])
    sure = {**KING, "draft_prob": 1.0, "target_prob": 1.0, "draft_top": top((" king", 1.0)), "target_top": top((" king", 1.0))}
    assert distributions(step_of(token(ACCEPTED, " king", **sure)), 1)["rest"] == []
