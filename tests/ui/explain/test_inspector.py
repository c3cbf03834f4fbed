"""What the inspector says of a token: the right reason, in the terms of its rule, with its own
numbers; also for nonsense."""

import json
import random

import pytest

from naive_speculate.events import TOKEN_KINDS, Event, EventKind, TokenProb
from naive_speculate.events.trace import Trace
from tests.ui.handmade import run, step_of, token, top
from ui.explain.inspector import (
    NO_DISTRIBUTIONS,
    distributions,
    to_json,
    words,
)
from ui.explain.why import NO_NUMBERS, case_of, warning

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
QUEEN = {
    "draft_prob": 0.2,
    "target_prob": 0.31,
    "residual_top": top((" queen", 0.48), ("the", 0.22)),
}


def refused(**changes) -> Trace:
    return step_of(
        token(PROPOSED, " king", 0),
        token(PROPOSED, " sat", 1),
        token(REJECTED, " king", 0, **{**KING, "uniform": 0.64, **changes}),
        token(DISCARDED, " sat", 1, reason="rejected"),
        token(RESAMPLED, " queen", 0, **QUEEN),
    )


def told(trace: Trace, number: int) -> str:
    """The explanation of an event, in a line."""
    return " ".join(
        "".join(text for text, _ in sentence) for sentence in words(trace, number)["sentences"]
    )


def said(trace: Trace, kind: EventKind) -> str:
    return told(trace, next(i for i, event in enumerate(trace) if event.kind == kind))


def block(*judged: tuple[EventKind, float, float]) -> Trace:
    words = [" king", " sat", " on", " a"]
    events = [
        token(kind, words[i], i, accept_prob=h, uniform=u, draft_prob=0.5, target_prob=0.4)
        for i, (kind, h, u) in enumerate(judged)
    ]
    return step_of(*events, verify_strategy="block_verification")


def one(kind: EventKind = REJECTED, settings: dict | None = None, **numbers) -> Trace:
    """A step with a token and nothing else."""
    return step_of(token(kind, " king", **numbers), **settings or {})


def replaced(**settings) -> Trace:
    return step_of(
        token(REJECTED, " king", **KING | {"accept_prob": 0.0}),
        token(RESAMPLED, " queen", **QUEEN),
        **settings,
    )


