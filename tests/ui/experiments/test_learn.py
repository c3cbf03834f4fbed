"""The lessons' experiments: draws, passes, and places that teach."""

import math
from collections import Counter
from itertools import islice

import pytest

from naive_speculate import SamplingParams
from naive_speculate.events import Event, EventKind, TokenProb
from naive_speculate.events.steps import steps
from naive_speculate.events.trace import Trace
from naive_speculate.serving import Request
from tests.ui.drawn import drawn
from tests.ui.handmade import token, top
from ui.experiments.lessons import slow
from ui.experiments.lessons.find_examples import (
    ABOUT_A_THIRD,
    OPEN,
    close_rejection,
    distance,
    full_step,
    probs,
    sampling_position,
)
from ui.experiments.lessons.lesson import Trial
from ui.experiments.lessons.unchanged import Census, censuses, convergence, shares
from ui.run.settings import Settings

PROMPT = [5, 17, 60, 3]


def request(temperature: float, seed: int) -> Request:
    return Request(PROMPT, SamplingParams(temperature=temperature, seed=seed))


@pytest.fixture(scope="module")
def census(tiny_engine) -> Census:
    *_, last = censuses(tiny_engine, request(1.0, 4), 600)
    return last


def test_counts_of_the_real_decoder_come_close_to_the_target_and_not_to_the_draft(census):
    assert census.draws == 600
    assert sum(entry.prob for entry in census.target) == pytest.approx(
        1
    )  # top_k makes the list the whole distribution
    assert min(census.kept.total(), census.replaced.total()) > 0
    # Four times what chance gives on average; the draft's own distribution is much further off.
    assert census.distance < 4 * census.by_chance(600) < census.draft_distance
    expected = {
        entry.token_id: 600 * entry.prob for entry in census.target if 600 * entry.prob >= 5
    }
    counted = {token: census.kept[token] + census.replaced[token] for token in expected}
    statistic = sum((counted[token] - expected[token]) ** 2 / expected[token] for token in expected)
    freedom = len(expected) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)  # chi-square, five standard deviations
    for entry in census.target:
        smaller = min(entry.prob, census.draft.get(entry.token_id, 0.0))
        assert census.kept[entry.token_id] / 600 == pytest.approx(
            smaller, abs=5 * math.sqrt(0.25 / 600)
        )


def test_batches_grow_up_to_the_engines_rows_and_drawing_needs_a_temperature(tiny_engine):
    drawing = censuses(tiny_engine, request(1.0, 1), 10_000)
    assert [census.draws for census in islice(drawing, 4)] == [10, 30, 70, 134]  # 64 rows at most
    with pytest.raises(ValueError, match="temperature is 0"):
        next(censuses(tiny_engine, request(0.0, 1), 10))


def test_distances_and_the_share_of_replacements_which_is_what_kept_drafts_leave():
    assert distance({1: 0.5, 2: 0.5}, {1: 0.5, 3: 0.5}) == 0.5
    assert distance({1: 1.0}, {1: 1.0}) == 0
    fair = [TokenProb(1, "a", 0.5), TokenProb(2, "b", 0.5)]
    by_chance = Census(fair, {}).by_chance
    assert by_chance(400) == pytest.approx(by_chance(100) / 2)
    assert by_chance(100) == pytest.approx(0.5 * math.sqrt(2 * 0.25 / (math.pi * 100)) * 2)
    assert (distance(probs(fair), probs(fair)), distance(probs(fair), {3: 1.0})) == (0, 1)
    assert distance(probs(fair), {1: 0.8, 2: 0.2}) == pytest.approx(0.3)


def test_the_charts_are_those_of_the_counts_and_what_has_no_bar_of_its_own_is_the_last(census):
    figure = drawn(shares(census))
    kept, replaced, target, draft = figure.data
    for place, entry in enumerate(census.target):
        whole = (census.kept[entry.token_id] + census.replaced[entry.token_id]) / census.draws
        assert kept.y[place] + replaced.y[place] == pytest.approx(whole)
        assert (target.y[place], draft.y[place]) == (
            entry.prob,
            census.draft.get(entry.token_id, 0.0),
        )
    assert figure.layout.barmode == "stack"
    measured, chance, blind = drawn(convergence(census, 600)).data
    assert list(measured.x) == [draws for draws, _ in census.distances]
    assert (measured.y[-1], blind.y[0]) == pytest.approx((census.distance, census.draft_distance))
    assert math.log(chance.y[0] / chance.y[1]) / math.log(
        chance.x[1] / chance.x[0]
    ) == pytest.approx(0.5)

    target, draft = (
        [TokenProb(1, "a", 0.7), TokenProb(2, "b", 0.3)],
        {1: 0.2, 2: 0.5, 3: 0.2, 4: 0.1},
    )
    bars = drawn(shares(Census(target, draft, Counter({1: 2, 2: 3}), Counter({1: 5})))).data
    assert [list(bar.y) for bar in bars] == [
        pytest.approx(values)
        for values in ([0.2, 0.3, 0], [0.5, 0, 0], [0.7, 0.3, 0], [0.2, 0.5, 0.3])
    ]
    whole = shares(Census(target, {1: 0.2, 2: 0.8}, Counter({1: 1})))
    assert whole["layout"]["xaxis"]["ticktext"] == ["a", "b"]


