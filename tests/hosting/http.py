"""Requests of a server in tests, and a page that this process serves."""

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

import gradio as gr

from benchmarks.server import Server, free_port
from ui.host.catalog import Catalog
from ui.host.errors import Page
from ui.host.operations import Counters, routes, with_queue
from ui.page import build_page, launch
from ui.run.recorded import traces
from ui.run.runs import Runs

JSON = {"Content-Type": "application/json"}
SECRET = "Diary, part one: nobody may read this. " * 25_000


def get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


def ask(url: str, body: Any = None, **headers: str) -> tuple[int, str, Message]:
    """The status, the answer and its headers; what is no bytes is sent as JSON, and nothing is a
    GET."""
    sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, sent, JSON | headers), timeout=120
        ) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace"), error.headers


def post(url: str, body: Any, **headers: str) -> tuple[int, str]:
    return ask(url, body, **headers)[:2]


def call(url: str, body: object, name: str = "generate") -> str:
    """What a program is answered that calls an endpoint and reads on to the end."""
    status, answer = post(f"{url}gradio_api/call/{name}", body)
    return (
        get(f"{url}gradio_api/call/{name}/{json.loads(answer)['event_id']}")
        if status == 200
        else answer
    )


def ask_page(url: str, function: int, data: Any, session: str, **event: Any) -> str:
    """What the page is answered, to the end, that calls the function with this number."""
    sent = {"data": data, "fn_index": function, "session_hash": session} | event
    status, answer = post(f"{url}gradio_api/queue/join", sent)
    return get(f"{url}gradio_api/queue/data?session_hash={session}") if status == 200 else answer


def logged(server: Server, before: int) -> list[str]:
    """The lines that the log has since it had so many characters, but for those of runs."""
    # once the log has this run, it has what came before
    generate(server.url, "Once", 1, 0, 1, before)
    server.wait_for(f'"seed": {before}')
    return [line for line in server.log[before:].splitlines() if '"outcome"' not in line]


def connected(url: str) -> socket.socket:
    """A connection to the server: what is sent is as it is, while libraries would tidy it."""
    place = urlsplit(url)
    return socket.create_connection((place.hostname or "", place.port or 0), timeout=300)


def generate(url: str, *data: Any) -> str:
    """Where the events of a call are to be read."""
    status, answer = post(f"{url}gradio_api/call/generate", {"data": data})
    assert status == 200, answer
    return f"{url}gradio_api/call/generate/{json.loads(answer)['event_id']}"


def call_tool(url: str, arguments: dict[str, object]) -> tuple[list[Any], Any]:
    """The tools that a language model is offered over MCP, and what it is answered
    that calls one."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async def ask() -> tuple[list[str], Any]:
        async with (
            streamablehttp_client(url + "gradio_api/mcp/") as (reader, writer, _),
            ClientSession(reader, writer) as session,
        ):
            await session.initialize()
            tools = (await session.list_tools()).tools
            return tools, await session.call_tool("generate", arguments)

    return asyncio.run(ask())


def serve(page: Page, size: int, *more: Any) -> Page:
    """Serve a page, whose queue holds so many calls, from this process."""
    launch(page, size, more, server_name="127.0.0.1", server_port=free_port(), quiet=True)
    return page


@contextmanager
def served_here(catalog: Catalog) -> Iterator[gr.Blocks]:
    """The page with these pairs, whose queue holds four calls, served from this process and
    closed afterwards."""
    runs = Runs()
    page = build_page(catalog, runs)
    serve(page, 4, traces(runs), *routes(Counters(lambda: with_queue(catalog.load(), page))))
    yield page
    page.close(verbose=False)
    catalog.close()
