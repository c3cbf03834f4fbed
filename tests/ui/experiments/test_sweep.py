"""The sweeps over k, temperature and batch size: real runs, what they can say, their table, maps
and curves."""

import csv
import io
import math
from dataclasses import replace

import gradio as gr
import pytest

from naive_speculate.events import Event, EventKind
from naive_speculate.speculate.theory import expected_tokens
from naive_speculate.tools.show.speedup import draft_seconds, step_seconds
from tests.ui.drawn import drawn
from tests.ui.handmade import run
from ui.experiments import explore
from ui.experiments.batches import (
    BatchSample,
    batch_speedups,
    full_speed,
    sizes_for,
    sweep_batches,
    where_it_pays,
)
from ui.experiments.maps import (
    NOTHING_YET,
    acceptance_map,
    batch_map,
    speedup_curve,
    speedup_map,
    theory,
)
from ui.experiments.sweep import (
    Progress,
    Sample,
    cells,
    finding,
    ks_in_words,
    log_speedups,
    measure,
    sweep,
    to_csv,
)
from ui.run.controls import build_experiment
from ui.run.settings import Settings

KS, TEMPERATURES = [1, 4], [0.0, 1.0]


def sample(
    temperature: float, k: int, speed: float, prompt: int = 0, seed: int = 0, accepted: int = 0
) -> Sample:
    """Ten rounds, so quick that the speed is this."""
    length = (accepted + 10) / 10
    return Sample(
        temperature,
        k,
        prompt,
        seed,
        10,
        10 * k,
        accepted,
        min(10, 10 * k - accepted),
        10,
        length / speed,
        0.001,
    )


def samples_of(speeds: dict[int, list[float]], temperature: float = 0.0) -> list[Sample]:
    """By k the speeds with each prompt, plain decoding's being 100."""
    found = []
    for prompt in range(len(next(iter(speeds.values())))):
        found.append(sample(temperature, 0, 100.0, prompt))
        found += [
            sample(temperature, k, of_k[prompt], prompt, accepted=5 * k)
            for k, of_k in speeds.items()
        ]
    return found


CLEAR = samples_of(
    {1: [130.0, 128.0, 131.0, 130.0, 129.0], 4: [180.0, 182.0, 179.0, 181.0, 178.0]}
) + samples_of({1: [90.0, 60.0, 99.0, 95.0, 120.0], 4: [50.0, 55.0, 60.0, 52.0, 54.0]}, 1.0)


def test_a_sweep_runs_every_prompt_with_every_k_and_one_seed_is_enough_at_temperature_0(catalog):
    settings = Settings(max_tokens=8, seed=3)
    places = list(sweep(catalog, settings, ["Once upon a time", "The fox"], 2, KS, TEMPERATURES))
    total = 3 * (
        2 + 4
    )  # plain and both k, of two prompts; with one seed at temperature 0 and two at 1
    assert [place.done for place in places] == list(range(total + 1))
    assert (places[0].running, places[-1].running) == ("prompt 1, temperature 0, plain", "")
    runs = [(s.seed, s.prompt, s.temperature, s.k) for s in places[-1].samples]
    assert len(set(runs)) == len(runs) == total
    made = [(c.temperature, c.k, c.prompts, c.runs) for c in cells(places[-1].samples)]
    assert made == [(0.0, 1, 2, 2), (0.0, 4, 2, 2), (1.0, 1, 2, 4), (1.0, 4, 2, 4)]


def test_a_hiccup_of_the_machine_does_not_count_and_short_steps_are_not_taken_for_long_ones():
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
    close = samples_of(
        {1: [120, 121, 122], 4: [200, 220, 190], 6: [210, 190, 215], 8: [195, 222, 189]}
    )
    assert finding(close, 0.0) == "k = 4 to 8 are a statistical tie"
    assert [cell.best for cell in cells(close)] == [False, True, True, True]
    assert "one prompt is too few" in finding(samples_of({1: [120.0], 4: [300.0]}), 0.0)
    words = [([4], "4"), ([4, 6, 8], "4 to 8"), ([1, 4, 8], "1, 4 and 8"), ([4, 6], "4 and 6")]
    assert [ks_in_words(ks, [1, 4, 6, 8]) for ks, _ in words] == [said for _, said in words]


