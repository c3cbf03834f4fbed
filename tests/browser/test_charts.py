"""What the five charts, the headline and the race say, for ordinary runs and for those that have
hardly anything to say.

The browser makes them of the run's events; here it is given runs made by hand, and its figures
are checked by Plotly.
"""

import json
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any, NamedTuple

import plotly.graph_objects as go
import pytest
from playwright.sync_api import Page

from naive_speculate import SamplingParams
from naive_speculate.events import Event, EventKind, FinishReason, MeasuredSpeedup
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.theory import speedup as expected_speedup
from tests.browser.steps import script
from tests.ui.drawn import drawn
from tests.ui.handmade import run
from ui.charts.figures import BOARD
from ui.labels import percent
from ui.run.runs import ShownRun
from ui.run.stage import batch

WAITING = "No step is finished yet."
NO_DRAFTS = "Nothing was drafted in this run: plain decoding, one token per step."
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
COUNTS = {
    "tokens_per_round": 3.1,
    "num_draft_tokens": 3.6,
    "verify_cost": 1.36,
    "draft_cost": 0.08,
    "tokens": 60,
}
MEASURED = MeasuredSpeedup(
    1.6, 1.45, 1.84, plain_rate=100.0, rate=160.0, machine="a machine", **COUNTS
)
SHOW = script("show")


class Shown(NamedTuple):
    """What the page shows of a run: its charts by their ids, the headline's values and notes,
    and its sentence."""

    figures: dict[str, go.Figure]
    numbers: list[tuple[str, str]]
    sentence: str


@pytest.fixture(scope="module")
def show(scripts: Page) -> Any:
    """What the page's own scripts make of a trace: `show(trace, upto=…, speedup=…, unmeasured=…,
    live=…)`."""

    def shown(trace: Trace, *, upto=None, speedup=None, unmeasured=None, live=True) -> Shown:
        events = json.loads(batch(ShownRun(trace)))["events"]
        upto = len(events) if upto is None else upto
        given = [events, [upto], asdict(speedup) if speedup else None, unmeasured, live]
        ((figures, numbers, sentence),) = scripts.evaluate(SHOW, given)
        return Shown(
            {name: drawn(figure) for name, figure in figures.items()},
            [tuple(pair) for pair in numbers],
            sentence,
        )

    return shown


@pytest.fixture
def chart(show: Callable[..., Shown]) -> Any:
    """One of the charts: `chart(name, trace)`."""
    return lambda name, trace, **how: show(trace, **how).figures[f"chart-{name}"]


def note(figure: go.Figure) -> str:
    return (
        figure.layout.meta
        if figure.data
        else figure.layout.annotations[0].text.replace("<br>", " ")
    )


@pytest.mark.parametrize("case", DEGENERATE)
def test_every_run_has_every_chart_and_says_something(case, show):
    figures = show(DEGENERATE[case]).figures
    assert set(figures) == set(BOARD)
    for figure in figures.values():
        assert len(figure.layout.meta) > 10
        assert note(figure) == figure.layout.meta


def test_before_the_first_step_all_waits_and_a_run_without_drafts_is_called_plain(show):
    waiting, plain = show(run([], finished=False)), show(run([(0, 0)] * 3))
    for figure in waiting.figures.values():
        assert note(figure) == WAITING
        assert not figure.data
    assert "drafting the first step" in waiting.sentence
    assert [value for value, _ in waiting.numbers] == ["–"] * 4
    for name in ("acceptance", "positions", "lengths", "speedup"):
        assert note(plain.figures[f"chart-{name}"]) == NO_DRAFTS
    assert "one token per pass" in plain.sentence
    assert plain.numbers[0] == ("–", "nothing was drafted")


