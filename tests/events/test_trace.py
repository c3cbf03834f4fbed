"""Traces: saved and loaded without loss; hostile files get a clear refusal."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind, TokenProb
from naive_speculate.events.event import MeasuredSpeedup
from naive_speculate.events.metrics import summarize
from naive_speculate.events.trace import Trace, dumps
from tests.ui.handmade import run

SPEEDUP = MeasuredSpeedup(1.0, 0.9, 1.1, 40.0, 40.0, 1.0, 0.0, 1.0, None, 9, "a machine")
RUN = run([(3, 1), (1, 1), (0, 0)])
RUN[0].prompt, RUN[1].draft_top, RUN[-1].speedup = "<b>\u2028\"'", [TokenProb(5, "\x00<i>", 0.5)], SPEEDUP
TEXTS = ["é\u2028", "\r\n", " a", "🎉", "."]
for written, text in zip((event for event in RUN if event.kind in OUTPUT_KINDS), TEXTS, strict=True):
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
    assert Event(EventKind.STEP, step=1, num_draft=0).to_dict() == sparse, "fields that do not apply are left out"


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
    assert (m.draft_seconds, m.verify_seconds, m.total_seconds) == pytest.approx((0.004, 0.03, 0.037))
    assert m.time_to_first_token == pytest.approx(0.014)
    assert summarize([]).to_dict()["alpha"] is None
    both = Trace([Event(EventKind.STEP, row, num_draft=2, num_accepted=row + 1) for row in (0, 1)])
    assert summarize(both.row(1)).num_accepted_draft_tokens == 2
    assert len(both.row(1)) == 1


WHOLE = "schema_version must be a whole number from 1"
VERSIONS = [('"1"', "'1'"), ('"2"', "'2'"), ("1.0", "1.0"), ("2.0", "2.0"), ("-5", "-5"), ("0", "0"), ("true", "True")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "it contains no event"),
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: expected an object, got list"),
        ('{"kind":"started","time":NaN}', "line 1: not JSON .*NaN"),
        ('{"kind":"started","time":1e999}', "line 1: not JSON .*1e999 is too large"),
        ('{"kind":"started","time":"Infinity"}', "line 1: time: .*finite"),
        ('{"kind":"accepted","draft_top":[{"token_id":1,"text":"a","prob":"nan"}]}', "line 1: draft_top.0.prob: .*finite"),
        ('{"kind":"dance"}', "line 1: kind"),
        ('{"kind":"step"}', "the first event is 'step', expected 'started'"),
        ('{"kind":"started","schema_version":99}', "line 1: schema version 99 is newer than the supported 1"),
        *((f'{{"kind":"started","schema_version":{given}}}', f"line 1: {WHOLE}, got {shown}$") for given, shown in VERSIONS),
        ('{"kind":"started","schema_version":null}', "line 1: the 'started' event has no schema_version, expected 1"),
        ('{"kind":"started"}', "line 1: the 'started' event has no schema_version, expected 1"),
        ('{"kind":"started","prompt_token_ids":"abc"}', "line 1: prompt_token_ids"),
        ('{"kind":"started","schema_version":1}\n{"kind":"accepted","text":["<script>"]}', "line 2: text"),
        ("[" * 100_000, "line 1"),
    ],
)
def test_a_broken_trace_is_refused_with_the_line(line, message):
    with pytest.raises(ValueError, match=message):
        Trace.from_jsonl(line)


def test_a_line_is_as_long_as_it_likes_but_for_a_stranger_and_bytes_that_are_no_text_are_refused(tmp_path):
    whole = Trace([Event(EventKind.STARTED, row=0, step=0, time=0.0, schema_version=1, prompt="x" * 5_000_000)])
    whole.save(tmp_path / "long.jsonl")
    assert Trace.load(tmp_path / "long.jsonl")[0].prompt == whole[0].prompt
    with pytest.raises(ValueError, match=r"^trace line 1: 50\d+ characters, at most 4000000 are read$"):
        Trace.from_jsonl(whole.to_jsonl(), max_line=4_000_000)
    (tmp_path / "x.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8 text"):
        Trace.load(tmp_path / "x.jsonl")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.sampled_from([*Event.__dataclass_fields__, "unknown"]), JSON, max_size=6)


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
    assert len(trace.token_ids) == trace.metrics.num_generated_tokens == trace.finished.metrics["num_generated_tokens"]
    assert trace.text.startswith(" ")
    assert Trace.from_jsonl(trace.to_jsonl()).events == trace.events
