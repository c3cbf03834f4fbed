"""SIGTERM ends the page whatever it is doing."""

import json
import signal
import subprocess
import sys
import urllib.request

from benchmarks.server import ROOT, Server

SECONDS = 10
BUSY = """
import re, signal, sys, threading
import app
app.end_in_time(1)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

def work():
    print("busy", flush=True)
    re.match("(a+)+$", "a" * 60 + "b")

threading.Thread(target=work).start()
"""


def test_a_process_whose_interpreter_is_not_free_ends_in_time():
    """The pattern takes ages in C, and lets no Python run: neither a handler nor another thread."""
    with subprocess.Popen([sys.executable, "-c", BUSY], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        process.terminate()
        assert process.wait(SECONDS) in (0, -signal.SIGKILL)


def test_a_page_with_streams_that_nobody_reads_ends_in_time():
    with Server(NAIVE_SPECULATE_MEASURING="off") as server:
        server.wait_for("public link", 300)  # what Gradio prints last
        body = json.dumps({"data": ["Once upon a time", 2048, 1.0]}).encode()
        for _ in range(20):
            call = urllib.request.Request(f"{server.url}gradio_api/call/generate", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(call, timeout=60) as answer:
                assert json.load(answer)["event_id"]
        server.process.terminate()
        assert server.process.wait(SECONDS) in (0, -signal.SIGKILL)