def test_acceptance_shows_each_step_and_the_mean_and_lengths_are_the_metrics_histogram_as_shares(
    chart,
):
    trace = run(USUAL)
    figure = chart("acceptance", trace)
    bars, mean, none = figure.data
    assert (list(none.x), list(bars.x)) == ([3], [1, 2, 3, 4, 5])
    assert list(bars.y) == [1.0, 0.25, 0.0, 0.75, 1.0]
    assert list(bars.customdata[3]) == [3, 4]
    assert list(mean.y) == pytest.approx([1.0, 5 / 8, 5 / 12, 8 / 16, 10 / 18])
    assert note(figure) == "10 of 18 draft tokens accepted: 56%"
    figure = chart("lengths", trace)
    (bars,) = figure.data
    assert list(bars.customdata) == trace.metrics.acceptance_histogram == [1, 1, 1, 1, 1]
    assert sum(bars.y) == pytest.approx(1)
    assert f"{trace.metrics.mean_acceptance_length:.2f} tokens per target pass" in note(figure)


def test_positions_count_only_drafts_that_were_still_in_the_running(chart):
    (bars, windows, line), metrics = chart("positions", run(USUAL)).data, run(USUAL).metrics
    assert [tuple(pair)[:2] for pair in bars.customdata] == [(4, 5), (3, 4), (2, 2), (1, 2)]
    unconditional, judged = (
        metrics.unconditional_acceptance_rate_per_position,
        metrics.acceptance_rate_per_position,
    )
    assert list(windows.y) == pytest.approx([4 / 5, 3 / 5, 2 / 5, 1 / 5])
    assert list(windows.y) == pytest.approx(unconditional)
    assert list(bars.y) == pytest.approx([4 / 5, 3 / 4, 1.0, 1 / 2])
    assert list(bars.y) == pytest.approx(judged)
    assert "vLLM" in windows.name
    assert line.y[0] == pytest.approx(metrics.alpha)


def test_timing_stacks_to_the_steps_whole_time_and_one_slow_step_does_not_squash_the_others(chart):
    draft, verify, rest = chart("timing", run(USUAL)).data
    for bars, milliseconds in ((draft, [4, 4, 4, 4, 2]), (verify, [10] * 5), (rest, [1] * 5)):
        assert list(bars.y) == pytest.approx(milliseconds)
    assert draft.marker.pattern.shape != verify.marker.pattern.shape  # distinct without colour
    trace = run([(4, 2)] * 30)
    slow = next(event for event in trace if event.total_seconds is not None)
    slow.total_seconds = 3.0
    assert chart("timing", trace).layout.yaxis.range[1] <= 20


def test_a_chart_of_many_steps_is_an_outline_of_the_same_numbers_and_0_where_nothing_was_drafted(
    show,
):
    few, many = show(run([(2, 1)] * 12)).figures, show(run([(2, 1)] * 300)).figures
    for name, traces in (("chart-acceptance", 1), ("chart-timing", 3)):
        for figures, kind, amount in ((few, "bar", 12), (many, "scatter", 300)):
            for trace in figures[name].data[:traces]:
                assert (trace.type, len(trace.x), len(trace.y)) == (kind, amount, amount)
    assert list(many["chart-acceptance"].data[0].y) == [0.5] * 300
    assert [trace.y[7] for trace in many["chart-timing"].data] == pytest.approx([2, 10, 1])
    assert all(not trace.marker.to_plotly_json() for trace in many["chart-timing"].data)
    outline, _, none = (
        show(run([(2, 2), (0, 0), (0, 0), (2, 0)] * 20)).figures["chart-acceptance"].data
    )
    assert list(outline.x) == list(none.x) == list(range(1, 81))
    assert list(outline.y[:4]) == [1.0, 0.0, 0.0, 0.0]
    assert list(none.y[:4]) == [0, 0, 0, 0.025]


