"""The page in this process: unread events cost nothing, a guide blocks no other request, and
visitors take turns."""

import json
import threading
from collections.abc import Iterator
from dataclasses import astuple, replace

import gradio as gr
import pytest
from gradio.queueing import Event as QueuedEvent
from gradio.server_messages import EstimationMessage

from naive_speculate.events import Event
from naive_speculate.serving.turns import TOO_MANY
from tests.hosting.http import generate, get, post, serve, served_here
from ui.host.catalog import load_catalog
from ui.host.configuration import read_configuration
from ui.host.errors import Page
from ui.host.queue import CROWDED, UNREAD
from ui.host.visitors import Weighed, weight
from ui.run import settings as settings_module
from ui.run.recorded import START

TOKENS = 16


@pytest.fixture(scope="module")
def page(small_pair) -> Iterator[gr.Blocks]:
    target, draft = map(str, small_pair)
    catalog = load_catalog(
        read_configuration({}, {"device": "cpu", "target": target, "draft": draft})
    )
    with served_here(catalog) as page:
        yield page


@pytest.fixture
def over(page, monkeypatch) -> threading.Event:
    """Set once the queue is done with a call."""
    done, process = threading.Event(), page._queue.process_events

    async def watched(*args, **kwargs):
        await process(*args, **kwargs)
        done.set()

    monkeypatch.setattr(page._queue, "process_events", watched)
    return done


def test_events_that_a_program_has_not_read_are_not_written(page, over, monkeypatch):
    written: list[Event] = []
    write = Event.to_dict

    def counted(event: Event, *args, **kwargs):
        written.append(event)
        return write(event, *args, **kwargs)

    monkeypatch.setattr(Event, "to_dict", counted)
    address = generate(page.local_url, "Once upon a time", TOKENS, 0.7, 1.0, 1)
    assert over.wait(120)
    assert not written, "the run is over, and nobody has read of it"

    told = [
        line.removeprefix("data: ")
        for line in get(address).splitlines()
        if line.startswith("data: ")
    ]
    *lists, last = [events for (events,) in map(json.loads, told)]
    trace = [event for events in lists for event in events]
    assert [event["kind"] for event in trace][:: len(trace) - 1] == ["started", "finished"]
    assert last == lists[-1], "Gradio repeats the last list as the result"
    assert len(written) == len(trace) + len(last)


@pytest.mark.parametrize("bound", ["visitor_bytes", "total_bytes"])
def test_a_call_whose_events_no_one_reads_is_ended_where_they_take_too_many_bytes(
    page, over, monkeypatch, bound
):
    queue = page._queue
    monkeypatch.setattr("ui.host.queue.COUNT_BYTES", 0)
    monkeypatch.setattr(queue, bound, 60_000)
    address = generate(page.local_url, "Once upon a time", 500, 0.7, 1.0, 1)
    assert over.wait(120)
    assert sum(messages.size for messages in queue.pending_messages_per_session.values()) < 60_000
    assert not queue.active_jobs[0]
    said = get(address)
    assert UNREAD in said
    assert "finished" not in said


def test_a_call_that_would_wait_with_too_many_bytes_is_refused(page, monkeypatch):
    monkeypatch.setattr(page._queue, "visitor_bytes", 1000)
    data = ["Once upon a time", 10**2000, 0.7, 1.0, 1]
    status, answer = post(f"{page.local_url}gradio_api/call/generate", {"data": data})
    assert status == 503
    assert CROWDED in answer


def test_the_bytes_of_a_value_are_those_of_all_that_it_refers_to_but_no_more():
    text = "x" * 10_000
    assert 10_000 < weight([[text, {"key": (text, Event)}]]) < 14_000
    assert weight([{"known": Weighed(text, 5)}]) < 2000
    assert weight([["é" * 1000 + str(number)] for number in range(1000)]) > 1_000_000


def test_a_message_to_a_visitor_who_has_left_is_no_error(page):
    """Gradio forgets the visitor at once, and the call ends a little later."""
    (function,) = [one for one in page.fns.values() if one.api_name == "generate"]
    left = QueuedEvent("who has left", function, None, None)
    left.alive = False
    page._queue.send_message(left, EstimationMessage(queue_size=0))
    assert "who has left" not in page._queue.pending_messages_per_session


def test_health_answers_while_a_guide_is_being_parsed(page, monkeypatch):
    """The guide is parsed only once `/health` has answered."""
    begun, answered, parsed = threading.Event(), threading.Event(), threading.Event()
    guide = settings_module.guide

    def held(kind: str, text: str):
        begun.set()
        assert answered.wait(120)
        made = guide(kind, text)
        parsed.set()
        return made

    monkeypatch.setattr(settings_module, "guide", held)
    (function,) = [number for number, made in page.fns.items() if made.name == "_decode"][:1]
    fields = {f"f{n}": {"type": "number", "minimum": -n - 0.125} for n in range(300)}
    large = json.dumps({"type": "object", "properties": fields})
    values = astuple(replace(START, guided="json", guided_text=large))
    body = {"data": values, "fn_index": function, "session_hash": "visitor"}
    assert post(f"{page.local_url}gradio_api/queue/join", body)[0] == 200
    assert begun.wait(60)
    assert json.loads(get(f"{page.local_url}health"))["ready"]
    assert not parsed.is_set()
    answered.set()
    assert parsed.wait(60)


def test_a_full_queue_has_room_for_another_visitor_who_is_next():
    """The page has one function, which handles one call at a time, and none before `go` is set;
    three calls may wait."""
    begun, go, over, done = threading.Event(), threading.Event(), threading.Event(), []

    def work(name: str) -> None:
        begun.set()
        assert go.wait(60)
        done.append(name)
        if len(done) == 4:
            over.set()

    with Page() as page:
        text = gr.Textbox()
        gr.Button().click(work, text, None, concurrency_limit=1)
    join = f"{serve(page, 3).local_url}gradio_api/queue/join"
    (number,) = page.fns

    def status_of(name: str, address: str) -> int:
        return post(
            join,
            {"data": [name], "fn_index": number, "session_hash": name},
            **{"X-Forwarded-For": address},
        )[0]

    assert status_of("many 0", "1.1.1.1") == 200
    assert begun.wait(60)
    assert [status_of(f"many {n}", "1.1.1.1") for n in (1, 2, 3, 4)] == [200, 200, 200, 503]
    assert status_of("other", "2.2.2.2") == 200
    assert TOO_MANY in get(f"{page.local_url}gradio_api/queue/data?session_hash=many%203")
    go.set()
    assert over.wait(60)
    assert done[0] == "many 0"
    assert done.index("other") < done.index("many 1")
    page.close(verbose=False)
