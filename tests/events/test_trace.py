"""Traces and their figures: saved and loaded without loss, the same whichever way they are
taken; hostile files are refused."""

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind, TokenProb
from naive_speculate.events.event import MeasuredSpeedup
from naive_speculate.events.metrics import Summary, summarize
from naive_speculate.events.trace import Trace, dumps
from naive_speculate.tools.show.speedup import compare
from tests.ui.handmade import run

SPEEDUP = MeasuredSpeedup(1.0, 0.9, 1.1, 40.0, 40.0, 1.0, 0.0, 1.0, None, 9, "a machine")
RUN = run([(3, 1), (1, 1), (0, 0)])
RUN[0].prompt, RUN[1].draft_top, RUN[-1].speedup = (
    "<b>\u2028\"'",
    [TokenProb(5, "\x00<i>", 0.5)],
    SPEEDUP,
)
TEXTS = ["é\u2028", "\r\n", " a", "🎉", "."]
for written, text in zip(
    (event for event in RUN if event.kind in OUTPUT_KINDS), TEXTS, strict=True
):
    written.text = text


def test_a_trace_survives_saving_and_loading(tmp_path):
    RUN.save(tmp_path / "run.jsonl")
    loaded = Trace.load(tmp_path / "run.jsonl")
    assert loaded.events == RUN.events
    assert loaded.text == "".join(TEXTS)
    assert loaded.token_ids == [event.token_id for event in RUN if event.kind in OUTPUT_KINDS]
    assert loaded.started == RUN[0]
    assert (loaded.finished.finish_reason, loaded.finished.speedup) == ("length", SPEEDUP)
    sparse = {"kind": "step", "row": 0, "time": 0.0, "step": 1, "num_draft": 0}
    assert Event(EventKind.STEP, step=1, num_draft=0).to_dict() == sparse, (
        "fields that do not apply are left out"
    )


def test_the_metrics_are_these():
    m = RUN.metrics
    assert (m.num_generated_tokens, m.num_spec_steps, m.num_draft_tokens) == (5, 3, 4)
    assert (m.num_accepted_draft_tokens, m.num_rejected_draft_tokens) == (2, 1)
    assert m.draft_acceptance_rate == pytest.approx(2 / 4)
    assert m.alpha == pytest.approx(2 / 3)
    assert m.mean_acceptance_length == pytest.approx(5 / 3)
    assert m.acceptance_histogram == [1, 2, 0, 0]
    assert m.acceptance_rate_per_position == [1.0, 0.0, None]
    assert m.tokens_per_second == pytest.approx(5 / 0.037)
    assert (m.draft_seconds, m.verify_seconds, m.total_seconds) == pytest.approx(
        (0.004, 0.03, 0.037)
    )
    assert m.time_to_first_token == pytest.approx(0.014)
    assert summarize([]).to_dict()["alpha"] is None
    both = Trace([Event(EventKind.STEP, row, num_draft=2, num_accepted=row + 1) for row in (0, 1)])
    assert summarize(both.row(1)).num_accepted_draft_tokens == 2
    assert len(both.row(1)) == 1