@pytest.mark.parametrize(("way", "other"), [("sampled", "argmax"), ("argmax", "sampled")])
def test_positions_compare_sampled_and_argmax_drafts(way, other, chart, small_decoder):
    params = SamplingParams(max_tokens=40, temperature=0.8, seed=4, ignore_eos=True)
    trace = small_decoder.generate(
        "Once upon a time", params, num_draft_tokens=3, draft_sampling=way
    ).trace
    figure, rates = chart("positions", trace), trace.draft_sampling_rates
    (marks,) = (drawn for drawn in figure.data if drawn.name == f"exact α of {other} drafts")
    assert list(marks.y) == pytest.approx(
        getattr(trace.metrics, f"{other}_acceptance_per_position")
    )
    verdict = "worse for this run" if rates.better == way else "better for this run"
    assert f"{other.capitalize()} drafts: {getattr(rates, other):.2f}, {verdict}" in note(figure)


def test_speedup_draws_theory_and_what_was_measured_and_says_when_nothing_was(chart):
    trace = run(USUAL)
    measured, unmeasured = chart("speedup", trace, speedup=MEASURED), chart("speedup", trace)
    theorem, here, point, plain = measured.data
    alpha = trace.metrics.alpha
    assert [theorem.y[k] for k in (0, 3)] == pytest.approx([1.0, expected_speedup(alpha, 3, 0.08)])
    # The check of 3.6 drafts was measured as 1.36, so that one of 2 drafts is taken to cost 1.2.
    assert here.y[2] == pytest.approx(expected_speedup(alpha, 2, 0.08, 1.2))
    assert (list(point.x), list(point.y)) == ([3.6], [1.6])
    assert (point.error_y.array[0], point.error_y.arrayminus[0]) == pytest.approx((0.24, 0.15))
    assert list(plain.y) == [1, 1]
    named = ["Theorem 3.8, Leviathan et al. 2023", "costs as measured here", "this run, measured"]
    assert [line.name for line in measured.data if line.name] == named
    assert [line.name for line in unmeasured.data if line.name] == named[:1]
    assert "if verifying costs nothing extra" in unmeasured.layout.meta


def test_drafts_that_are_nearly_all_kept_are_never_advised_against(chart):
    """A slow start or a long prompt once made plain decoding look faster than it was, and best k
    = 0 at α = 0.93."""
    trace = run([(5, 5)] * 12 + [(5, 4)])
    assert trace.metrics.alpha > 0.93
    for event in trace:
        event.time += 3.0  # seconds that the prompt took
    for speedup in (None, MEASURED):
        said = chart("speedup", trace, speedup=speedup).layout.meta
        assert int(said.split("Best would be k = ")[1].split(":")[0]) >= 4


def test_axes_stay_while_a_run_goes_on_and_are_laid_out_once(scripts):
    random.seed(3)
    trace = run([(4, random.choice([0, 1, 2, 3, 4])) for _ in range(60)], finished=False)
    ends = [number + 1 for number, event in enumerate(trace) if event.kind == EventKind.STEP]
    shown = scripts.evaluate(
        SHOW, [json.loads(batch(ShownRun(trace)))["events"], ends[3:], None, None, True]
    )
    for name in BOARD:
        layouts = [figures[name]["layout"] for figures, *_ in shown]
        ranges = [(layout["xaxis"]["range"], layout["yaxis"]["range"]) for layout in layouts]
        assert len(list(groupby(ranges))) <= 3, name
        assert {
            layout[axis]["automargin"] for layout in layouts for axis in ("xaxis", "yaxis")
        } == {False}
        assert min(layouts[0]["margin"].values()) > 0


def test_a_trace_that_claims_nonsense_is_drawn_within_bounds(chart):
    trace = run([(4, 3), (4, 2)])
    step = next(event for event in trace if event.num_draft is not None)
    step.num_accepted, step.draft_seconds, step.num_draft = 10**9, -5.0, 10**9
    bars, mean, _ = chart("acceptance", trace).data
    assert max(bars.y) <= 1
    assert max(mean.y) <= 1
    assert min(chart("timing", trace).data[0].y) >= 0
    assert len(chart("positions", trace).data[0].x) <= 64


