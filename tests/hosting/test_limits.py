"""Over HTTP: what is sent is neither kept on the disk, nor repeated in an error, nor logged; and
it has a limit."""

import asyncio
import json
import select
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from itertools import repeat
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.hosting.http import SECRET, ask, ask_page, call, call_tool, connected, get, logged, post
from ui.host.limits import MAX_BODY_BYTES, MAX_TRACE_BYTES, Guard
from ui.run.settings import Settings

MEGABYTE = 2**20


def files(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def answer_to(url: str, head: str, body: Iterable[bytes]) -> tuple[bytes, int]:
    """Send a request's head, then its body piece by piece until there is an answer; its first
    line, and the bytes sent."""
    with connected(url) as line:
        line.sendall(f"POST {head}\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
        sent = 0
        with suppress(ConnectionError):  # who has answered need not listen on
            for piece in body:
                if select.select([line], [line], [], 60)[0]:
                    break
                line.sendall(piece)
                sent += len(piece)
        return line.recv(4096).split(b"\r\n")[0], sent


def test_no_file_is_taken_and_neither_it_nor_a_visitor_s_settings_are_kept(server, cache):
    form = (
        b"--x\r\nContent-Disposition: form-data; name=files; filename=a.txt\r\n\r\n"
        + b"a" * MEGABYTE
        + b"\r\n--x--\r\n"
    )
    pieces = [form[place : place + 4096] for place in range(0, len(form), 4096)]
    before = files(cache)
    for path in ("upload", "upload?upload_id=1", "upload/", "process_recording"):
        kind = f"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {len(form)}"
        first, _ = answer_to(server.url, f"/gradio_api/{path} HTTP/1.1\r\n{kind}", pieces)
        assert first.split()[1] == b"403", first
    assert post(f"{server.url}gradio_api/deep_link?session_hash=mine", None)[0] == 403
    assert files(cache) == before


@pytest.mark.parametrize("path", ["dev/reload", "upload_progress?upload_id=a"])
def test_nobody_waits_for_changes_of_the_program_or_for_uploads(server, path):
    with pytest.raises(HTTPError, match="403"):
        get(f"{server.url}gradio_api/{path}")


@pytest.mark.parametrize(
    "path", ["upload", "queue/join", "call/generate", "component_server", "run/generate"]
)
def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(server, path):
    head = (
        f"/gradio_api/{path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length:"
        f" {300 * MEGABYTE}"
    )
    first, sent = answer_to(server.url, head, repeat(b" " * 4096, 16 * MEGABYTE // 4096))
    assert first.split()[1] == b"413"
    assert sent < 16 * MEGABYTE


def test_a_body_that_does_not_end_is_refused_where_it_gets_too_large(server):
    chunk = f"{MEGABYTE:x}\r\n".encode() + b" " * MEGABYTE + b"\r\n"
    for path, most in (("/gradio_api/queue/join", MAX_BODY_BYTES), ("/trace", MAX_TRACE_BYTES)):
        head = f"{path} HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
        first, sent = answer_to(server.url, head, repeat(chunk, 4 * most // MEGABYTE))
        assert first.split()[1] == b"413"
        assert sent > most


def fields_of(url: str) -> tuple[int, list[str], list[object]]:
    """The number of the page's own event that starts a run, the kinds of its inputs, and these
    as the page would send them."""
    config = json.loads(get(url + "config"))
    parts = {part["id"]: part for part in config["components"]}
    event = next(each for each in config["dependencies"] if each["api_name"] == "_decode")
    inputs = [parts[number] for number in event["inputs"]]
    return (
        event["id"],
        [part["type"] for part in inputs],
        [part["props"].get("value") for part in inputs],
    )


def by_the_page(url: str, session: str, kind: str, wrong: object) -> str:
    """What the page is answered whose first input of this kind is wrong."""
    number, kinds, data = fields_of(url)
    data[kinds.index(kind)] = wrong
    return ask_page(url, number, data, session)


def by_a_language_model(url: str, arguments: dict[str, object]) -> str:
    _, answer = call_tool(url, arguments)
    assert answer.isError
    return answer.model_dump_json()


WRONG = {
    "too few inputs": lambda url, text: call(url, {"data": [text]}),
    "too few inputs, past the queue": lambda url, text: post(
        url + "gradio_api/run/generate", {"data": [text]}
    )[1],
    "a number that is none": lambda url, text: call(
        url, {"data": ["Once", text, 0.7, 1.0, 1, 3, "greedy_match"]}
    ),
    "a strategy that is none": lambda url, text: call(
        url, {"data": ["Once", 8, 0.7, 1.0, 1, 3, text]}
    ),
    "a choice that is none": lambda url, text: by_the_page(url, "choice", "dropdown", text),
    "a slider that is none": lambda url, text: by_the_page(url, "slider", "slider", text),
    "a wrong kind, by a language model": lambda url, text: by_a_language_model(
        url, {"prompt": "Once", "max_tokens": text}
    ),
    "no arguments, by a language model": lambda url, text: post(
        url + "gradio_api/mcp/",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "generate", "arguments": text},
        },
        Accept="application/json, text/event-stream",
    )[1],
}
"""What is refused once it is called; test_calls.py has what is refused before."""


@pytest.mark.parametrize("name", WRONG)
def test_what_was_sent_comes_back_in_no_error_and_is_in_no_log(server, name):
    before = len(server.log)
    answer = WRONG[name](server.url, SECRET)
    assert 0 < len(answer) < 3000, "what was sent came back"
    assert "Diary" not in "".join(logged(server, before)), "the log tells what was sent"


@pytest.mark.parametrize(
    ("kind", "guide"), [("json", '{"$ref": "Diary/of/mine"}'), ("regex", "Diary" + "^" * 2000)]
)
def test_the_log_tells_nothing_of_a_guide(server, kind, guide):
    number, _, data = fields_of(server.url)
    values = dict(zip((field.name for field in fields(Settings)), data, strict=True))
    values |= {"guided": kind, "guided_text": guide, "max_tokens": 3}
    before = len(server.log)
    assert "process_completed" in ask_page(server.url, number, list(values.values()), kind)
    log = "".join(logged(server, before))
    assert "Diary" not in log
    assert "Warning" not in log


def test_who_leaves_while_sending_and_who_asks_for_gradio_s_monitoring_leave_nothing_in_the_log(
    server,
):
    """Gradio would write the key of its monitoring."""
    before = len(server.log)
    with connected(server.url) as line:
        line.sendall(
            f"POST /trace HTTP/1.1\r\nHost: {urlsplit(server.url).netloc}\r\nContent-Length:"
            " 9\r\n\r\n{".encode()
        )
    assert post(f"{server.url}monitoring", None)[0] == 403
    for _ in range(5):
        with connected(server.url) as line:
            line.sendall(b"GET /config HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
            line.recv(1)  # it answers
            line.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # so that closing resets
    assert logged(server, before) == []


ANY_TEXT = [
    "Once",
    "caf%C3%A9",
    "%E4%BD%A0%E5%A5%BD",
    "%F0%9F%8E%89",
    "%E9",
    "%FF",
    "%ED%A0%80",
    "%zz",
    "%00",
]
"""Of a query: ASCII, other letters, what is not UTF-8, and what is no percent code."""


@pytest.mark.parametrize(
    "path", ["?prompt=", "?embed=", "?utm_source=", "health?x=", "metrics?x=", "config?x="]
)
def test_an_address_is_answered_whatever_its_query_says(server, path):
    answers = {text: ask(server.url + path + text)[0] for text in ANY_TEXT}
    assert answers == dict.fromkeys(ANY_TEXT, 200)


def test_calls_and_traces_with_any_name_are_answered_with_what_is_wrong(server):
    trace = b'{"kind":"bonus","row":0,"time":0}'
    for text in ANY_TEXT:
        url = f"{server.url}gradio_api/queue/data?session_hash={text}"
        assert ask(url)[0] == 404
        status, answer = post(f"{server.url}trace?name={text}", trace)
        assert status == 200
        assert "the first event is 'bonus'" in answer


def test_who_does_not_read_the_page_keeps_nobody_at_that_address_from_it(server):
    with connected(server.url) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
        line.recv(1)
        assert "<gradio-app" in get(server.url)


def ask_at_once(page: ASGIApp, *scopes: Scope) -> list[Message]:
    """What is sent where all of these are asked of a page within the guard."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    async def ask() -> None:
        guard, get = Guard(page), {"type": "http", "method": "GET", "headers": []}
        await asyncio.wait_for(
            asyncio.gather(*(guard(get | scope, receive, send) for scope in scopes)), 60
        )

    asyncio.run(ask())
    return sent


def test_a_call_that_begins_no_answer_keeps_no_other_one_waiting():
    arrived, all_here = [0], asyncio.Event()

    async def slow(_scope: Scope, _receive: Receive, _send: Send) -> None:
        arrived[0] += 1
        if arrived[0] == 3:
            all_here.set()
        await all_here.wait()

    assert ask_at_once(slow, *[{"path": "/health", "client": ("192.0.2.1", 1)}] * 3) == []
    assert arrived == [3]


def test_the_server_prepares_one_answer_per_address_at_a_time():
    going, most, others = Counter[str](), Counter[str](), asyncio.Event()

    async def page(scope: Scope, _receive: Receive, send: Send) -> None:
        address = scope["client"][0]
        going[address] += 1
        most[address] = max(most[address], going[address])
        if address == "192.0.2.2":
            others.set()
        await others.wait()  # the other address does not wait for the first one
        await asyncio.sleep(0)
        going[address] -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    ask_at_once(
        page,
        *({"path": "/", "client": (address, 1)} for address in ["192.0.2.1"] * 9 + ["192.0.2.2"]),
    )
    assert most == {"192.0.2.1": 1, "192.0.2.2": 1}


ENDS = "answered", "unread", "half read", "fails", "leaves", "stalls", "cancelled", "unsent"
"""How a request ends: its body is read or not, the application fails, the client leaves or sends
nothing more, the server stops, the answer cannot be sent."""


async def ended(guard: Guard, end: str, method: str, parts: list[int], announced: bool) -> None:
    """A request to a guard whose application ends it in this way."""
    rest = iter(parts)

    async def receive() -> Message:
        size = next(rest, None)
        if size is not None:
            return {"type": "http.request", "body": b"x" * size, "more_body": True}
        if end in ("stalls", "cancelled"):
            await asyncio.Event().wait()
        left = {"type": "http.disconnect"}
        return left if end == "leaves" else {"type": "http.request", "body": b""}

    async def send(_message: Message) -> None:
        if end == "unsent":
            raise OSError("the connection is closed")

    length = [(b"content-length", b"%d" % sum(parts))] * announced
    scope = {"type": "http", "method": method, "path": "/trace", "headers": length, "end": end}
    task = asyncio.create_task(guard(scope, receive, send))
    if end == "cancelled":
        for _ in range(3 + len(parts)):
            await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait([task])


@given(
    requests=st.lists(
        st.tuples(
            st.sampled_from(ENDS),
            st.sampled_from(["POST", "PUT", "HEAD"]),
            st.lists(st.integers(0, 6), max_size=5),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_once_requests_have_ended_in_any_way_as_many_bytes_may_be_received_as_before(requests):
    """Limits of some bytes are exceeded as well. Then a body of the largest size is accepted."""
    answers: list[int] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(scope, receive)
        if scope["end"] == "half read":
            await anext(request.stream())
        elif scope["end"] != "unread":
            await request.body()
        if scope["end"] == "fails":
            raise RuntimeError("a wheel came off")
        await JSONResponse({})(scope, receive, send)

    async def all_of_them() -> None:
        guard = Guard(application)
        await asyncio.gather(*(ended(guard, *request) for request in requests))
        body = iter([{"type": "http.request", "body": b"x" * 12}])

        async def receive() -> Message:
            return next(body)

        async def send(message: Message) -> None:
            answers.append(message.get("status", 0))

        scope = {"type": "http", "method": "POST", "path": "/trace", "headers": [], "end": ""}
        await guard(scope, receive, send)
        assert guard.receiving == 0

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("TRACE", 12), ("BODY", 12), ("BODIES", 12)):
            patch.setattr(f"ui.host.limits.MAX_{name}_BYTES", value)
        patch.setattr("ui.host.limits.BODY_SECONDS", 0.01)
        asyncio.run(all_of_them())
    assert answers[0] == 200
