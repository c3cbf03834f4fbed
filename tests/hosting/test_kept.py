"""What visitors can make a real server keep and do: memory is bounded and given back; none waits
for one with many calls."""

import json
import signal
import socket
import time
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from gradio_client import Client

from benchmarks.server import Server
from tests.hosting.http import ask_page, connected, generate, get, post
from ui.host.visitors import TOTAL_BYTES, VISITOR_BYTES

MEGABYTE = 2**20
STARTED = {"kind": "started", "schema_version": 1, "prompt": "Once", "settings": {}}
VISITORS = [f"visitor{number}" for number in range(8)]


def resident(server: Server) -> int:
    return psutil.Process(server.process.pid).memory_info().rss


def posted(url: str, body: Any) -> Any:
    status, answer = post(url, body)
    assert status == 200, answer
    return json.loads(answer)


def long_trace(texts: int, characters: int = 3_900_000) -> bytes:
    """Few events with long texts."""
    events = [
        STARTED,
        *(
            {"kind": "bonus", "step": n, "position": n, "text": "a" * characters}
            for n in range(texts)
        ),
    ]
    return "\n".join(json.dumps(event, ensure_ascii=False) for event in events).encode()


def stage_of(url: str) -> tuple[int, int]:
    """The numbers of the stage, and of its event that opens a trace."""
    config = json.loads(get(url + "config"))
    stage = next(
        part["id"] for part in config["components"] if part["props"].get("elem_id") == "stage"
    )
    return stage, next(
        each["id"] for each in config["dependencies"] if [stage, "open"] in each["targets"]
    )


def opened(server: Server, session: str, trace: bytes) -> dict[str, Any]:
    """What the page gets that opens a trace: the message for its stage, or the toast."""
    _, number = stage_of(server.url)
    answer = posted(f"{server.url}trace?name=long.jsonl", trace)
    said = ask_page(server.url, number, [], session, event_data=answer)
    messages = [
        json.loads(line.removeprefix("data: "))
        for line in said.splitlines()
        if line.startswith("data: ")
    ]
    if toasts := [message["log"] for message in messages if message["msg"] == "log"]:
        return {"toast": toasts[0]}
    stage = next(
        message["output"]["data"][0]
        for message in messages
        if message["msg"] == "process_completed"
    )
    return json.loads(stage)


def is_kept(server: Server, session: str, run: str) -> bool:
    """Whether the stage still has a visitor's run."""
    stage, _ = stage_of(server.url)
    body = {"data": [run, 0], "fn_name": "resync", "component_id": stage, "session_hash": session}
    return bool(posted(server.url + "gradio_api/component_server", body))


def settled(server: Server, most: int) -> int:
    """The resident memory, as soon as it is at most so much, or after a minute."""
    until = time.monotonic() + 300
    while resident(server) > most and time.monotonic() < until:
        get(server.url + "health")
    return resident(server)


def test_a_page_that_has_answered_has_not_loaded_pandas(server):
    """Gradio would, for its table and its cache."""
    assert "complete" in get(generate(server.url, "Once upon a time"))
    mapped = {part.path for part in psutil.Process(server.process.pid).memory_maps()}
    assert any("/numpy/" in path for path in mapped)
    assert not [path for path in mapped if "/pandas/" in path]


def test_eight_long_traces_take_no_more_than_the_bound_and_are_given_back(server):
    opened(server, VISITORS[0], long_trace(1, characters=10))
    before = resident(server)
    runs = {session: opened(server, session, long_trace(7))["run"] for session in VISITORS}
    full = settled(server, before + TOTAL_BYTES)
    assert full <= before + TOTAL_BYTES + 64 * MEGABYTE
    kept = [session for session in VISITORS if is_kept(server, session, runs[session])]
    assert kept == VISITORS[-len(kept) :], "the oldest goes first"
    assert 7 <= len(kept) <= 8
    for session in VISITORS:
        for _ in range(2):
            opened(server, session, long_trace(1, characters=10))
    after = settled(server, before + 64 * MEGABYTE)
    print(
        f"resident MB: {before >> 20} before, {full >> 20} with eight traces, {after >> 20} after"
    )
    assert after <= before + 64 * MEGABYTE


@pytest.mark.parametrize(
    "trace",
    [
        long_trace(7).replace(b'"}', '😀"}'.encode()),
        json.dumps(STARTED | {"settings": {"x": [[]] * 900_000}}).encode(),
    ],
    ids=["wide characters", "many small objects"],
)
def test_a_trace_that_takes_more_memory_than_a_visitor_may_have_is_refused(server, trace):
    assert f"exceeds the {VISITOR_BYTES // MEGABYTE} MB" in opened(server, "large", trace)["toast"]


def test_a_trace_with_a_byte_order_mark_opens(server):
    assert list(posted(f"{server.url}trace?name=marked", b"\xef\xbb\xbf" + long_trace(1, 10))) == [
        "run"
    ]


CALLS = 60
FEW = 12
PATIENCE = 60.0  # seconds; the page takes 8 at most, a busy machine more


def unread(address: str) -> socket.socket:
    """A requested stream of which nothing will be read."""
    line, place = connected(address), urlsplit(address)
    line.sendall(f"GET {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    return line


@pytest.mark.server
def test_another_visitor_is_served_before_many_calls_of_one_end_and_sigterm_ends_the_page():
    """Its streams are first not opened, then opened and not read."""
    with Server(NAIVE_SPECULATE_MEASURING="off") as server, ExitStack() as stack:
        other = Client(
            server.url, verbose=False
        )  # which takes seconds on a busy machine: the calls could end meanwhile
        for first_seed, streams in ((10**6, "not opened"), (2 * 10**6, "opened")):
            for seed in range(first_seed, first_seed + CALLS):
                address = generate(
                    server.url, "Once upon a time", 2000, 1.0, 1.0, seed
                )  # without a session
                if streams == "opened":
                    stack.enter_context(unread(address))
            job = other.submit("Once upon a time", FEW, seed=first_seed + 900, api_name="/generate")
            job.result(timeout=300)
            assert job.outputs()[-1][-1]["kind"] == "finished"
            assert not ended(server, range(first_seed, first_seed + CALLS)) & {"length", "stop"}
            load = json.loads(get(server.url + "health"))
            assert load["running"] + load["waiting"] > 0
        server.wait_for(f'"seed": {2 * 10**6 + 900}')
        assert ended(server, range(2 * 10**6 + 900, 2 * 10**6 + 901)) == {"length"}
        server.process.terminate()
        assert server.process.wait(PATIENCE) in (0, -signal.SIGKILL)


def ended(page: Server, seeds: range) -> set[str]:
    """How the runs with these seeds have ended, as far as they have."""
    lines = [
        json.loads(line)
        for line in page.log.splitlines()
        if '"seed": ' in line and line.startswith("{")
    ]
    return {line["outcome"] for line in lines if line["seed"] in seeds}
