"""Places that teach are found in runs by what their numbers say, whatever the models happened to write."""

import pytest

from naive_speculate.events import Event, EventKind, TokenProb
from naive_speculate.events.trace import Trace
from tests.ui.handmade import token, top
from ui.experiments.lessons.find_examples import (
    ABOUT_A_THIRD,
    OPEN,
    close_rejection,
    drafted_steps,
    full_step,
    resampled_share,
    sampling_position,
)

WORDS = [" a", " b", " c", " d", " e"]


def judged(step: int, kept: int, drafted: int, **refused: float) -> list[Event]:
    """A step that accepts some draft tokens and rejects the next, if there is one, with these numbers."""
    kinds = [EventKind.ACCEPTED] * kept + [EventKind.REJECTED] * (kept < drafted)
    kinds += [EventKind.DISCARDED] * (drafted - len(kinds))
    numbers = [refused if kind == EventKind.REJECTED else {} for kind in kinds]
    events = [token(kind, f" {step}{'abcdefgh'[at]}", at, step, **numbers[at]) for at, kind in enumerate(kinds)]
    last = token(EventKind.RESAMPLED if kept < drafted else EventKind.BONUS, f" {step}!", kept, step)
    return [*events, last, Event(EventKind.STEP, step=step, num_draft=drafted, num_accepted=kept)]


def trace_of(*rounds_: list[Event]) -> Trace:
    started = Event(EventKind.STARTED, schema_version=1, prompt="Once", prompt_token_ids=[7, 8])
    return Trace([started, *(event for events in rounds_ for event in events)])


def refusal(keep: float, q: float = 0.5) -> dict[str, float]:
    return {"accept_prob": keep, "draft_prob": q, "target_prob": keep * q, "uniform": 0.9}


def test_rounds_know_what_was_kept_refused_and_generated_before():
    first, second = drafted_steps(trace_of(judged(0, 2, 4), judged(1, 3, 3)))
    assert (first.num_accepted, first.before, first.rejected.text, first.added.text) == (2, 0, " 0c", " 0!")
    assert (second.num_accepted, second.before, second.rejected, second.added.kind) == (3, 3, None, EventKind.BONUS)


def test_of_close_rejections_that_were_not_all_but_sure_the_most_visible_is_taken_and_none_that_was_seen():
    for keep in (0.05, 0.29, 0.71, 0.98):
        assert close_rejection(trace_of(judged(0, 0, 3, **refusal(keep)))) is None
    for keep in OPEN:
        assert close_rejection(trace_of(judged(0, 0, 3, **refusal(keep)))).number == 0
    steps = [judged(0, 1, 3, **refusal(0.5, 0.2)), judged(1, 1, 3, **refusal(0.6, 0.7)), judged(2, 0, 3, **refusal(0.5, 0.95))]
    trace = trace_of(*steps)
    assert close_rejection(trace).number == 1
    assert close_rejection(trace, {" 1b"}).number == 0
    assert close_rejection(trace, {" 1b", " 0b"}) is None


def test_a_round_teaches_that_keeps_two_refuses_one_and_throws_one_away():
    run = [judged(0, 4, 4), judged(1, 1, 4), judged(2, 3, 4), judged(3, 2, 4), judged(4, 0, 4), judged(5, 2, 4)]
    assert full_step(trace_of(*run), followed_by=2).number == 3
    assert full_step(trace_of(*run[:3]), followed_by=0).number == 2
    assert full_step(trace_of(*run[:2]), followed_by=0) is None
    assert full_step(trace_of(), followed_by=2) is None


def test_the_share_of_replacements_is_what_kept_drafts_leave():
    p = [TokenProb(1, "a", 0.5), TokenProb(2, "b", 0.5)]
    assert resampled_share(p, p) == 0
    assert resampled_share(p, [TokenProb(3, "c", 1.0)]) == 1
    assert resampled_share(p, [TokenProb(1, "a", 0.8), TokenProb(2, "b", 0.2)]) == pytest.approx(0.3)


def verdict(kind: EventKind, at: int, target: list[float], draft: list[float]) -> Event:
    likely = [top(*zip(WORDS, probs, strict=False)) for probs in (target, draft)]
    return token(kind, WORDS[at], at, 0, target_top=likely[0], draft_top=likely[1])


def test_a_fork_is_where_replacements_have_a_share_of_a_third_and_several_tokens_are_likely():
    verdicts = [
        verdict(EventKind.ACCEPTED, 0, [0.4, 0.3, 0.3], [0.4, 0.3, 0.3]),  # nothing is resampled
        verdict(EventKind.ACCEPTED, 1, [0.95, 0.05], [0.65, 0.35]),  # a third is, but the target is almost certain
        verdict(EventKind.REJECTED, 2, [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
        verdict(EventKind.DISCARDED, 3, [0.5, 0.3, 0.2], [0.18, 0.3, 0.52]),  # better still, but after a rejected draft token
        token(EventKind.RESAMPLED, WORDS[4], 2),
        Event(EventKind.STEP, step=0),
    ]
    trace = trace_of(verdicts)
    fork = sampling_position(trace)
    assert fork.share == pytest.approx(0.3)
    assert fork.token_ids == [7, 8, *trace.token_ids[:2]]
    assert fork.before == " a b"
    assert fork.teaches
    assert sampling_position(trace_of(judged(0, 2, 4))) is None


def test_a_fork_does_not_teach_where_hardly_anything_or_nearly_all_is_replaced():
    def position(target: list[float], draft: list[float]):
        return sampling_position(trace_of([verdict(EventKind.ACCEPTED, 0, target, draft), Event(EventKind.STEP, step=0)]))

    low, high = ABOUT_A_THIRD
    for share in (low - 0.05, high + 0.05):
        found = position([0.6, 0.2, 0.2], [0.6 - share, 0.2 + share, 0.2])
        assert found.share == pytest.approx(share)
        assert not found.teaches
    # The draft overrates no token that the target has a bar for.
    assert position([0.6, 0.2, 0.2], [0.3, 0.2, 0.2, 0.3]) is None
