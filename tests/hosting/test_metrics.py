"""The counters have the project's own prefix, and the document that maps them to vLLM's lists all of them."""

import re
from dataclasses import replace
from pathlib import Path

from naive_speculate.doctor import read
from naive_speculate.events import Event, EventKind
from naive_speculate.serving import Load, Request
from naive_speculate.serving.run_records import RunRecord
from ui.host.operations import Counters

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
EVENTS = [
    Event(EventKind.STARTED, prompt_token_ids=[1, 2, 3, 4, 5]),
    *(Event(EventKind.STEP, step=n, num_draft=4, num_accepted=accepted) for n, accepted in enumerate((3, 1, 1))),
    Event(EventKind.STEP, step=3, num_draft=0, num_accepted=0),
]


def counters() -> Counters:
    found, run = Counters(lambda: Load(True, 1, 2, 4)), RunRecord(Request("x"), 2.0, outcome="stop")
    for event in EVENTS:
        run.add(event, 0.1)
    found.observe(run)
    found.observe(replace(run, outcome="error"))
    return found


def test_every_metric_has_the_prefix_and_a_line_in_the_document():
    text = counters().text().decode()
    names = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.MULTILINE))
    names = {name for name in names if not name.endswith("_created")}
    assert names
    assert all(name.startswith("naive_speculate:") for name in names)
    rows = re.findall(r"^\| `(naive_speculate:\w+)` \| \w+ \| .* \| (`vllm:\w+`|none) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert {ours for ours, _ in rows} == names
    for ours, theirs in rows:
        assert theirs in ("none", f"`vllm:{ours.partition(':')[2]}`")


def test_the_doctor_reads_the_projects_own_counters():
    reading = read(counters().text().decode())
    assert reading.engine == "Naive Speculate"
    assert (reading.num_steps, reading.num_draft_tokens, reading.num_accepted_tokens) == (6, 24, 10)
    assert reading.rates == (1.0, 1 / 3, 1 / 3, 0.0)
    assert reading.requests_running == 1
