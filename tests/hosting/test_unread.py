"""What nobody has taken yet costs the decoder nothing: a program's events are written when it reads them."""

import json
import socket
import threading
import urllib.request
from collections.abc import Iterator

import gradio as gr
import pytest

from naive_speculate.events import Event
from tests.hosting.http import get
from ui.host.catalog import load_catalog
from ui.host.configuration import read_configuration
from ui.page import build_page, launch, open_queue
from ui.run.runs import Runs

TOKENS = 48


@pytest.fixture
def page() -> Iterator[gr.Blocks]:
    """The page, served by this process."""
    catalog = load_catalog(read_configuration({}, {"device": "cpu"}))
    made = build_page(catalog, Runs())
    open_queue(made, 4)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch(made, server_name="127.0.0.1", server_port=port, prevent_thread_lock=True, quiet=True)
    yield made
    made.close(verbose=False)
    catalog.close()


def test_events_that_a_program_has_not_read_are_not_written(page, monkeypatch):
    written: list[Event] = []
    over = threading.Event()
    write, process = Event.to_dict, page._queue.process_events

    def counted(event: Event, *args, **kwargs):
        written.append(event)
        return write(event, *args, **kwargs)

    async def watched(*args, **kwargs):
        await process(*args, **kwargs)
        over.set()

    monkeypatch.setattr(Event, "to_dict", counted)
    monkeypatch.setattr(page._queue, "process_events", watched)
    url = f"{page.local_url}gradio_api/call/generate"
    body = json.dumps({"data": ["Once upon a time", TOKENS, 0.7, 1.0, 1]}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})) as answer:
        name = json.load(answer)["event_id"]
    assert over.wait(120)
    assert not written, "the run is over, and nobody has read of it"

    told = [line.removeprefix("data: ") for line in get(f"{url}/{name}").splitlines() if line.startswith("data: ")]
    *lists, last = [events for (events,) in map(json.loads, told)]
    trace = [event for events in lists for event in events]
    assert [event["kind"] for event in trace][:: len(trace) - 1] == ["started", "finished"]
    assert last == lists[-1], "Gradio repeats the last list as the result"
    assert len(written) == len(trace) + len(last)
