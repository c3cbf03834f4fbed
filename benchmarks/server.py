"""The app in a process of its own, for benchmarks that talk to it."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def serve() -> tuple[subprocess.Popen[bytes], str]:
    """The app on a free port, ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "app.py", "--port", str(port)], cwd=ROOT, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    )
    url = f"http://127.0.0.1:{port}/"
    for _ in range(600):
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return process, url
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("app.py is not ready after two minutes")