def test_positions_of_a_trace_without_exact_alphas_do_not_compare_the_ways_of_drafting(chart):
    trace = run([(4, 3), (4, 2)])
    for event in trace:
        if event.kind == EventKind.PROPOSED:
            event.argmax_accept = 0.5
    assert "Argmax" not in note(chart("positions", trace))
    for event in trace:
        if event.kind == EventKind.PROPOSED:
            event.expected_accept = 0.25
    assert "Argmax drafts: 0.50, better for this run" in note(chart("positions", trace))


def test_the_headline_says_what_the_metrics_say(show):
    trace = run([(4, 4), (4, 0)])  # 6 tokens; 4 of 8 drafts; 30 ms
    assert show(trace, speedup=MEASURED).numbers == [
        ("50%", "accepted 4, rejected 1 and discarded 3. α = 0.80 of 5 judged positions."),
        ("3.00", "plain decoding: 1"),
        ("200", "this run, including prompt processing"),
        (
            "1.60× (1.45 to 1.84)",
            (
                "Measured again, without the prompt: 100 tokens per second plain, 160 with drafts"
                " (3.10 tokens per target pass). a machine"
            ),
        ),
    ]
    too_fast = replace(MEASURED, value=3.4, low=3.2, high=3.6)  # 3.10 tokens per target pass
    assert show(trace, speedup=too_fast).numbers[3][0] == "–"
    assert "Other programs disturbed the measurement" in show(trace, speedup=too_fast).numbers[3][1]
    assert (
        "proposed 8 draft tokens; the target model accepted 4, rejected 1 and discarded 3:"
        in show(trace).sentence
    )
    assert "6 tokens in 2 passes of the target model instead of 6" in show(trace).sentence
    assert show(trace, live=False).sentence.startswith("In this recorded run, the draft model")


def test_what_comes_after_the_end_of_the_text_is_counted_as_in_the_legend(show):
    trace = run([(4, 4), (4, 3)])
    *_, accepted, rejected, own, _step, _finished = trace.events
    assert (accepted.kind, rejected.kind, own.kind) == ("accepted", "rejected", "resampled")
    for event, says in (
        (own, "the target's own token"),
        (accepted, "the target's own token and 1 accepted one,"),
    ):
        event.kind, event.reason = EventKind.DISCARDED, "length"
        kinds = [each.kind for each in trace]
        counts = [kinds.count(kind) for kind in ("accepted", "rejected", "discarded")]
        said = (
            f"accepted {counts[0]}, rejected {counts[1]} and discarded {counts[2]} (with {says}"
            " after the end of the text)"
        )
        shown = show(trace)
        assert said in shown.sentence
        assert shown.numbers[0][1].startswith(said)
        assert shown.numbers[0][0] == percent(trace.metrics.draft_acceptance_rate)
    assert "α = 0.88 of 8 judged positions" in shown.numbers[0][1]
    pace = f"{trace.metrics.mean_acceptance_length:.2f}"
    assert shown.numbers[1] == (pace, "with 2 tokens after the end of the text; plain decoding: 1")


def test_the_headline_is_of_the_run_so_far_and_says_why_there_is_no_speedup_and_how_it_ended(
    show,
):
    trace = run([(3, 1), (3, 3)], finished=False)
    trace.append(
        Event(EventKind.FINISHED, finish_reason=FinishReason.ERROR, message="<img> is lost")
    )
    first = next(number for number, event in enumerate(trace) if event.kind == EventKind.STEP)
    assert "2 tokens in 1 pass of" in show(trace, upto=first + 1).sentence
    assert show(trace).sentence.endswith("It ended in an error: <img> is lost")
    assert "error" not in show(trace, upto=len(trace) - 1).sentence
    assert show(trace).numbers[3] == ("–", "measured after the run")
    assert "being measured" in show(trace, unmeasured={"measuring": True}).numbers[3][1]
    assert show(trace, unmeasured={"reason": "Others are decoding.", "again": True}).numbers[3] == (
        "–",
        "Others are decoding.",
    )
    shown = show(
        run([(4, 4), (4, 0)], verify_strategy="block_verification")
    )  # which reaches every draft
    assert "accepted 4, rejected 1 and discarded 3" in shown.sentence
    assert "never" not in shown.sentence + shown.numbers[0][1]