WHOLE = "schema_version must be a whole number from 1"
VERSIONS = [
    ('"1"', "'1'"),
    ('"2"', "'2'"),
    ("1.0", "1.0"),
    ("2.0", "2.0"),
    ("-5", "-5"),
    ("0", "0"),
    ("true", "True"),
]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "it contains no event"),
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: expected an object, got list"),
        ('{"kind":"started","time":NaN}', "line 1: not JSON .*NaN"),
        ('{"kind":"started","time":1e999}', "line 1: not JSON .*1e999 is too large"),
        ('{"kind":"started","time":"Infinity"}', "line 1: time: .*finite"),
        (
            '{"kind":"accepted","draft_top":[{"token_id":1,"text":"a","prob":"nan"}]}',
            "line 1: draft_top.0.prob: .*finite",
        ),
        ('{"kind":"dance"}', "line 1: kind"),
        ('{"kind":"step"}', "the first event is 'step', expected 'started'"),
        (
            '{"kind":"started","schema_version":99}',
            "line 1: schema version 99 is newer than the supported 1",
        ),
        *(
            (f'{{"kind":"started","schema_version":{given}}}', f"line 1: {WHOLE}, got {shown}$")
            for given, shown in VERSIONS
        ),
        (
            '{"kind":"started","schema_version":null}',
            "line 1: the 'started' event has no schema_version, expected 1",
        ),
        ('{"kind":"started"}', "line 1: the 'started' event has no schema_version, expected 1"),
        ('{"kind":"started","prompt_token_ids":"abc"}', "line 1: prompt_token_ids"),
        (
            '{"kind":"started","schema_version":1}\n{"kind":"accepted","text":["<script>"]}',
            "line 2: text",
        ),
        ("[" * 100_000, "line 1"),
    ],
)
def test_a_broken_trace_is_refused_with_the_line(line, message):
    with pytest.raises(ValueError, match=message):
        Trace.from_jsonl(line)


def test_a_line_is_as_long_as_it_likes_but_for_a_stranger_and_bytes_that_are_no_text_are_refused(
    tmp_path,
):
    whole = Trace(
        [
            Event(
                EventKind.STARTED, row=0, step=0, time=0.0, schema_version=1, prompt="x" * 5_000_000
            )
        ]
    )
    whole.save(tmp_path / "long.jsonl")
    assert Trace.load(tmp_path / "long.jsonl")[0].prompt == whole[0].prompt
    with pytest.raises(
        ValueError, match=r"^trace line 1: 50\d+ characters, at most 4000000 are read$"
    ):
        Trace.from_jsonl(whole.to_jsonl(), max_line=4_000_000)
    (tmp_path / "x.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8 text"):
        Trace.load(tmp_path / "x.jsonl")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from([*Event.__dataclass_fields__, "unknown"]), JSON, max_size=6
)


def test_a_byte_order_mark_and_empty_lines_are_no_part_of_a_trace(tmp_path):
    path = tmp_path / "run.jsonl"
    for mark, rest in (("\ufeff", ""), ("", "\n \n"), ("\ufeff", "\r\n\r\n")):
        path.write_text(mark + RUN.to_jsonl() + rest, encoding="utf-8", newline="")
        assert Trace.load(path).events == RUN.events


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_two_runs_in_one_file_are_refused_where_the_second_starts_and_rows_of_a_batch_are_not(mark):
    message = rf"trace line {len(RUN) + 1}: a second run starts here; open each run from a file"
    with pytest.raises(ValueError, match=message):
        Trace.from_jsonl(RUN.to_jsonl() + mark + RUN.to_jsonl())
    other = [replace(event, row=1) for event in RUN]
    both = Trace([*RUN, *other])
    assert Trace.from_jsonl(both.to_jsonl()).events == both.events


@settings(max_examples=25, deadline=None)
@given(st.lists(FIELDS, max_size=3), st.text(max_size=20))
def test_no_file_does_anything_but_load_or_be_refused(events, junk):
    text = dumps(RUN[0]) + "\n" + "\n".join(json.dumps(event) for event in events) + junk
    refusal, trace = "", None
    try:
        trace = Trace.from_jsonl(text)
    except ValueError as error:
        refusal = str(error)
    if trace is None:
        assert refusal.startswith("trace")
    else:
        assert Trace.from_jsonl(trace.to_jsonl()).events == trace.events
        assert isinstance(trace.text, str)


def test_a_trace_that_an_earlier_version_saved_still_opens():
    trace = Trace.load(Path(__file__).parent / "traces" / "version-0.1.0.jsonl")
    assert trace.started.settings["num_draft_tokens"] == 0
    assert (
        len(trace.token_ids)
        == trace.metrics.num_generated_tokens
        == trace.finished.metrics["num_generated_tokens"]
    )
    assert trace.text.startswith(" ")
    assert Trace.from_jsonl(trace.to_jsonl()).events == trace.events


