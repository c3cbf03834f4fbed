"""Clients of the page over HTTP: programs that call `/generate`, and slow readers."""

import json
import re
import secrets
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.measuring import Answer, follow

SLOW_BYTES, SLOW_SECONDS = 16384, 0.1
SLOWEST = 100
"""A speed that the decoder always reaches; after the corresponding time the rest is read at
once."""


@dataclass(frozen=True)
class Asked:
    """What every client asks for."""

    tokens: int
    temperature: float
    num_draft_tokens: int


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """The server's answer to a call."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        return dict(json.load(answer))


def begin(url: str, prompt: str, seed: int, asked: Asked) -> str:
    """Start a run as a program would; returns the address of its events."""
    call = f"{url}gradio_api/call/generate"
    data = [prompt, asked.tokens, asked.temperature, 1.0, seed, asked.num_draft_tokens]
    return f"{call}/{post(call, {'data': data})['event_id']}"


def ask(url: str, prompt: str, seed: int, asked: Asked) -> Answer:
    """One run, as a program would make it."""

    def batches() -> Iterator[list[dict[str, Any]]]:
        with urllib.request.urlopen(begin(url, prompt, seed, asked), timeout=300) as answer:
            generating = False
            for line in answer:  # server-sent events
                if line.startswith(b"event:"):
                    generating = line.split(b":", 1)[1].strip() == b"generating"
                elif line.startswith(b"data:") and generating:
                    yield json.loads(line[5:])[0]

    return follow(batches())


def read_slowly(url: str, tokens: int) -> float:
    """The decoder's tokens per second from the last event of a stream that is read at about 160
    kB/s."""
    received = b""
    began = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        while piece := answer.read1(SLOW_BYTES):
            received += piece
            if time.perf_counter() - began < tokens / SLOWEST:
                time.sleep(SLOW_SECONDS)
            elif b"process_completed" in received:
                break
    return float(re.findall(rb'tokens_per_second[\\"]+: ?([0-9.]+)', received)[-1])


def slow_program(url: str, prompt: str, tokens: int, seed: int) -> float:
    """The decoder's tokens per second for a program that reads slowly."""
    return read_slowly(begin(url, prompt, seed, Asked(tokens, 0.7, 5)), tokens)


def slow_page(url: str, prompt: str, tokens: int, seed: int) -> float:
    """The decoder's tokens per second for a page that reads slowly: a browser's calls, without a
    browser."""
    with urllib.request.urlopen(f"{url}config") as answer:
        config = json.load(answer)
    props = {component["id"]: component["props"] for component in config["components"]}
    run = next(d for d in config["dependencies"] if d["api_name"] == "_decode")
    fields = {"prompt": prompt, "max-tokens": tokens, "seed": seed}
    inputs = [props[name] for name in run["inputs"]]
    data = [fields.get(one.get("elem_id"), one.get("value")) for one in inputs]
    session = secrets.token_hex(8)
    call = {"data": data, "fn_index": run["id"], "session_hash": session}
    post(f"{url}gradio_api/queue/join", call)
    return read_slowly(f"{url}gradio_api/queue/data?session_hash={session}", tokens)
