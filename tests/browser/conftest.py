"""The real app with the real bundled pair, and a real Chromium."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks.server import Server

CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-sync",
]
PATIENCE = 180_000  # milliseconds; a busy machine is slow, and nothing here waits longer than it must
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """For a file, since Playwright keeps an event loop running, beside which a test of another file could have none."""
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
