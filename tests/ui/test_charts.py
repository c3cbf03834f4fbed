"""What the five charts draw, for ordinary runs and for those that have hardly anything to draw."""

import json
import random
import sys
from types import FrameType

import plotly.graph_objects as go
import pytest

from naive_speculate.palette import DARK, LIGHT
from naive_speculate.theory import speedup as expected_speedup
from naive_speculate.trace import Trace
from tests.ui.handmade import run
from ui.charts import CHARTS, acceptance, lengths, positions, timing
from ui.figures import nice_ceiling, steps_shown
from ui.speedup import costs_of, speedup
from ui.steps import NO_DRAFTS, WAITING

USUAL = [(4, 4), (4, 1), (4, 0), (4, 3), (2, 2)]

DEGENERATE = {
    "empty": Trace([]),
    "started": run([], finished=False),
    "cancelled at once": run([]),
    "no drafts": run([(0, 0)] * 3),
    "all rejected": run([(5, 0)] * 4),
    "all accepted": run([(5, 5)] * 4),
    "one step": run([(3, 2)], finished=False),
    "one draft": run([(1, 0)]),
    "plain at last": run([(4, 2), (0, 0)]),
}


def note(figure: go.Figure) -> str:
    if figure.data:
        return figure.layout.title.text
    return figure.layout.annotations[0].text.replace("<br>", " ")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("case", DEGENERATE)
def test_every_run_has_every_chart_and_says_something(case, name, dark):
    figure = CHARTS[name](DEGENERATE[case], dark)
    assert isinstance(figure, go.Figure)
    assert len(figure.layout.meta) > 10
    assert note(figure) == figure.layout.meta
    json.loads(figure.to_json())


@pytest.mark.parametrize("name", CHARTS)
def test_before_the_first_step_a_chart_waits(name):
    figure = CHARTS[name](run([], finished=False), False)
    assert note(figure) == WAITING
    assert not figure.data


@pytest.mark.parametrize("chart", [acceptance, positions, lengths, speedup])
def test_a_run_without_drafts_is_called_plain(chart):
    assert note(chart(run([(0, 0)] * 3))) == NO_DRAFTS


def test_acceptance_shows_each_step_and_the_mean_over_drafts():
    bars, mean, none = acceptance(run(USUAL)).data
    assert list(none.x) == [3]
    assert list(bars.x) == [1, 2, 3, 4, 5]
    assert list(bars.y) == [1.0, 0.25, 0.0, 0.75, 1.0]
    assert bars.text[3] == "3 of 4 kept"
    assert list(mean.y) == pytest.approx([1.0, 5 / 8, 5 / 12, 8 / 16, 10 / 18])
    assert note(acceptance(run(USUAL))) == "10 of 18 drafts kept: 56%"


def test_positions_count_only_drafts_that_were_still_in_the_running():
    bars, line = positions(run(USUAL)).data
    assert list(bars.text) == ["4/5", "3/4", "2/2", "1/2"]
    assert list(bars.y) == pytest.approx([4 / 5, 3 / 4, 1.0, 1 / 2])
    assert line.y[0] == pytest.approx(run(USUAL).metrics.alpha)
    assert list(bars.y) == pytest.approx(run(USUAL).metrics.acceptance_rate_per_position)


def test_lengths_are_the_metrics_histogram_as_shares():
    trace = run(USUAL)
    (bars,) = lengths(trace).data
    histogram = trace.metrics.acceptance_histogram
    assert [int(text) for text in bars.text] == histogram == [1, 1, 1, 1, 1]
    assert sum(bars.y) == pytest.approx(1)
    assert f"{trace.metrics.mean_acceptance_length:.2f} tokens a round" in note(lengths(trace))


def test_timing_stacks_to_the_steps_whole_time():
    draft, verify, rest = timing(run(USUAL)).data
    assert list(draft.y) == pytest.approx([4, 4, 4, 4, 2])
    assert list(verify.y) == pytest.approx([10] * 5)
    assert list(rest.y) == pytest.approx([1] * 5)
    assert draft.marker.pattern.shape != verify.marker.pattern.shape  # told apart without colour


