"""A host with a single place: who comes second waits, sees how many are before, and gets it once it is free."""

import json
import re

import pytest
from playwright.sync_api import expect

from benchmarks.server import Server
from tests.browser.conftest import PATIENCE
from tests.browser.steps import another_run, set_number, shown_run
from tests.hosting.http import get
from tests.tiny import save_model, tiny_llama


@pytest.fixture
def two_visitors(chromium, tmp_path):
    """At a model of many layers, so slow that no run ends by itself while a test looks on."""
    save_model(tiny_llama(96, seed=0, positions=4000), tmp_path)
    server = Server("--target", str(tmp_path), NAIVE_SPECULATE_CONCURRENCY="1", NAIVE_SPECULATE_THREADS="1")
    pages = []
    for _ in range(2):
        page = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(server.url)
        page.wait_for_selector("#tokens [data-step]")
        set_number(page, "k", 0)
        set_number(page, "max-tokens", 2048)
        page.locator("#more button").first.click()
        page.get_by_label("Go on after the end").check()
        pages.append(page)
    yield pages
    for page in pages:
        page.context.close()
    server.end()


def test_who_waits_sees_the_queue_and_a_closed_tab_makes_way(two_visitors):
    first, second = two_visitors
    before = shown_run(first)
    first.locator("#run").click()
    another_run(first, before)
    waiting = shown_run(second)
    second.locator("#run").click()
    expect(second.locator("#queue .progress-text")).to_have_text(re.compile(r"queue: 1/1"))
    expect(second.locator("#queue")).to_be_visible()
    assert shown_run(second) == waiting
    health = json.loads(get(second.url + "health"))
    assert (health["running"], health["waiting"]) == (1, 1)
    first.close()
    another_run(second, waiting)
    expect(second.locator("#queue")).to_be_hidden()