KEPT = {"draft_prob": 0.2, "target_prob": 0.31, "accept_prob": 1.0, "uniform": 0.97}
CERTAIN = {"draft_prob": 1.0, "target_prob": 0.3, "accept_prob": 0.3, "uniform": 0.5}
TYPICAL = {"target_prob": 0.12, "draft_prob": 0.55, "target_entropy": 2.0}
LOSSY = {"verify_strategy": "typical_acceptance"}
GREEDY = {"verify_strategy": "greedy_match"}
AFTER = token(BONUS, " sat", 1, target_prob=0.4)
BONUS_AFTER = step_of(
    token(PROPOSED, " king"), token(ACCEPTED, " king", **KING, uniform=0.1), AFTER
)
FAILED_FIRST = block((ACCEPTED, 0.6, 0.9), (ACCEPTED, 0.5, 0.1), (REJECTED, 0.3, 0.8))
REJECTS = block((ACCEPTED, 0.6, 0.2), (REJECTED, 0.5, 0.7), (DISCARDED, 0.3, 0.8))
INSTEAD = "“␣queen” was drawn instead; the target gave it 0.31, the draft 0.2."
# the trace, the kind of its event that is explained, and what is said of it, among other words
SAID = [
    (refused(), REJECTED, "The draft gave “␣king” probability 0.55, the target only 0.12"),
    (refused(), REJECTED, "0.12 ÷ 0.55 = 0.218"),
    (refused(), REJECTED, "The draw 0.64 was not below 0.218: rejected."),
    (refused(), REJECTED, INSTEAD),
    # by luck of the draw
    (one(ACCEPTED, **KING, uniform=0.1), ACCEPTED, "The draw 0.1 was below 0.218: accepted."),
    (one(ACCEPTED, **KEPT), ACCEPTED,
     "the target 0.31 – at least as much, so it is accepted for any draw: min(1, p/q) = 1"),
    # digits enough to see who won
    (refused(uniform=0.218190), REJECTED, "The draw 0.21819 was not below 0.21818: rejected."),
    (refused(), RESAMPLED, "replaces the rejected “␣king”"),
    (refused(), RESAMPLED, "max(0, p − q)"),
    (refused(), RESAMPLED, "in the residual it had 0.48"),
    (refused(), DISCARDED, "“␣sat” was drafted after the rejected “␣king”."),
    (refused(), DISCARDED, "without being judged"),
    (one(DISCARDED, reason="stop"), DISCARDED, "end of the text"),
    (one(DISCARDED, {"max_tokens": 9}, reason="length"), DISCARDED, "the limit of 9 tokens"),
    *((replaced(**way), REJECTED,
       "most probable token here is “␣queen” (0.31), while “␣king” has 0.12: rejected")
      for way in (GREEDY, {"temperature": 0.0})),
    *((replaced(**way), RESAMPLED, "It is the target's most probable token (0.31).")
      for way in (GREEDY, {"temperature": 0.0})),
    (one(ACCEPTED, GREEDY, target_prob=0.31, accept_prob=1.0), ACCEPTED,
     "token here is the same (0.31): accepted"),
    (FAILED_FIRST, ACCEPTED, "h = 0.6"),
    (FAILED_FIRST, ACCEPTED, "it does not pass by itself, but position 2 does"),
    (REJECTS, REJECTED, "it does not pass, and the last position that did is 1"),
    (REJECTS, DISCARDED, "discarded, as all draft tokens after the rejected one"),
    (block((REJECTED, 0.5, 0.7)), REJECTED, "no position did"),
    (one(ACCEPTED, LOSSY, **TYPICAL, threshold=0.09), ACCEPTED,
     "0.12, above the threshold 0.09: accepted."),
    (one(ACCEPTED, LOSSY, **TYPICAL, threshold=0.09), ACCEPTED, "7.4 tokens of equal probability"),
    (one(ACCEPTED, LOSSY, **TYPICAL, threshold=0.09), ACCEPTED, "lossy"),
    (one(REJECTED, LOSSY, **TYPICAL, threshold=0.2), REJECTED,
     "not above the threshold 0.2: rejected"),
    (one(REJECTED, LOSSY, **TYPICAL, threshold=0.2), REJECTED, "lossy"),
    (BONUS_AFTER, BONUS, "The one draft token was accepted."),
    (BONUS_AFTER, BONUS, "this token is free"),
    (BONUS_AFTER, BONUS, "where it had probability 0.4"),
    (one(BONUS, target_prob=0.4), BONUS, "plain decoding"),
    *((one(REJECTED, {"drafter": way}, **CERTAIN), REJECTED, words)
      for way in ("suffix", "prompt_lookup")
      for words in ("was copied from similar earlier text", "q = 1")),
    *((one(REJECTED, {"drafter": way}, **CERTAIN, forced=forced), REJECTED, words)
      for way in ("suffix", "head")
      for forced, why in (("token", "allows no other token"), ("text", "requires the text"))
      for words in (f"was forced: the guide {why}", "A forced token counts as certain (q = 1)")),
    *((one(PROPOSED, {"drafter": "suffix+head"}, draft_prob=1.0, copied_from=source), PROPOSED,
       words) for source, words in (
           (3, "was copied from similar earlier text"), (None, "The draft head proposed"))),
    *((one(PROPOSED, {"drafter": way}, draft_prob=0.6), PROPOSED, f"The {who} proposed")
      for way, who in (("model", "draft model"), ("head", "draft head"), ("mtp", "MTP layer"),
                       ("assistant", "assistant"))),
    (one(), REJECTED, NO_NUMBERS),
    *((one(draft_prob=0.7, target_prob=p, accept_prob=p / 0.7, uniform=u), REJECTED, words)
      for p, u in ((1e-9, 0.996), (0.00004, 0.9))
      for words in ("p/q, which is under 0.0001", f"The draw {u} was not below that: rejected.")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("trace", "kind", "shown"), SAID, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_token_is_explained_in_the_terms_of_its_rule_with_its_own_numbers(trace, kind, shown):
    assert shown in said(trace, kind)


def test_what_does_not_apply_is_not_said():
    assert "draw" not in said(replaced(**GREEDY), REJECTED)
    assert "draft model" not in said(one(REJECTED, {"drafter": "suffix"}, **CERTAIN), REJECTED)
    for source in (3, None):  # of suffix and head, the one that drafted is named
        drafted = token(PROPOSED, " king", draft_prob=1.0, copied_from=source)
        judged = step_of(
            drafted, token(ACCEPTED, " king", **KING, uniform=0.1), drafter="suffix+head"
        )
        assert ("was copied from similar earlier text" in said(judged, ACCEPTED)) == (
            source is not None
        )


def test_a_proposal_is_explained_by_its_verdict_and_waits_while_there_is_none():
    assert case_of(refused(), 1).event.kind == REJECTED
    waiting = Trace(refused().events[:3])
    assert case_of(waiting, 1).event.kind == PROPOSED
    assert "has not judged it yet" in told(waiting, 1)


def test_a_draft_that_playback_has_not_seen_judged_hides_what_the_target_thinks():
    numbers = {"draft_prob": 0.55, "target_prob": 0.12, "target_entropy": 2.0, "draft_entropy": 1.0}
    tops = {
        "draft_top": top((" king", 0.55), ("the", 0.1)),
        "target_top": top((" queen", 0.31), (" king", 0.12)),
    }
    trace = one(PROPOSED, **numbers, **tops)
    assert not any("0.12" in value for _, value in words(trace, 1)["details"])
    shown = distributions(trace, 1)
    assert shown["series"] == ["draft"]
    assert not any("queen" in entry["text"] for entry in shown["tokens"])


def test_details_are_the_events_own_numbers():
    details = {
        "".join(text for text, _ in name): value for name, value in words(refused(), 3)["details"]
    }
    own = {
        "target probability p": "0.12",
        "acceptance probability": f"{0.12 / 0.55:.6g}",
        "draw u": "0.64",
        "step": "1",
    }
    assert details | own | {"target entropy, nats": "2"} == details


@pytest.mark.parametrize("number", [-1, 0, 6, 99])
def test_an_event_that_is_no_token_is_refused(number):
    with pytest.raises(ValueError, match="event"):
        words(refused(), number)


def test_another_sequences_events_of_a_batch_do_not_mix_in():
    trace = refused()
    for event in list(trace):
        if event.kind == PROPOSED:
            trace.events.insert(2, Event(PROPOSED, row=1, step=0, index=0, text="other"))
    assert "the rejected “␣king”" in said(trace, DISCARDED)


def test_every_token_of_a_long_run_can_be_explained():
    trace = run([(5, n % 6) for n in range(12)] + [(0, 0)])
    numbers = [i for i, event in enumerate(trace) if event.token_id is not None]
    assert all(told(trace, number) and to_json(trace, number) for number in numbers)


def test_what_changes_the_target_s_distribution_is_said_with_the_result():
    typical = {"verify_strategy": "typical_acceptance"}
    for lossless in (
        {},
        {**typical, "temperature": 0.0},
        {"verify_strategy": "block_verification"},
    ):
        assert (
            warning({"verify_strategy": "speculative_sampling", "temperature": 0.7, **lossless})
            == ""
        )
    for lossy in ("typical_acceptance", "greedy_match"):
        assert "Not the target's distribution" in warning(
            {"verify_strategy": lossy, "temperature": 0.7}
        )
    assert warning({**typical, "temperature": "hot"}) == warning({}) == ""


HOSTILE = '<img src=x onerror="alert(1)">&amp;\u202e'


def odds(**numbers) -> dict:
    """The distributions of a rejected token."""
    return distributions(one(**KING | numbers), 1)


def labels(shown: dict, *, chosen: bool = False) -> list[str]:
    return [entry["text"] for entry in shown["tokens"] if entry["chosen"] or not chosen]


def test_model_text_is_made_visible_and_can_be_no_markup():
    sent = to_json(step_of(token(REJECTED, HOSTILE, **KING, uniform=0.5)), 1)
    assert "<" not in sent
    assert "\\u003cimg" in sent
    assert "\u202e" not in json.loads(sent)["words"]["sentences"][0][0][0]
    shown = odds(target_top=top((HOSTILE, 0.31), ("\n", 0.2), (" ", 0.1), ("", 0.05)))
    assert {"⏎", "␣", "∅"} <= set(labels(shown))
    assert "\u202e" not in str(shown)


def test_distributions_stand_side_by_side_with_the_chosen_token_marked_and_sum_to_1_with_the_rest():
    shown = distributions(refused(), 3)
    assert shown["series"] == ["draft", "target"]
    assert (labels(shown), labels(shown, chosen=True)) == (
        ["↻ ␣queen", "␣king", "the"],
        ["␣king"],
    )
    assert [entry["probs"] for entry in shown["tokens"]] == [[0.2, 0.31], [0.55, 0.12], [0.05, 0.1]]
    assert shown["rest"] == pytest.approx([0.2, 0.47])
    assert distributions(refused(), 5)["series"] == ["draft", "target", "residual"]
    assert distributions(one(BONUS), 1) == {
        "takeaway": NO_DISTRIBUTIONS,
        "series": [],
        "tokens": [],
        "rest": [],
    }


def test_a_token_outside_the_top_lists_has_its_probability_and_others_only_if_bars_are_visible():
    shown = odds(target_top=top((" queen", 0.5)), draft_top=top(("the", 0.9)), target_prob=0.001)
    assert labels(shown)[1:2] == labels(shown, chosen=True) == ["␣king"]
    assert shown["tokens"][1]["probs"][1] == 0.001
    assert shown["tokens"][2]["probs"][1] is None  # not recorded, which is not the same as zero
    unseen = odds(
        target_top=top((" queen", 0.9999), ("the", 0.00009)), draft_top=None, target_prob=0.00002
    )
    assert (labels(unseen), labels(unseen, chosen=True)) == (["␣queen", "␣king"], ["␣king"])


def test_what_is_not_recorded_is_part_of_the_rest_unless_the_other_model_s_list_has_it():
    unsure = {"draft_top": top((" king", 0.55)), "target_top": top((" queen", 0.31))}
    shown = odds(**unsure)
    assert shown["rest"] == pytest.approx([0.45, 0.57])
    assert shown["takeaway"].endswith("tokens marked – are part of “all others”")
    crossed = odds(**unsure, draft_top_target=[0.12], target_top_draft=[0.2])
    assert [entry["probs"] for entry in crossed["tokens"]] == [[0.2, 0.31], [0.55, 0.12]]
    assert crossed["rest"] == pytest.approx([0.25, 0.57])
    sure = top((" king", 1.0))
    assert odds(draft_prob=1.0, target_prob=1.0, draft_top=sure, target_top=sure)["rest"] == []


NUMBERS = [0, 1, -1, -0.5, 0.5, 1e-300, 1e300, -1e300, 10**9, -(10**9), 0.9999999]
TEXTS = ["", "<img src=x onerror=alert(1)>", "\u202e\x00", " ", "%{x}", "𝕏" * 5000, "</b><b>"]
REAL = [
    "draft_prob",
    "target_prob",
    "accept_prob",
    "uniform",
    "threshold",
    "draft_entropy",
    "target_entropy",
]
REAL += ["draft_seconds", "verify_seconds", "total_seconds"]
NONSENSE = [
    (REAL, [*NUMBERS, None]),
    (["time"], NUMBERS),
    (
        ["num_draft", "num_accepted", "step", "index", "position", "token_id"],
        [0, 1, -1, 10**12, -(10**12), None],
    ),
    (["text", "token"], [*TEXTS, None]),
    (
        ["draft_top", "target_top", "residual_top"],
        [[TokenProb(0, *pair), TokenProb(1, *pair)] for pair in zip(TEXTS, NUMBERS, strict=False)],
    ),
]
"""Fields of an event, and what a file may claim that they are."""


def mangled(seed: int) -> Trace:
    """A run with nonsense in about every third field of its events."""
    chance = random.Random(seed)
    trace = run([(5, chance.randint(0, 5)) for _ in range(8)])
    for event in trace.events[1:]:
        for names, values in NONSENSE:
            for name in names:
                if chance.random() < 0.3:
                    setattr(event, name, chance.choice(values))
    return trace


def test_nonsense_is_drawn_and_explained_without_an_error():
    for trace in map(mangled, range(10)):
        for number, event in enumerate(trace):
            if event.kind in TOKEN_KINDS:
                assert "<" not in to_json(
                    trace, number
                )  # which stands in the page's source, and whose words become text


@pytest.mark.parametrize(("drafted", "accepted"), [(4, 9), (4, -1), (-2, 0), (10**9, 10**9)])
def test_a_file_with_impossible_steps_is_refused(drafted, accepted):
    trace = run([(4, 2)])
    step = next(event for event in trace if event.kind == EventKind.STEP)
    step.num_draft, step.num_accepted = drafted, accepted
    with pytest.raises(ValueError, match=r"trace line \d+: num_accepted=.* is impossible"):
        Trace.from_jsonl(trace.to_jsonl())


def test_the_rejected_token_has_nothing_in_the_residual():
    shown = distributions(refused(), 5)
    residual = shown["series"].index("residual")
    events = refused().events
    rejected = next(event for event in events if event.kind == EventKind.REJECTED)
    (probs,) = [
        token["probs"]
        for token in shown["tokens"]
        if token["text"].replace("␣", " ") == rejected.text
    ]
    assert probs[residual] == 0


def test_the_token_that_was_drawn_instead_is_shown_with_the_rejected_one():
    trace = refused()
    new = next(event for event in trace if event.kind == EventKind.RESAMPLED)
    new.text, new.token_id, new.target_prob = " rare", 999, 1e-6
    number = next(n for n, event in enumerate(trace) if event.kind == EventKind.REJECTED)
    shown = distributions(trace, number)
    assert [token["name"] for token in shown["tokens"] if token["text"].startswith("↻")] == [
        "␣rare"
    ]
    assert "↻ was drawn instead" in shown["takeaway"]
