"""The sweep over k and temperature: real runs, what they say together, their table, maps and curves."""

import csv
import io
import math
import threading

import gradio as gr
import pytest

from tests.ui.drawn import drawn
from tests.ui.handmade import run
from ui.experiments import explore
from ui.experiments.maps import NOTHING_YET, acceptance_map, speedup_curve, speedup_map, theory_of
from ui.experiments.spread import draft_seconds, step_seconds
from ui.experiments.sweep import Progress, Sample, cells, finding, ks_in_words, log_speedups, measure, sweep, to_csv
from ui.host.catalog import Catalog, ServedPair
from ui.run.settings import Settings

KS, TEMPERATURES = [1, 4], [0.0, 1.0]


def sample(temperature: float, k: int, speed: float, prompt: int = 0, seed: int = 0, accepted: int = 0) -> Sample:
    """Ten rounds, so quick that the speed is this."""
    length = (accepted + 10) / 10
    return Sample(temperature, k, prompt, seed, 10, 10 * k, accepted, min(10, 10 * k - accepted), 10, length / speed, 0.001)


def samples_of(speeds: dict[int, list[float]], temperature: float = 0.0) -> list[Sample]:
    """By k the speeds with each prompt, plain decoding's being 100."""
    found = []
    for prompt in range(len(next(iter(speeds.values())))):
        found.append(sample(temperature, 0, 100.0, prompt))
        found += [sample(temperature, k, of_k[prompt], prompt, accepted=5 * k) for k, of_k in speeds.items()]
    return found


CLEAR = samples_of({1: [130.0, 128.0, 131.0, 130.0, 129.0], 4: [180.0, 182.0, 179.0, 181.0, 178.0]}) + samples_of(
    {1: [90.0, 60.0, 99.0, 95.0, 120.0], 4: [50.0, 55.0, 60.0, 52.0, 54.0]}, 1.0
)


@pytest.fixture(scope="module")
def catalog(small_engine) -> Catalog:
    return Catalog({"bundled": ServedPair(small_engine)})


def test_a_sweep_runs_every_prompt_with_every_k_and_one_seed_is_enough_at_temperature_0(catalog):
    settings = Settings(max_tokens=12, seed=3)
    places = list(sweep(catalog, settings, ["Once upon a time", "The fox"], 2, KS, TEMPERATURES, threading.Event()))
    total = 3 * (2 + 4)  # plain and both k, of two prompts; with one seed at temperature 0 and two at 1
    assert [place.done for place in places] == list(range(total + 1))
    assert (places[0].running, places[-1].running) == ("prompt 1, temperature 0, plain", "")
    runs = [(s.seed, s.prompt, s.temperature, s.k) for s in places[-1].samples]
    assert len(set(runs)) == len(runs) == total
    made = [(c.temperature, c.k, c.prompts, c.runs) for c in cells(places[-1].samples)]
    assert made == [(0.0, 1, 2, 2), (0.0, 4, 2, 2), (1.0, 1, 2, 4), (1.0, 4, 2, 4)]


def test_a_cancelled_sweep_ends_with_what_it_has(catalog):
    cancel = threading.Event()
    for place in sweep(catalog, Settings(max_tokens=8), ["Once"], 1, KS, TEMPERATURES, cancel):
        if place.done == 2:
            cancel.set()
    assert place.done == 2
    assert len(cells(place.samples)) == 1


