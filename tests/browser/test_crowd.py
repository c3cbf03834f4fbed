"""A host with a single place: who comes second waits, sees how many are before, and gets it the moment it is free."""

import json
import re

import pytest
from playwright.sync_api import expect

from benchmarks.server import Server
from tests.browser.steps import another_run, set_number, shown_run
from tests.hosting.http import get


@pytest.fixture
def two_visitors(chromium):
    server = Server(NAIVE_SPECULATE_CONCURRENCY="1", NAIVE_SPECULATE_THREADS="1")
    pages = []
    for _ in range(2):
        page = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.goto(server.url)
        page.wait_for_selector("#tokens [data-step]")
        set_number(page, "k", 0)
        set_number(page, "max-tokens", 900)
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