def test_passes_are_measured_for_every_width_and_drawn_against_reading_one_by_one(
    catalog, monkeypatch
):
    monkeypatch.setattr(slow, "REPEATS", 1)
    monkeypatch.setattr(slow, "STEPS", 2)
    settings = Settings(prompt="Once upon a time", temperature=1.0, ignore_eos=True)
    *_, known = slow.measure_passes(Trial(catalog, settings))
    assert tuple(known) == slow.WIDTHS
    assert all(seconds > 0 for seconds in known.values())
    known = {1: 0.004, 2: 0.005, 4: 0.006}
    bars, line = drawn(slow.pass_costs(known)).data
    assert list(bars.y) == pytest.approx([4, 5, 6])
    assert list(line.y) == pytest.approx([4, 8, 16])
    assert slow.costs_in_words(known) == "4 tokens: 1.5 times the time of one"


WORDS = [" a", " b", " c", " d", " e"]


def judged(step: int, kept: int, drafted: int, **refused: float) -> list[Event]:
    """A step that accepts some draft tokens and rejects the next, if there is one, with these
    numbers."""
    kinds = [EventKind.ACCEPTED] * kept + [EventKind.REJECTED] * (kept < drafted)
    kinds += [EventKind.DISCARDED] * (drafted - len(kinds))
    numbers = [refused if kind == EventKind.REJECTED else {} for kind in kinds]
    events = [
        token(kind, f" {step}{'abcdefgh'[at]}", at, step, **numbers[at])
        for at, kind in enumerate(kinds)
    ]
    last = token(
        EventKind.RESAMPLED if kept < drafted else EventKind.BONUS, f" {step}!", kept, step
    )
    return [*events, last, Event(EventKind.STEP, step=step, num_draft=drafted, num_accepted=kept)]


def trace_of(*rounds_: list[Event]) -> Trace:
    started = Event(EventKind.STARTED, schema_version=1, prompt="Once", prompt_token_ids=[7, 8])
    return Trace([started, *(event for events in rounds_ for event in events)])


def refusal(keep: float, q: float = 0.5) -> dict[str, float]:
    return {"accept_prob": keep, "draft_prob": q, "target_prob": keep * q, "uniform": 0.9}


def test_steps_have_their_verdicts_and_one_teaches_that_accepts_two_rejects_and_discards_one():
    first, second = steps(trace_of(judged(0, 2, 4), judged(1, 3, 3)))
    assert (first.num_accepted, first.before, first.rejected.text, first.added.text) == (
        2,
        0,
        " 0c",
        " 0!",
    )
    assert (second.num_accepted, second.before, second.rejected, second.added.kind) == (
        3,
        3,
        None,
        EventKind.BONUS,
    )
    run = [judged(step, kept, 4) for step, kept in enumerate((4, 1, 3, 2, 0, 2))]
    for length, following, found in ((6, 2, 3), (3, 0, 2), (2, 0, None), (0, 2, None)):
        step = full_step(trace_of(*run[:length]), followed_by=following)
        assert (step and step.number) == found


def test_of_close_unsure_rejections_the_most_visible_is_taken_and_none_that_was_seen():
    for keep in (0.05, 0.29, 0.71, 0.98):
        assert close_rejection(trace_of(judged(0, 0, 3, **refusal(keep)))) is None
    for keep in OPEN:
        assert close_rejection(trace_of(judged(0, 0, 3, **refusal(keep)))).number == 0
    steps = [
        judged(0, 1, 3, **refusal(0.5, 0.2)),
        judged(1, 1, 3, **refusal(0.6, 0.7)),
        judged(2, 0, 3, **refusal(0.5, 0.95)),
    ]
    trace = trace_of(*steps)
    assert close_rejection(trace).number == 1
    assert close_rejection(trace, {" 1b"}).number == 0
    assert close_rejection(trace, {" 1b", " 0b"}) is None


def verdict(kind: EventKind, at: int, target: list[float], draft: list[float]) -> Event:
    likely = [top(*zip(WORDS, probs, strict=False)) for probs in (target, draft)]
    return token(kind, WORDS[at], at, 0, target_top=likely[0], draft_top=likely[1])


def test_a_fork_is_where_replacements_have_a_share_of_a_third_and_several_tokens_are_likely():
    verdicts = [
        verdict(EventKind.ACCEPTED, 0, [0.4, 0.3, 0.3], [0.4, 0.3, 0.3]),  # nothing is resampled
        verdict(
            EventKind.ACCEPTED, 1, [0.95, 0.05], [0.65, 0.35]
        ),  # a third is, but the target is almost certain
        verdict(EventKind.REJECTED, 2, [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
        verdict(
            EventKind.DISCARDED, 3, [0.5, 0.3, 0.2], [0.18, 0.3, 0.52]
        ),  # better still, but after a rejected draft token
        token(EventKind.RESAMPLED, WORDS[4], 2),
        Event(EventKind.STEP, step=0),
    ]
    trace = trace_of(verdicts)
    fork = sampling_position(trace)
    assert fork.share == pytest.approx(0.3)
    assert (fork.token_ids, fork.before, fork.teaches) == (
        [7, 8, *trace.token_ids[:2]],
        " a b",
        True,
    )
    assert sampling_position(trace_of(judged(0, 2, 4))) is None

    def position(target: list[float], draft: list[float]):
        return sampling_position(
            trace_of([verdict(EventKind.ACCEPTED, 0, target, draft), Event(EventKind.STEP, step=0)])
        )

    for share in (
        ABOUT_A_THIRD[0] - 0.05,
        ABOUT_A_THIRD[1] + 0.05,
    ):  # hardly anything is replaced, or nearly all
        found = position([0.6, 0.2, 0.2], [0.6 - share, 0.2 + share, 0.2])
        assert (found.share, found.teaches) == (pytest.approx(share), False)
    # The draft overrates no token that the target has a bar for.
    assert position([0.6, 0.2, 0.2], [0.3, 0.2, 0.2, 0.3]) is None