def test_a_hiccup_of_the_machine_does_not_count_and_short_steps_do_not_pass_for_undisturbed_long_ones():
    trace = run([(4, 2)] * 20)
    assert step_seconds(trace) == pytest.approx(0.015)
    assert draft_seconds(trace) == pytest.approx(0.001)
    for event in trace.events[: len(trace) // 2]:
        event.total_seconds = event.total_seconds and 50 * event.total_seconds
    assert step_seconds(trace) == pytest.approx(0.015)
    assert step_seconds(run([])) is None
    assert measure(run([]), 0.0, 1, 0, 0) is None
    # 11 ms without drafts, 21 with ten: the mean of both, not the quick ones alone.
    assert step_seconds(run([(0, 0), (10, 2)] * 10)) == pytest.approx(0.016)


def test_speedups_are_of_the_same_prompt_and_seed_and_seeds_of_a_prompt_are_averaged():
    samples = [
        sample(1.0, 0, 100.0, prompt=0, seed=0),
        sample(1.0, 0, 50.0, prompt=0, seed=1),
        sample(1.0, 2, 200.0, prompt=0, seed=0),
        sample(1.0, 2, 400.0, prompt=0, seed=1),
        sample(1.0, 2, 900.0, prompt=1, seed=0),  # not run plainly, so it is compared with nothing
    ]
    assert log_speedups(samples, 1.0)[2] == {0: pytest.approx(math.log(4))}
    (cell,) = cells(samples[:-1])
    assert cell.speedup == (pytest.approx(4.0), None, None)
    assert (cell.prompts, cell.runs) == (1, 2)


def test_the_best_k_is_named_where_it_is_clear_and_a_tie_where_not():
    assert finding(CLEAR, 0.0) == "k = 4 is the fastest"
    assert finding(CLEAR, 1.0) == "k = 1 and plain decoding are a statistical tie"
    slow = samples_of({1: [80.0, 81.0, 80.0], 4: [50.0, 51.0, 50.0]})
    assert finding(slow, 0.0) == "plain decoding is the fastest"
    close = samples_of({1: [120, 121, 122], 4: [200, 220, 190], 6: [210, 190, 215], 8: [195, 222, 189]})
    assert finding(close, 0.0) == "k = 4 to 8 are a statistical tie"
    assert [cell.best for cell in cells(close)] == [False, True, True, True]
    assert "one prompt is too few" in finding(samples_of({1: [120.0], 4: [300.0]}), 0.0)
    words = [([4], "4"), ([4, 6, 8], "4 to 8"), ([1, 4, 8], "1, 4 and 8"), ([4, 6], "4 and 6")]
    assert [ks_in_words(ks, [1, 4, 6, 8]) for ks, _ in words] == [said for _, said in words]


def test_the_speedup_map_marks_each_k_that_may_be_the_best_and_shows_the_spread():
    figure = drawn(speedup_map(cells(CLEAR), KS, TEMPERATURES))
    (first, third), (second, _) = figure.data[0].text
    assert "★" not in first
    assert second.startswith("<b>★ 1.80</b><br>")
    assert "1.78–1.82" in second
    assert third.startswith("<b>★ 0.9")
    assert figure.layout.meta == "At most 1.80× plain decoding, with k = 4 at temperature 0"


def test_a_map_keeps_its_axes_while_it_fills_and_says_so_before_the_first_run():
    few, all_ = (drawn(acceptance_map(made, KS, TEMPERATURES)) for made in (cells(CLEAR)[:1], cells(CLEAR)))
    assert few.layout.yaxis.range == all_.layout.yaxis.range == (-0.5, 1.5)
    assert few.layout.xaxis.ticktext == all_.layout.xaxis.ticktext == ("0", "1")
    assert [list(row) for row in few.data[0].z] == [[0.5, None], [None, None]]
    assert all_.layout.meta == "Between 50% and 50% of the draft tokens were accepted"
    for make in (acceptance_map, speedup_map):
        assert drawn(make([], KS, TEMPERATURES)).layout.meta == NOTHING_YET


def test_theory_takes_alpha_and_costs_from_the_runs_and_a_disturbed_k_does_not_bend_it():
    # A plain step takes 10 ms, one with k draft tokens 10 + 3k, 1 per token for drafting; half of the judged are accepted.
    plain = Sample(0.0, 0, 0, 0, 20, 0, 0, 0, 20, 0.010, 0.0)

    def fitted(seconds: dict[int, float]):
        runs = [Sample(0.0, k, 0, 0, 10, 10 * k, 8, 8, 10, time, 0.001) for k, time in seconds.items()]
        return theory_of([plain, *runs], 0.0)

    theory = fitted({2: 0.016, 4: 0.022})
    assert (theory.alpha, theory.draft, theory.first, theory.each) == pytest.approx((0.5, 0.1, 1.0, 0.3))
    assert theory.speedup(0) == pytest.approx(1.0)
    assert theory.speedup(3) == pytest.approx((1 + 0.5 + 0.25 + 0.125) / (3 * 0.1 + 1.6))
    bent = fitted({k: 0.012 + 0.002 * k + (0.050 if k == 4 else 0.0) for k in (1, 2, 4, 6, 8)})
    assert (bent.first, bent.each) == pytest.approx((1.2, 0.2))
    # Not for windows of changing length, or without plain runs.
    assert theory_of([s for s in CLEAR if s.k], 0.0) is None
    assert theory_of([sample(0.0, 0, 100.0), Sample(0.0, 4, 0, 0, 10, 13, 5, 3, 2, 0.02, 0.0)], 0.0) is None


def test_the_curve_shows_points_with_intervals_over_theory_and_says_what_is_clear():
    figure = drawn(speedup_curve(CLEAR, 0.0))
    plain, theory, slower, fastest = figure.data
    assert list(plain.y) == [1, 1]
    assert len(theory.y) == 5
    assert theory.y[0] == pytest.approx(1.0)
    assert (list(slower.x), list(fastest.x)) == ([1], [4])
    assert all(bars.error_y.array[0] > 0 and bars.error_y.arrayminus[0] > 0 for bars in (slower, fastest))
    assert (slower.marker.symbol, fastest.marker.symbol) == ("circle-open", "circle")
    assert figure.layout.meta == "k = 4 is the fastest"
    few = [s for s in CLEAR if s.prompt < 4]
    assert all(trace.error_y.array is None for trace in drawn(speedup_curve(few, 0.0)).data)
    assert all("–" not in text for row in drawn(speedup_map(cells(few), KS, TEMPERATURES)).data[0].text for text in row)


def test_the_csv_has_a_line_for_every_cell():
    rows = list(csv.DictReader(io.StringIO(to_csv(cells(CLEAR)))))
    best = [(r["temperature"], r["k"], r["best"]) for r in rows]
    assert best == [("0", "1", "False"), ("0", "4", "True"), ("1", "1", "True"), ("1", "4", "False")]
    assert all(float(r["speedup_low"]) < float(r["speedup"]) < float(r["speedup_high"]) for r in rows)


def test_the_last_word_is_said_even_when_the_last_run_changed_no_figure(catalog, monkeypatch):
    places = [Progress(CLEAR, 3, 4, "temperature 1, k = 4"), Progress(CLEAR, 4, 4, "")]
    monkeypatch.setattr(explore, "sweep", lambda *_: iter(places))
    *_, last = explore._explore(catalog, Settings(), ["Once"], 1, [1, 4], [0.0, 1.0], lambda *_, **__: None)
    assert last[0].startswith("At temperature 0, k = 4 is the fastest; at temperature 1, k = 1 and plain")
    assert last[-1].visible


def test_the_table_holds_numbers_to_sort_by_and_shows_them_written_with_the_best_k_starred():
    shown = gr.Dataframe(explore._styled(cells(CLEAR))).value
    assert shown["headers"][-1] == "speedup"
    assert [row[-1] for row in shown["data"]][:2] == pytest.approx([1.296, 1.800], abs=1e-3)
    assert [row[-1] for row in shown["metadata"]["display_value"]][:2] == ["1.30×", "★ 1.80×"]
    assert shown["metadata"]["display_value"][0][2] == "50%"


def test_prompts_are_the_visitors_and_the_listed_ones_each_once():
    assert explore.read_prompts("Once", "The fox\n\n Once \nA\\nB") == ["Once", "The fox", "A\nB"]
    with pytest.raises(ValueError, match="prompts may be at most 32, including the Run tab's, got 33"):
        explore.read_prompts("Once", "\n".join(map(str, range(32))))
