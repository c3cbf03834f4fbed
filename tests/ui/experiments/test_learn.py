"""The lessons' experiments with draws and passes, on real models."""

import math
import threading
from collections import Counter
from itertools import islice

import pytest

from naive_speculate import SamplingParams
from naive_speculate.events import TokenProb
from naive_speculate.serving import Request
from tests.ui.drawn import drawn
from ui.experiments.lessons import slow
from ui.experiments.lessons.lesson import Trial
from ui.experiments.lessons.unchanged import Census, conclusion, convergence, draw, shares, total_variation
from ui.host.catalog import Catalog, ServedPair
from ui.run.settings import Settings

PROMPT = [5, 17, 60, 3]


def request(temperature: float, seed: int) -> Request:
    return Request(PROMPT, SamplingParams(temperature=temperature, seed=seed))


@pytest.fixture(scope="module")
def census(tiny_engine) -> Census:
    *_, last = draw(tiny_engine, request(1.0, 4), 600, threading.Event())
    return last


def test_counts_of_the_real_decoder_come_close_to_the_target_and_not_to_the_draft(census):
    assert census.draws == 600
    assert sum(entry.prob for entry in census.target) == pytest.approx(1)  # top_k makes the list the whole distribution
    assert min(census.kept.total(), census.replaced.total()) > 0
    # Four times what chance gives on average; the draft's own distribution is much further off.
    assert census.distance < 4 * census.by_chance(600) < census.draft_distance
    expected = {entry.token_id: 600 * entry.prob for entry in census.target if 600 * entry.prob >= 5}
    counted = {token: census.kept[token] + census.replaced[token] for token in expected}
    statistic = sum((counted[token] - expected[token]) ** 2 / expected[token] for token in expected)
    freedom = len(expected) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)  # chi-square, five standard deviations
    for entry in census.target:
        smaller = min(entry.prob, census.draft.get(entry.token_id, 0.0))
        assert census.kept[entry.token_id] / 600 == pytest.approx(smaller, abs=5 * math.sqrt(0.25 / 600))


def test_batches_grow_and_drawing_can_be_cancelled_but_needs_a_temperature(tiny_engine):
    cancel = threading.Event()
    drawing = draw(tiny_engine, request(1.0, 1), 10_000, cancel)
    assert [census.draws for census in islice(drawing, 4)] == [10, 30, 70, 150]
    cancel.set()
    assert list(drawing) == []
    with pytest.raises(ValueError, match="temperature is 0"):
        next(draw(tiny_engine, request(0.0, 1), 10, threading.Event()))


def test_distances():
    assert total_variation({1: 0.5, 2: 0.5}, {1: 0.5, 3: 0.5}) == 0.5
    assert total_variation({1: 1.0}, {1: 1.0}) == 0
    fair = Census([TokenProb(1, "a", 0.5), TokenProb(2, "b", 0.5)], {})
    assert fair.by_chance(400) == pytest.approx(fair.by_chance(100) / 2)
    assert fair.by_chance(100) == pytest.approx(0.5 * math.sqrt(2 * 0.25 / (math.pi * 100)) * 2)


def test_the_charts_are_those_of_the_counts_and_compare_with_what_chance_gives(census):
    figure = drawn(shares(census))
    kept, replaced, target, draft = figure.data
    for place, entry in enumerate(census.target):
        whole = (census.kept[entry.token_id] + census.replaced[entry.token_id]) / census.draws
        assert kept.y[place] + replaced.y[place] == pytest.approx(whole)
        assert (target.y[place], draft.y[place]) == (entry.prob, census.draft.get(entry.token_id, 0.0))
    assert figure.layout.barmode == "stack"
    measured, chance, blind = drawn(convergence(census, 600)).data
    assert list(measured.x) == [draws for draws, _ in census.distances]
    assert measured.y[-1] == pytest.approx(census.distance)
    assert math.log(chance.y[0] / chance.y[1]) / math.log(chance.x[1] / chance.x[0]) == pytest.approx(0.5)
    assert blind.y[0] == pytest.approx(census.draft_distance)
    assert "After 600 draws" in conclusion(census)


def test_p_and_q_of_the_bars_sum_to_1_for_what_has_no_bar_of_its_own_is_the_last():
    target, draft = [TokenProb(1, "a", 0.7), TokenProb(2, "b", 0.3)], {1: 0.2, 2: 0.5, 3: 0.2, 4: 0.1}
    kept, replaced, p, q = drawn(shares(Census(target, draft, Counter({1: 2, 2: 3}), Counter({1: 5})))).data
    assert list(q.y) == pytest.approx([0.2, 0.5, 0.3])
    assert list(p.y) == pytest.approx([0.7, 0.3, 0])
    assert [*kept.y, *replaced.y] == pytest.approx([0.2, 0.3, 0, 0.5, 0, 0])
    whole = shares(Census(target, {1: 0.2, 2: 0.8}, Counter({1: 1})))
    assert whole["layout"]["xaxis"]["ticktext"] == ["a", "b"]


def test_passes_are_measured_for_every_width_and_drawn_against_reading_one_by_one(bundled_engine, monkeypatch):
    monkeypatch.setattr(slow, "REPEATS", 1)
    monkeypatch.setattr(slow, "STEPS", 2)
    trial = Trial(Catalog({"bundled": ServedPair(bundled_engine)}), Settings(prompt="Once upon a time", temperature=1.0))
    *_, known = slow.measure_passes(trial)
    assert tuple(known) == slow.WIDTHS
    assert all(seconds > 0 for seconds in known.values())
    known = {1: 0.004, 2: 0.005, 4: 0.006}
    bars, line = drawn(slow.pass_costs(known)).data
    assert list(bars.y) == pytest.approx([4, 5, 6])
    assert list(line.y) == pytest.approx([4, 8, 16])
    assert slow.costs_in_words(known) == "4 tokens: 1.5 times the time of one"
