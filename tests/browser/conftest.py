"""The real app with the real bundled pair, and a real Chromium."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-sync",
]
PATIENCE = 60_000  # milliseconds; a busy machine is slow, and nothing here waits longer than it must


class Server:
    """`python app.py` in a process of its own."""

    def __init__(self, **more: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        environment = os.environ | {"GRADIO_SERVER_PORT": str(self.port), "CUDA_VISIBLE_DEVICES": ""} | more
        self.process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=environment)
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"app.py ended with {self.process.returncode}")
            try:
                with urllib.request.urlopen(self.url, timeout=5):
                    return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError("app.py is not ready after three minutes")

    def end(self) -> float:
        """SIGTERM; seconds until the process was gone."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return time.monotonic() - began


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.end()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def open_page(server: Server, chromium: Browser) -> Iterator:
    """Opens the page, ready to use, in a context of its own; fails the test on errors in the page's scripts."""
    contexts, problems = [], []

    def opened(query: str = "", width: int = 1440, height: int = 900, **context) -> Page:
        made = chromium.new_context(viewport={"width": width, "height": height}, **context)
        made.set_default_timeout(PATIENCE)
        contexts.append(made)
        page = made.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(server.url + query)
        page.wait_for_selector("#tokens [data-step]")
        return page

    yield opened
    for made in contexts:
        made.close()
    assert problems == []


@pytest.fixture
def page(open_page) -> Page:
    return open_page()
