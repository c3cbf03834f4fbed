"""What crosses to the browser is numbered, slim, and cannot be taken for markup."""

import json

from naive_speculate.events import Event, EventKind, TokenProb
from tests.ui.handmade import run
from ui.run.messages import batch
from ui.run.runs import Run


def test_a_batch_holds_the_events_where_they_begin_and_whether_they_are_the_last():
    mine = Run(run([(3, 1)]), title="a title")
    message = json.loads(batch(mine, 2, 3))
    assert (message["run"], message["serial"], message["first"]) == (mine.id, mine.serial, 2)
    assert [event["kind"] for event in message["events"]] == [event.kind for event in mine.events[2:5]]
    assert (message["done"], message["live"], message["title"]) == (False, False, "a title")
    assert json.loads(batch(mine, len(mine.events) - 1))["done"]
    mine.done.clear()
    assert not json.loads(batch(mine))["done"]


def test_the_lists_of_most_probable_tokens_stay_on_the_server():
    lists = {"draft_top": [TokenProb(1, "b", 0.5)], "target_top": [], "residual_top": []}
    sent = json.loads(batch(Run([Event(EventKind.REJECTED, text="a", target_prob=1 / 3, **lists)])))
    assert sent["events"] == [{"kind": "rejected", "row": 0, "time": 0.0, "text": "a", "target_prob": 1 / 3}]


def test_no_angle_bracket_reaches_the_wire_and_the_text_comes_back_unchanged():
    text = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    run = Run([Event(EventKind.ACCEPTED, text=text)], title=text)
    assert "<" not in batch(run)
    assert json.loads(batch(run))["events"][0]["text"] == text


def test_broken_unicode_and_a_number_too_large_for_a_processor_can_be_sent():
    run = Run([Event(EventKind.STARTED, prompt="\ud800 \u202e \u0000", seed=2**70)])
    batch(run).encode("utf-8")
    event = json.loads(batch(run))["events"][0]
    assert (event["prompt"], event["seed"]) == ("\ud800 \u202e \u0000", 2**70)