def test_one_slow_step_does_not_squash_the_others():
    trace = run([(4, 2)] * 30)
    slow = next(event for event in trace if event.total_seconds is not None)
    slow.total_seconds = 3.0
    assert timing(trace).layout.yaxis.range[1] <= 20


def test_speedup_draws_theory_from_measured_numbers_and_the_runs_own_point():
    trace = run(USUAL)
    theorem, here, point, plain = speedup(trace, plain_tokens_per_second=80.0).data
    costs = costs_of(trace, 80.0)
    assert costs.alpha == pytest.approx(trace.metrics.alpha)
    assert costs.draft_cost == pytest.approx(0.001 * 80)
    assert costs.verify_cost == pytest.approx(0.011 * 80)
    assert [theorem.y[k] for k in (0, 3)] == pytest.approx([1.0, expected_speedup(costs.alpha, 3, costs.draft_cost)])
    # A verification of the run's 3.6 drafts on average cost 0.88 plain steps, so one of 2 drafts is taken to cost 0.93.
    assert here.y[2] == pytest.approx(expected_speedup(costs.alpha, 2, costs.draft_cost, 1 - 0.12 * 2 / 3.6))
    assert point.x[0] == pytest.approx(18 / 5)
    # 15 tokens in 5 × 11 ms + 18 ms, against 80 a second
    assert point.y[0] == pytest.approx(15 / 0.073 / 80)
    assert list(plain.y) == [1, 1]


def test_speedup_says_when_the_plain_speed_was_not_measured():
    assert [line.name for line in speedup(run(USUAL)).data] == ["Theorem 3.8", "this run, estimated", "plain"]
    measured = speedup(run(USUAL), plain_tokens_per_second=80.0).data
    assert [line.name for line in measured] == ["Theorem 3.8", "costs as here", "this run", "plain"]


@pytest.mark.parametrize("name", CHARTS)
def test_axes_stay_while_a_run_goes_on(name):
    random.seed(3)
    windows = [(4, random.choice([0, 1, 2, 3, 4])) for _ in range(60)]
    seen = []
    for length in range(4, 61, 2):
        layout = CHARTS[name](run(windows[:length], finished=False), False).layout
        ranges = (tuple(layout.xaxis.range), tuple(layout.yaxis.range))
        if not seen or seen[-1] != ranges:
            seen.append(ranges)
    assert len(seen) <= 3


def test_ceilings_are_round_and_never_below():
    assert [nice_ceiling(v) for v in (0.3, 1, 1.1, 12, 49, 51, 0, float("nan"))] == [0.5, 1, 2, 20, 50, 100, 1, 1]
    assert [steps_shown(n) for n in (0, 1, 16, 17, 300)] == [16, 16, 16, 32, 512]


def test_a_trace_that_claims_nonsense_is_drawn_within_bounds():
    trace = run([(4, 3), (4, 2)])
    step = next(event for event in trace if event.num_draft is not None)
    step.num_accepted, step.draft_seconds = 99, -5.0
    bars, mean, _ = acceptance(trace).data
    assert max(bars.y) <= 1
    assert max(mean.y) <= 1
    assert min(timing(trace).data[0].y) >= 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", CHARTS)
def test_charts_are_transparent_and_take_the_surfaces_ink(name, dark):
    layout = CHARTS[name](run(USUAL), dark).layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert layout.font.color == (DARK if dark else LIGHT).ink


def lines_of_python(name: str, trace: Trace) -> int:
    """How many lines run to draw a chart: its cost, whatever the machine."""
    count = 0

    def look(frame: FrameType, event: str, argument: object):
        nonlocal count
        count += 1
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        CHARTS[name](trace, False).to_json()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_of_a_thousand_tokens_is_cheap_and_its_cost_grows_no_faster_than_the_run(name):
    random.seed(1)
    windows = [(5, random.randint(0, 5)) for _ in range(600)]
    assert len(run(windows[:300]).token_ids) > 950
    lines_of_python(name, run(windows[:20]))  # what Plotly imports and keeps for the first chart is not this chart's
    short, middle, long = (lines_of_python(name, run(windows[:count])) for count in (150, 300, 600))
    assert middle < 300_000
    assert long - middle < 1.1 * 2 * (middle - short)


def test_a_charts_json_stays_small():
    assert len(acceptance(run([(5, 3)] * 300)).to_json()) < 40_000
