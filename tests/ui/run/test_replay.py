"""Trace files from anywhere: broken and hostile ones are refused with a reason."""

import json

import pytest

from tests.ui.handmade import run
from ui.run import recorded
from ui.run.recorded import MAX_LINE_CHARACTERS, opened

STARTED = '{"kind":"started","schema_version":1}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "larger than"),
        ("not json", "line 1"),
        (STARTED + "\n" + " " * MAX_LINE_CHARACTERS + "{}", "line 2: 4194306 characters, at most 4194304"),
        ("\n".join([STARTED] * 1001), "at most 1,000"),
        ("no JSON\n" * 1001, "1,001 events; this page replays at most 1,000"),  # nothing is split or read
        (12, "larger than"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_a_reason(text, reason, monkeypatch):
    monkeypatch.setattr(recorded, "MAX_TRACE_EVENTS", 1000)
    with pytest.raises(ValueError, match=reason):
        opened("file.jsonl", text)


def test_a_trace_of_a_batch_shows_its_first_sequence_under_the_file_s_name_only():
    trace = run([(2, 1)])
    events = [event.to_dict() for event in trace] + [event.to_dict() | {"row": 1} for event in trace]
    shown = opened("/etc/../secret/trace.jsonl", "\n".join(map(json.dumps, events)))
    assert len(shown.events) == len(trace)
    assert shown.title == "from trace.jsonl"