def test_maps_mark_each_k_that_may_be_the_best_and_keep_their_axes_while_they_fill():
    figure = drawn(speedup_map(cells(CLEAR), KS, TEMPERATURES))
    (first, third), (second, _) = figure.data[0].text
    assert ("★" in first, "1.78–1.82" in second) == (False, True)
    assert (second.startswith("<b>★ 1.80</b><br>"), third.startswith("<b>★ 0.9")) == (True, True)
    assert figure.layout.meta == "At most 1.80× plain decoding, with k = 4 at temperature 0"
    few, all_ = (
        drawn(acceptance_map(made, KS, TEMPERATURES)) for made in (cells(CLEAR)[:1], cells(CLEAR))
    )
    assert few.layout.yaxis.range == all_.layout.yaxis.range == (-0.5, 1.5)
    assert few.layout.xaxis.ticktext == all_.layout.xaxis.ticktext == ("0", "1")
    assert [list(row) for row in few.data[0].z] == [[0.5, None], [None, None]]
    assert all_.layout.meta == "50% of the draft tokens were accepted"
    for make in (acceptance_map, speedup_map):
        assert drawn(make([], KS, TEMPERATURES)).layout.meta == NOTHING_YET
    batches = drawn(batch_map(samples({(1, 2): FAST, (8, 2): SLOW}), [2], [1, 8])).layout
    assert (batches.xaxis.ticktext, batches.xaxis.title.text) == (("1", "8"), "texts at once")
    assert batches.meta.startswith("Drafting does not clearly pay off with 8 texts at once or more")


def test_theory_takes_alpha_and_costs_from_the_runs_and_a_disturbed_k_does_not_bend_it():
    # A plain step takes 10 ms, one with k draft tokens 10 + 3k, 1 per token for drafting; half of
    # the judged are accepted.
    plain = Sample(0.0, 0, 0, 0, 20, 0, 0, 0, 20, 0.010, 0.0)

    def fitted(seconds: dict[int, float]) -> list[float]:
        runs = [
            Sample(0.0, k, 0, 0, 10, 10 * k, 8, 8, 10, time, 0.001) for k, time in seconds.items()
        ]
        return theory([plain, *runs], 0.0, 6)

    def expected(first: float, each: float) -> list[float]:
        return pytest.approx(
            [1.0, *(expected_tokens(0.5, k) / (first + each * k) for k in range(1, 7))]
        )

    assert fitted({2: 0.016, 4: 0.022}) == expected(1.0, 0.3)
    assert fitted(
        {k: 0.012 + 0.002 * k + (0.050 if k == 4 else 0.0) for k in (1, 2, 4, 6, 8)}
    ) == expected(1.2, 0.2)
    # Not for windows of changing length, or without plain runs.
    assert theory([s for s in CLEAR if s.k], 0.0, 4) == []
    assert (
        theory([sample(0.0, 0, 100.0), Sample(0.0, 4, 0, 0, 10, 13, 5, 3, 2, 0.02, 0.0)], 0.0, 4)
        == []
    )


def test_the_curve_shows_points_with_intervals_over_theory_and_says_what_is_clear():
    figure = drawn(speedup_curve(CLEAR, 0.0))
    plain, dashed, slower, fastest = figure.data
    assert list(plain.y) == [1, 1]
    assert len(dashed.y) == 5
    assert dashed.y[0] == pytest.approx(1.0)
    assert (list(slower.x), list(fastest.x)) == ([1], [4])
    assert all(
        bars.error_y.array[0] > 0 and bars.error_y.arrayminus[0] > 0 for bars in (slower, fastest)
    )
    assert (slower.marker.symbol, fastest.marker.symbol) == ("circle-open", "circle")
    assert figure.layout.meta == "k = 4 is the fastest"
    few = [s for s in CLEAR if s.prompt < 4]
    assert all(trace.error_y.array is None for trace in drawn(speedup_curve(few, 0.0)).data)
    assert all(
        "–" not in text
        for row in drawn(speedup_map(cells(few), KS, TEMPERATURES)).data[0].text
        for text in row
    )