NAMES = """async (kinds) => {
    const { nameOf } = await import("/format.js");
    return kinds.map(([kind, index]) => nameOf({ kind, index }));
}"""


def test_browser_and_server_write_a_share_in_the_same_way_and_a_token_of_plain_decoding_is_no_bonus(
    scripts,
):
    shares = sorted(
        {k / n for n in range(1, 41) for k in range(n + 1)}
        | {0.0001, 0.00499, 0.99501, 0.125, 0.145}
    )
    written = scripts.evaluate(
        "async (all) => all.map((await import('/format.js')).percent)", shares
    )
    assert written == [percent(share) for share in shares]
    kinds = {
        ("proposed", 1): "drafted",
        ("resampled", 1): "resampled",
        ("bonus", 1): "bonus",
        ("bonus", 0): "from the target",
    }
    assert scripts.evaluate(NAMES, [list(kind) for kind in kinds]) == [*kinds.values()]


EACH = " per token after the first pass"
VERDICT = "async (run) => (await import('/race.js')).verdict(run)"
GREEDY, SAMPLED = {"temperature": 0}, {"temperature": 0.7}


def lane(tokens: int, seconds: float, passes: int, first: int | None = None) -> dict[str, Any]:
    """The sums of a run whose first pass takes a second, because it also processes the prompt."""
    begin = {"time": 1, "tokens": tokens // passes if first is None else first}
    whole = {"time": seconds, "tokens": tokens}
    upto = [{"time": 0, "tokens": 0}, begin, whole]
    return {"ids": list(range(tokens)), "whole": whole, "upto": upto, "rounds": [None] * passes}


PASSES = "6 target passes instead of 12 · "
RESULTS = [
    (GREEDY, lane(12, 6, 12), "1.5× faster", "same text"),
    # It was stopped: the texts are the same. 0.5 seconds per token, and 0.3 with drafts.
    (
        GREEDY,
        lane(8, 4.5, 8),
        f"1.7× faster{EACH}",
        "same text up to token 8, where the target alone was stopped",
    ),
    (
        SAMPLED,
        lane(4, 1.6, 4),
        f"Slower: 0.67×{EACH}",
        "same distribution; the target alone wrote 4 tokens",
    ),
    (
        SAMPLED,
        lane(1, 1, 1),
        "The text is too short to be timed.",
        "same distribution; the target alone wrote 1 token",
    ),
    (SAMPLED, lane(12, 4.1, 12), "As fast as without drafts", "same distribution"),
    (GREEDY, lane(12, 10, 12), "Other programs were busy, so the times say little", "same text"),
]


@pytest.mark.parametrize(("settings", "plain", "result", "rest"), RESULTS)
def test_the_result_says_what_the_lanes_show(scripts, settings, plain, result, rest):
    run = {"plain": plain, "drafts": lane(12, 4, 6) | {"settings": settings}, "crowded": False}
    assert scripts.evaluate(VERDICT, run) == [f"4.00 s · {result}", PASSES + rest]


def test_the_most_that_is_possible_counts_what_is_timed(scripts):
    """Without the first pass, which gave one token: 11 tokens in 5 passes, 2.2 per pass, though
    all 12 are 2 per pass."""
    run = {
        "plain": lane(8, 5.2, 8),
        "drafts": lane(12, 4, 6, first=1) | {"settings": SAMPLED},
        "crowded": False,
    }
    assert scripts.evaluate(VERDICT, run)[0] == f"4.00 s · 2.2× faster{EACH}"
