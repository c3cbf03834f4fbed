"""The app in a separate process, for benchmarks and tests."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READY = "Running on local URL"  # what Gradio prints once it answers
READY_SECONDS = 500.0  # a busy machine is slow; an early end is detected at once
GONE_SECONDS = 300.0


def free_port() -> int:
    """A free port of this machine, below those that connections are given: a server binds it
    seconds later, and browsers and other tests connect meanwhile."""
    some = random.SystemRandom().sample(range(15_000, 32_000), 100)  # tests seed `random` itself
    for port in some:
        with suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port was found between 15000 and 32000")


class Server(AbstractContextManager["Server"]):
    """`python app.py` on a free port, ready once this object is made; a context manager.

    It takes further options and environment variables; without a pair in these it serves the
    bundled pair alone, with an empty `NAIVE_SPECULATE_PAIRS` the page's default. A RuntimeError
    with its last output if it ends or is not ready in time.
    """

    def __init__(self, *options: str, **environment: str) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/"
        if "--target" not in options and "NAIVE_SPECULATE_TARGET" not in environment:
            environment.setdefault("NAIVE_SPECULATE_PAIRS", "bundled")
        self._lines, self._over = list[str](), False
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-u", "app.py", "--port", str(port), *options],
            cwd=ROOT,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        threading.Thread(target=self._read, name="server-log", daemon=True).start()
        try:
            self.wait_for(READY, READY_SECONDS)
        except RuntimeError:
            self.process.kill()
            raise

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def log(self) -> str:
        """What it has printed so far, errors included."""
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, text: str, seconds: float = 300.0) -> None:
        """Wait until it has printed a line with this text; a RuntimeError if it does not in that
        time, or ends before."""

        def printed() -> bool:
            return any(text in line for line in self._lines)

        with self._changed:
            self._changed.wait_for(lambda: self._over or printed(), seconds)
            if not printed():
                what = "ended" if self._over else f"was given {seconds:.0f} s"
                last = "".join(self._lines[-20:])
                raise RuntimeError(f"app.py {what} without printing {text!r}, but:\n{last}")

    def end(self) -> float:
        """Send SIGTERM; returns the seconds until the process ended."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(GONE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return time.monotonic() - began

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()