def test_a_curve_is_drawn_without_theory_and_no_k_of_one_prompt_may_be_the_best():
    """The theorem excludes runs whose steps mostly drafted less than k tokens."""
    short = [
        replace(s, whole=0, round_seconds=s.round_seconds / (2 if s.k else 1))
        for s in CLEAR
        if s.prompt == 0
    ]
    assert theory(short, 0.0, 4) == []
    figure = drawn(speedup_curve(short, 0.0))
    assert [trace.name for trace in figure.data] == [
        "plain decoding",
        "measured",
        "may be the fastest",
    ]
    assert figure.layout.yaxis.range[1] > max(y for trace in figure.data for y in trace.y)
    assert not [cell for cell in cells(short) if cell.best]
    assert to_csv([]) == to_csv(cells(CLEAR)).partition("\n")[0] + "\n"


def test_what_was_measured_before_stays_until_a_run_has_a_result():
    first, second = explore._explored(
        [(Progress([], 0, 4, "one"), "0 of 4"), (Progress(CLEAR, 4, 4, ""), "")], [1, 4], [0.0]
    )
    assert [type(output) for output in first[1:]] == [type(gr.skip())] * (len(first) - 1)
    assert second[-1] == to_csv(cells(CLEAR))


def test_csv_and_table_have_a_line_for_every_cell_with_the_best_k_marked():
    rows = list(csv.DictReader(io.StringIO(to_csv(cells(CLEAR)))))
    best = [(r["temperature"], r["k"], r["best"]) for r in rows]
    assert best == [
        ("0", "1", "False"),
        ("0", "4", "True"),
        ("1", "1", "True"),
        ("1", "4", "False"),
    ]
    assert all(
        float(r["speedup_low"]) < float(r["speedup"]) < float(r["speedup_high"]) for r in rows
    )
    shown = explore._table(cells(CLEAR))  # numbers to sort by, and as they are written
    assert shown["headers"][2] == "speedup"
    assert [row[2] for row in shown["data"]][:2] == pytest.approx([1.296, 1.800], abs=1e-3)
    assert [row[2] for row in shown["metadata"]["display_value"]][:2] == ["1.30×", "★ 1.80×"]
    assert shown["metadata"]["display_value"][0][5] == "50%"
    places = [
        Progress(CLEAR, 3, 4, "temperature 1, k = 4"),
        Progress(CLEAR, 4, 4, ""),
    ]  # the last run changed no figure
    first, last = explore._explored([(place, "running") for place in places], [1, 4], [0.0, 1.0])
    assert last[0].startswith(
        "At temperature 0, k = 4 is the fastest; at temperature 1, k = 1 and plain"
    )
    assert first[-1] == to_csv(cells(CLEAR))


def breaks():
    yield "1 of 3", 1
    raise RuntimeError("what was sent")


def test_an_error_is_the_status_of_the_experiment_without_what_was_sent():
    with gr.Blocks() as page:
        build_experiment(
            gr.Button(), gr.Button(), breaks, [], [gr.Textbox(), gr.Number()], "Stopped."
        )
    *_, (status, _) = page.fns[0].fn()
    assert status == "It ended in an error: the server could not do this (RuntimeError)."


def test_prompts_are_the_visitors_and_the_listed_ones_each_once():
    assert explore.read_prompts("Once", "The fox\n\n Once \nA\\nB") == ["Once", "The fox", "A\nB"]
    with pytest.raises(
        ValueError, match="prompts may be at most 32, including the Run tab's, got 33"
    ):
        explore.read_prompts("Once", "\n".join(map(str, range(32))))


def rounds(*moments: float, seconds: float, kept: int = 0) -> list[tuple[float, Event]]:
    return [
        (moment, Event(EventKind.STEP, num_draft=4, num_accepted=kept, total_seconds=seconds))
        for moment in moments
    ]


def samples(times: dict[tuple[int, int], list[float]]) -> list[BatchSample]:
    """By size and k how many times as fast as plain decoding it was, turn by turn."""
    plain = [
        BatchSample(size, 0, turn, 100.0)
        for size in {size for size, _ in times}
        for turn in range(4)
    ]
    return plain + [
        BatchSample(size, k, turn, 100 * x)
        for (size, k), of in times.items()
        for turn, x in enumerate(of)
    ]


