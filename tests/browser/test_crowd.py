"""A host with few rows: a late visitor waits, sees why, and decodes once a row is free. And its end."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.server import Server
from tests.browser.steps import another_run, open_drawer, set_number, shown_run
from tests.hosting.http import get
from tests.tiny import save_model, tiny_llama


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a model of many layers, so slow that no run ends by itself while a test looks on."""
    folder = tmp_path_factory.mktemp("slow")
    save_model(tiny_llama(96, seed=0, positions=4000), folder)
    with Server("--target", str(folder), NAIVE_SPECULATE_CONCURRENCY="1", NAIVE_SPECULATE_THREADS="1") as running:
        yield running


@pytest.fixture
def visit(host: Server, chromium: Browser) -> Iterator:
    """Opens the page for another visitor, who wants a long run."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})

    def visit_() -> Page:
        page = context.new_page()
        page.goto(host.url)
        page.wait_for_selector("#tokens [data-step]")
        set_number(page, "k", 0)
        set_number(page, "max-tokens", 2048)
        open_drawer(page)
        page.get_by_label("Ignore the end token").check()
        return page

    yield visit_
    context.close()


def test_who_waits_is_told_so_and_a_closed_tab_makes_way(visit):
    """One place and a spare one: the third visitor waits."""
    first, second, third = visit(), visit(), visit()
    for page in (first, second):
        before = shown_run(page)
        page.locator("#run").click()
        another_run(page, before)
    waiting = shown_run(third)
    third.locator("#run").click()
    expect(third.get_by_text(re.compile("1 of 1 decoder slots are busy"))).to_be_visible()
    assert shown_run(third) == waiting
    health = json.loads(get(third.url + "health"))
    assert (health["running"], health["waiting"]) == (2, 1)
    first.close()
    another_run(third, waiting)


def test_the_app_ends_when_it_is_told_to_and_with_it_a_run_that_goes_on(host, visit):
    page = visit()
    set_number(page, "seed", 1213)
    before = shown_run(page)
    page.locator("#run").click()
    another_run(page, before)
    host.end()
    assert host.process.returncode == 0
    host.wait_for('"seed": 1213')
    (line,) = [json.loads(line) for line in host.log.splitlines() if '"seed": 1213' in line]
    assert line["outcome"] == "cancelled"
