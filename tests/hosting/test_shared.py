"""One visitor with many long calls, another at the same address with a short one, and the end of the page under such calls."""

import json
import signal
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from gradio_client import Client

from benchmarks.server import Server
from tests.hosting.http import connected, generate, get

CALLS = 60
FEW = 12
PATIENCE = 60.0  # seconds; the page takes 8 at most, a busy machine more


def opened(address: str) -> socket.socket:
    """A requested stream of which nothing will be read."""
    line, place = connected(address), urlsplit(address)
    line.sendall(f"GET {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    return line


@pytest.mark.server
def test_another_visitor_is_served_before_the_calls_of_one_with_many_end_and_sigterm_ends_the_page_under_them():
    """Its streams are first not opened, then opened and not read."""
    with Server(NAIVE_SPECULATE_MEASURING="off") as server, ExitStack() as stack:
        other = Client(server.url, verbose=False)  # which takes seconds on a busy machine: the calls could end meanwhile
        for first_seed, streams in ((10**6, "not opened"), (2 * 10**6, "opened")):
            for seed in range(first_seed, first_seed + CALLS):
                address = generate(server.url, "Once upon a time", 2000, 1.0, 1.0, seed)  # without a session
                if streams == "opened":
                    stack.enter_context(opened(address))
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
    lines = [json.loads(line) for line in page.log.splitlines() if '"seed": ' in line and line.startswith("{")]
    return {line["outcome"] for line in lines if line["seed"] in seeds}