FAST, EVEN, SLOW = [1.5, 1.6, 1.55, 1.52], [1.0, 1.1, 0.9, 1.02], [0.7, 0.72, 0.69, 0.7]


def test_only_rounds_with_all_texts_decoded_count_against_plain_ones_of_the_same_size_and_turn():
    # The second text joins at 2 and the first ends at 5; alone, each is ten times as quick.
    first = rounds(1, seconds=0.001) + rounds(2, 3, 4, 5, seconds=0.01, kept=1)
    second = rounds(2, 3, 4, 5, seconds=0.01, kept=2) + rounds(6, 7, seconds=0.001)
    assert full_speed([first, second]) == pytest.approx(2 / 0.01 + 3 / 0.01)
    assert (
        full_speed([rounds(1, 2, seconds=0.01), rounds(3, 4, seconds=0.01)])
        is full_speed([first, []])
        is None
    )
    speeds = {(0, 0): 100.0, (0, 1): 200.0, (4, 0): 200.0, (4, 1): 400.0}
    found = [BatchSample(2, k, turn, speed) for (k, turn), speed in speeds.items()]
    assert batch_speedups(found)[2, 4].mean == pytest.approx(2.0)


def test_the_sentence_answers_at_which_size_drafting_stops_paying():
    assert (
        where_it_pays(samples({(1, 2): FAST, (1, 4): FAST, (8, 2): EVEN, (8, 4): SLOW}))
        == "Drafting does not clearly pay off with 8 texts at once or more; "
        "with 1 text, k = 2 and 4 are clearly faster than plain decoding"
    )
    middle = where_it_pays(samples({(1, 2): EVEN, (4, 2): FAST, (8, 2): SLOW}))
    assert middle.startswith("Drafting does not clearly pay off with 8 texts")
    assert (
        where_it_pays(samples({(1, 2): FAST, (8, 2): FAST, (1, 4): SLOW, (8, 4): SLOW}))
        == "Drafting still pays off with 8 texts at once, the most that were tried: k = 2 is"
        " clearly faster than plain decoding"
    )
    assert where_it_pays([BatchSample(1, 0, 0, 100.0)]).startswith("No batch was long enough")
    assert (
        where_it_pays(samples({(1, 2): EVEN}))
        == "Drafting did not clearly pay off with 1 text at once"
    )
    nowhere = "Drafting did not clearly pay off at any size, from 1 to 4 texts at once"
    assert where_it_pays(samples({(1, 2): EVEN, (4, 2): SLOW})) == nowhere


def test_real_batches_are_measured_and_impossible_settings_refused(catalog):
    assert sizes_for(catalog, "")[:2] == [1, 2]
    settings = Settings(max_tokens=24, temperature=0.0)
    places = list(
        sweep_batches(catalog, settings, ["Once upon a time", "The fox"], [2], [1, 3], turns=1)
    )
    assert [place.done for place in places] == list(range(5))
    assert places[1].running == "1 at once, k = 2"
    assert [(s.size, s.k) for s in places[-1].samples] == [(1, 0), (1, 2), (3, 0), (3, 2)]
    assert all(s.tokens_per_second > 0 for s in places[-1].samples)
    with pytest.raises(ValueError, match="temperature"):
        list(sweep_batches(catalog, Settings(temperature=-1.0), ["Once"], [2], [1]))


def test_the_expected_time_counts_the_runs_of_a_sweep_at_the_pace_of_the_samples():
    recorded = explore.recorded_exploration()
    runs, seconds = explore.expected_time(recorded.samples, [1, 3], [0.0, 1.0], 2, 64, 3)
    assert runs == 2 * (1 + 3) * 3  # prompts, seeds per temperature, plain and two k
    mean = sum(1 / sample.speed for sample in recorded.samples) / len(recorded.samples)
    assert seconds == pytest.approx(runs * 64 * mean)
    assert explore.expected_time(recorded.samples, [], [0.0], 2, 64, 3) == (0, 0)
