"""What crosses to the browser is numbered, slim, and cannot be taken for markup."""

import json

from naive_speculate.events import Event, EventKind, TokenProb
from tests.ui.handmade import run
from ui.run.wire import batch


def test_a_batch_holds_the_events_and_where_they_begin():
    events = run([(3, 1)]).events
    message = json.loads(batch("id", 7, events[2:5], first=2, live=True, title="a title"))
    assert message["run"] == "id"
    assert message["serial"] == 7
    assert message["first"] == 2
    assert [event["kind"] for event in message["events"]] == [event.kind for event in events[2:5]]
    assert (message["done"], message["live"], message["title"]) == (False, True, "a title")


def test_the_lists_of_most_probable_tokens_stay_on_the_server():
    event = Event(
        EventKind.REJECTED, text="a", target_prob=1 / 3, draft_top=[TokenProb(1, "b", 0.5)], target_top=[], residual_top=[]
    )
    (sent,) = json.loads(batch("id", 1, [event]))["events"]
    assert sent == {"kind": "rejected", "row": 0, "time": 0.0, "text": "a", "target_prob": 1 / 3}


def test_no_angle_bracket_reaches_the_wire_and_the_text_comes_back_unchanged():
    text = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    sent = batch("id", 1, [Event(EventKind.ACCEPTED, text=text)], title=text)
    assert "<" not in sent
    assert json.loads(sent)["events"][0]["text"] == text


def test_broken_unicode_can_be_sent():
    sent = batch("id", 1, [Event(EventKind.STARTED, prompt="\ud800 \u202e \u0000")])
    sent.encode("utf-8")
    assert json.loads(sent)["events"][0]["prompt"] == "\ud800 \u202e \u0000"


def test_a_number_too_large_for_a_processor_can_be_sent():
    sent = batch("id", 1, [Event(EventKind.STARTED, seed=2**70)])
    assert json.loads(sent)["events"][0]["seed"] == 2**70