def steps(windows: list[tuple[int, int]]) -> list[Event]:
    return [
        Event(EventKind.STEP, num_draft=drafted, num_accepted=accepted)
        for drafted, accepted in windows
    ]


@contextmanager
def at_most(lines: int) -> Iterator[None]:
    """A block that may run so many lines of Python; it is cut off where it takes more."""
    count = 0

    def look(frame, kind, _):
        nonlocal count
        count += kind == "line"
        assert count <= lines, f"more than {lines} lines"
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield
    finally:
        sys.settrace(before)


def test_a_long_run_with_wide_windows_costs_a_few_lines_an_event_and_figures_no_look_back():
    few, many = (
        steps([(1024, number % 1025) for number in range(count)]) for count in (1000, 20_000)
    )
    with at_most(60_000):
        summarize(few)
    m = summarize(many)
    assert (m.num_spec_steps, sum(m.acceptance_histogram)) == (20_000, 20_000)
    assert len(m.acceptance_rate_per_position) == 1024
    summary, told, events = Summary(), [], steps([(4, number % 5) for number in range(1000)])
    with at_most(200_000):
        for event in events:
            summary.add(event)
            told.append(summary.metrics.num_accepted_draft_tokens)
    assert told == [*accumulate(event.num_accepted for event in events)]


WINDOWS = st.lists(
    st.integers(0, 6).flatmap(lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted)))
)


@settings(deadline=None, max_examples=40)
@given(WINDOWS)
def test_the_rate_of_a_place_is_kept_among_those_that_reached_it_at_any_time_of_the_run(windows):
    m = summarize(steps(windows))
    longest = max((drafted for drafted, _ in windows), default=0)
    expected = []
    for place in range(longest):
        reached = [
            accepted for drafted, accepted in windows if drafted > place and accepted >= place
        ]
        expected.append(
            sum(accepted > place for accepted in reached) / len(reached) if reached else None
        )
    assert m.acceptance_rate_per_position == expected
    windows_drafted = [accepted for drafted, accepted in windows if drafted]
    assert m.unconditional_acceptance_rate_per_position == [
        sum(accepted > place for accepted in windows_drafted) / len(windows_drafted)
        for place in range(longest)
    ]
    assert m.acceptance_histogram == [
        sum(a == count for _, a in windows) for count in range(longest + 1 if windows else 0)
    ]
    summary, told = Summary(), []
    for event in (events := steps(windows)):
        summary.add(event)
        told.append(summary.metrics)
    assert told == [summarize(events[: number + 1]) for number in range(len(events))], (
        "later events change nothing before"
    )


def decoded(
    windows: list[tuple[int, int]],
    *,
    draft: float = 0.001,
    verify: float = 0.01,
    prompt: float = 0.0,
    noise: float = 0.0,
):
    """A run whose rounds take so long, each up to `noise` longer, after a prompt that takes
    `prompt` seconds."""
    dice, clock, events = random.Random(len(windows)), prompt, []
    for number, (drafted, accepted) in enumerate(windows):
        seconds = {
            "draft_seconds": drafted * draft,
            "verify_seconds": verify * (1 + noise * dice.random()),
        }
        clock += sum(seconds.values())
        events.append(
            Event(
                EventKind.STEP,
                step=number,
                time=clock,
                num_draft=drafted,
                num_accepted=accepted,
                **seconds,
            )
        )
    return events


PLAIN = decoded([(0, 0)] * 20)
DRAFTED = decoded([(4, 3)] * 9)
QUIET = compare([PLAIN, PLAIN], [DRAFTED], "a machine")


