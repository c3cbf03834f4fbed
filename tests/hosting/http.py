"""Requests of a server in tests."""

import json
import urllib.error
import urllib.request
from typing import Any

JSON = {"Content-Type": "application/json"}


def get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


def post(url: str, body: Any, **headers: str) -> tuple[int, str]:
    """The status and the answer; what is no bytes is sent as JSON."""
    sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, sent, JSON | headers), timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def generate(url: str, *data: Any) -> str:
    """Where the events of a call are to be read."""
    status, answer = post(f"{url}gradio_api/call/generate", {"data": data})
    assert status == 200, answer
    return f"{url}gradio_api/call/generate/{json.loads(answer)['event_id']}"
