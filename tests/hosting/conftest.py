"""The real server, started as a host would start it."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The real server, with two pairs, as a host would start it; and its log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = ROOT / "assets" / "pair"
    environ = os.environ | {
        "NAIVE_SPECULATE_PAIRS": f"bundled; Other = {folder / 'target'} + {folder / 'draft'}",
        "NAIVE_SPECULATE_MAX_TOKENS": "64",
    }
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "app.py", "--port", str(port), "--mcp"], cwd=ROOT, env=environ, stderr=output, stdout=output
        )
    url = f"http://127.0.0.1:{port}/"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url + "health", timeout=5).close()
            break
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.2)
    yield url, log
    process.terminate()
    assert process.wait(20) in (0, -15)
