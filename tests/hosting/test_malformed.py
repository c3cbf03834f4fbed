"""A call that cannot be is answered 4xx, in one line of the log, whatever is wrong with it."""

import json
from typing import Any

import pytest

from benchmarks.server import Server
from tests.hosting.http import get, logged, post

DATA: dict[str, Any] = {"data": ["Once", 3], "session_hash": "mine"}
SERVER: dict[str, Any] = {"data": "recorded", "component_id": 1, "fn_name": "trace", "session_hash": "mine"}
MALFORMED: dict[str, tuple[str, Any]] = {
    "an unknown function": ("queue/join", DATA | {"fn_index": 99_999}),
    "no function": ("queue/join", DATA),
    "a negative function": ("queue/join", DATA | {"fn_index": -1}),
    "an endless function": ("queue/join", DATA | {"fn_index": 10**40}),
    "a function that is a text": ("queue/join", DATA | {"fn_index": "generate"}),
    "an unknown function, past the queue": ("run/predict", DATA | {"fn_index": 99_999}),
    "an unknown name, past the queue": ("run/nothing", DATA),
    "an unknown name by the old address": ("api/nothing", DATA),
    "an unknown name": ("call/nothing", DATA),
    "an unknown name of version 2": ("call/v2/nothing", {"prompt": "Once"}),
    "an unknown argument": ("call/v2/generate", {"prompt": "Once", "nothing": 1}),
    "no argument": ("call/v2/generate", {}),
    "a list where arguments should be": ("call/v2/generate", [1]),
    "too few inputs": ("call/generate", {"data": []}),
    "too many inputs": ("call/generate", {"data": [1] * 50}),
    "a file of the server": ("call/generate", {"data": [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}]}),
    "a file of another server": ("call/v2/generate", {"prompt": {"path": "http://x", "meta": {"_type": "gradio.FileData"}}}),
    "a file within a list": ("call/generate", {"data": [[{"path": "http://x", "meta": {"_type": "gradio.FileData"}}]]}),
    "data that are no list": ("call/generate", {"data": {"prompt": "Once"}}),
    "an unknown trigger": ("queue/join", {"data": [], "fn_index": 0, "session_hash": "mine", "trigger_id": 99_999}),
    "a session that is a list": ("queue/join", DATA | {"session_hash": [], "fn_index": 0}),
    "a session with a long name": ("call/generate", DATA | {"session_hash": "x" * 5000}),
    "no session": ("queue/join", {"data": [], "fn_index": 0}),
    "an unknown component": ("component_server", SERVER | {"component_id": 99_999}),
    "a component that is a list": ("component_server", SERVER | {"component_id": []}),
    "a component without functions": ("component_server", SERVER | {"component_id": 1}),
    "a function that is none for visitors": ("component_server", SERVER | {"fn_name": "__init__"}),
    "a function that is a number": ("component_server", SERVER | {"fn_name": 3}),
    "no function of the server": ("component_server", {"data": 1}),
    "a list, to the server": ("component_server", [1]),
    "an endless list, to the server": ("component_server", b"[" * 100_000),
    "a session of the server with a long name": ("component_server", SERVER | {"session_hash": "x" * 5000}),
    "nothing to be cancelled": ("cancel", {}),
    "a number to be reset": ("reset", {"event_id": 3}),
    "an unknown stream": ("stream/nothing", DATA),
    "an unknown stream to be closed": ("stream/nothing/close", {}),
    "no JSON": ("queue/join", b"{"),
    "no text": ("call/generate", b"\xff\xfe"),
    "nothing": ("run/generate", b""),
    "no object": ("call/generate", b"[]"),
    "a number as data": ("call/generate", b'{"data": 5}'),
    "an endless list as data": ("call/generate", b'{"data": [' + b"[" * 5000),
    "an endless list, to MCP": ("mcp/", b"[" * 100_000),
}
READING = {
    "the results of an unknown session": "queue/data?session_hash=nobody",
    "the results of no session": "queue/data",
    "the results of a session without a name": "queue/data?session_hash=",
    "the results of two sessions": "queue/data?session_hash=nobody&session_hash=",
    "the results of an unknown call": "call/generate/nothing",
    "the results of an unknown call of version 2": "call/v2/generate/nothing",
    "the heartbeat of a session with a long name": "heartbeat/" + "x" * 5000,
}


def answer(server: Server, path: str, body: Any = None) -> tuple[int, str]:
    """The status of a call, and what it is answered."""
    return post(f"{server.url}gradio_api/{path}", body)


@pytest.mark.parametrize(("path", "body"), MALFORMED.values(), ids=MALFORMED)
def test_a_call_that_cannot_be_is_refused_in_one_line(server, path, body):
    before = len(server.log)
    status, said = answer(server, path, body)
    assert 400 <= status < 500, (status, said)
    assert len(said) < 1000
    shown = "/".join(path.split("/")[: 2 if path.startswith(("queue", "call/v2")) else 1])
    assert logged(server, before) == [f"refused POST {shown}: {status}"]


@pytest.mark.parametrize("path", READING.values(), ids=READING)
def test_what_is_not_there_cannot_be_read(server, path):
    before = len(server.log)
    status, said = answer(server, path)
    assert 400 <= status < 500, (status, said)
    (line,) = logged(server, before)
    assert line.endswith(f": {status}")


def test_every_function_of_the_page_refuses_nonsense_without_a_trace_in_the_log(server):
    dependencies = json.loads(get(server.url + "config"))["dependencies"]
    numbers = [each["id"] for each in dependencies if not each["cancels"]]  # Gradio gives these the session
    for path, statuses in (("queue/join", range(400, 500)), ("run/nothing", range(500))):
        before = len(server.log)
        for number in numbers:
            status, said = answer(server, path, {"data": [1] * 99, "fn_index": number, "session_hash": "mine"})
            assert status in statuses, (number, status, said)
        lines = logged(server, before)
        assert all(line.startswith("refused POST ") for line in lines), lines
        assert len(lines) == len(numbers) if path == "queue/join" else len(lines) <= len(numbers)


@pytest.mark.parametrize("sent", [[], {}, 5, None, "nothing", [[]]], ids=str)
def test_no_function_of_the_page_fails_for_what_is_sent(server, sent):
    """Each is taken, or refused in a line; those that run in the browser alone are refused."""
    config = json.loads(get(server.url + "config"))
    before = len(server.log)
    for each in config["dependencies"]:
        call = {"data": [sent] * len(each["inputs"]), "fn_index": each["id"], "event_data": sent, "session_hash": "mine"}
        trigger = {"trigger_id": each["targets"][0][0]} if each["targets"] else {}
        status, said = answer(server, "queue/join", call | trigger)
        assert status < 500, (each["id"], said)
        assert each["backend_fn"] or each["cancels"] or status >= 400, each["id"]
    lines = logged(server, before)
    assert all(line.startswith("refused POST ") for line in lines), lines