def test_it_is_the_time_of_a_token_over_that_of_one_with_drafts():
    found = compare([PLAIN] * 2, [decoded([(4, 3)] * 9, verify=0.016)], "here")
    assert found.value == pytest.approx(4 * 0.01 / 0.02)
    assert (found.plain_rate, found.rate) == pytest.approx((100, 200))
    assert (found.tokens_per_round, found.num_draft_tokens) == (4, 4)
    assert (found.verify_cost, found.draft_cost) == pytest.approx((1.6, 0.1))
    assert (found.tokens, found.machine) == (32, "here")


@pytest.mark.parametrize("noise", [0.0, 0.3, 2.0])
def test_plain_decoding_against_itself_is_one_within_its_range(noise):
    runs = [decoded([(0, 0)] * (60 + n), noise=noise) for n in range(3)]
    found = compare([runs[0], runs[2]], [runs[1]], "")
    assert found.low <= 1 <= found.high
    assert found.draft_cost is None


def test_the_interval_holds_the_truth_in_95_of_100_measurements():
    """Verification passes that take up to half as long again, of which the lower quartile
    counts, and seven of ten drafts accepted."""
    dice, held = random.Random(5), 0

    def measured(windows: list[tuple[int, int]]) -> list[Event]:
        events = decoded(windows)
        for event, pause in zip(events, accumulate(dice.random() for _ in events), strict=True):
            event.time += 0.005 * pause
        return events

    def accepted() -> int:
        return next((n for n in range(4) if dice.random() > 0.7), 4)

    tokens = sum(0.7**n for n in range(5))
    for _ in range(200):
        plain = [measured([(0, 0)] * 64) for _ in range(2)]
        found = compare(plain, [measured([(4, accepted()) for _ in range(24)])], "")
        held += found.low <= tokens * 0.01125 / (0.004 + 0.01125) <= found.high
    assert 0.91 < held / 200 < 0.99


def test_neither_the_prompt_nor_one_long_pause_counts():
    with_prompt = [decoded(windows, prompt=3.0) for windows in ([(0, 0)] * 20, [(4, 3)] * 9)]
    paused = decoded([(0, 0)] * 20)
    for event in paused[10:]:
        event.time += 5.0
    for plain, drafted in (([with_prompt[0]] * 2, with_prompt[1]), ([PLAIN, paused], DRAFTED)):
        assert compare(plain, [drafted], "").value == pytest.approx(QUIET.value)


def test_a_machine_that_grew_slower_and_rounds_that_kept_more_or_less_widen_the_range():
    drifted = compare([PLAIN, decoded([(0, 0)] * 20, verify=0.02)], [DRAFTED], "")
    assert QUIET.low == pytest.approx(QUIET.value) == QUIET.high
    assert drifted.low < 0.8 * drifted.value < 1.25 * drifted.value < drifted.high
    uneven = compare(
        [PLAIN] * 2, [decoded([(4, kept) for kept in (4, 0, 3, 1, 4, 4, 0, 2, 4)])], ""
    )
    assert uneven.low < 0.9 * uneven.value < 1.1 * uneven.value < uneven.high


def test_a_text_of_a_few_rounds_is_not_timed_and_every_drafted_run_stands_between_plain_ones():
    assert compare([PLAIN] * 2, [DRAFTED[:3]], "") is None
    assert compare([[], PLAIN], [DRAFTED], "") is None
    with pytest.raises(
        ValueError, match="plain must have one trace more than drafted, got 1 and 1"
    ):
        compare([PLAIN], [DRAFTED], "")


def test_a_trace_keeps_its_speedup_and_refuses_one_that_cannot_be():
    trace = run([(3, 2)] * 9)
    trace[-1].speedup = QUIET
    text = trace.to_jsonl()
    assert Trace.from_jsonl(text)[-1] == trace[-1]
    for wrong, field in (
        ('"value":1e300,"was":', "value"),
        ('"machine":"' + "a" * 1000 + '","was":', "machine"),
    ):
        with pytest.raises(ValueError, match=rf"speedup\.{field}"):
            Trace.from_jsonl(text.replace(f'"{field}":', wrong))
