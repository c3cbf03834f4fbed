"""SIGTERM and Ctrl-C end the page whatever it is doing."""

import signal
import subprocess
import sys

import pytest

from benchmarks.server import ROOT

PATIENCE = 60.0  # seconds; a process that does not end takes more
BUSY = """
import re, signal, sys, threading
import app
app.end_in_time(0.2)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets jobs in the background ignore it

def work():
    print("busy", flush=True)
    re.match("(a+)+$", "a" * 60 + "b")

threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_whose_interpreter_is_not_free_ends_in_time(number):
    """The pattern takes ages in C, and lets no Python run: neither a handler nor another thread."""
    with subprocess.Popen([sys.executable, "-c", BUSY], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        process.send_signal(number)
        assert process.wait(PATIENCE) in (0, -signal.SIGKILL)
