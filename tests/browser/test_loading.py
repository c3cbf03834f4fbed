"""Pages of this process: runs that wait for a pair that is loaded later, or for a free row, and a page below a path."""

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from naive_speculate import SpeculativeDecoder
from naive_speculate.known import KNOWN
from naive_speculate.serving import Engine, LocalEngine
from tests.browser.here import served_here
from tests.browser.steps import another_run, ended, link, linked, open_drawer, set_number, shown_run, text
from tests.hosting.http import get
from ui.host.catalog import Catalog, ServedPair
from ui.host.deferred import DeferredEngine, expected


class Served(NamedTuple):
    url: str
    ready: threading.Event
    loading: threading.Thread


@pytest.fixture(scope="module")
def served(small_decoder: SpeculativeDecoder) -> Iterator[Served]:
    """A page whose first pair is loaded once `ready` is set, and has one row for runs."""
    ready, engine = threading.Event(), LocalEngine(small_decoder, max_rows=1)

    def make() -> Engine:
        ready.wait()
        return engine

    later = DeferredEngine("SmolLM2", replace(expected(KNOWN["smollm2"], 4), chat=engine.about.chat), make, 4)
    pairs = {"SmolLM2": ServedPair(later), "other": ServedPair(LocalEngine(small_decoder))}
    catalog = Catalog(pairs, measuring=False, deferred={"SmolLM2": later})
    loading = threading.Thread(target=catalog.load_later)
    with served_here(catalog) as url:
        loading.start()
        yield Served(url, ready, loading)
        ready.set()
        loading.join()


def test_a_run_waits_for_the_pair_and_the_notice_goes_by_itself(served: Served, chromium: Browser):
    page = chromium.new_page()
    page.goto(served.url)
    notice, choice = page.locator("#loading .ns-notice"), page.locator("#pair input")
    expect(notice).to_have_text("SmolLM2 is loading. Its runs start as soon as it is ready.")
    open_drawer(page)
    expect(choice).to_have_value("SmolLM2 (loading)")
    set_number(page, "max-tokens", 12)
    page.locator("#prompt textarea").fill("Once upon a time")
    before = shown_run(page)
    page.locator("#run").click()
    page.get_by_test_id("toast-body").filter(has_text="SmolLM2 is loading").first.wait_for()
    served.ready.set()
    another_run(page, before)
    ended(page)
    assert text(page)
    expect(notice).to_have_count(0)
    expect(choice).to_have_value("SmolLM2")
    page.reload()  # who comes later finds the page as it is now
    open_drawer(page)
    expect(choice).to_have_value("SmolLM2")
    expect(notice).to_have_count(0)
    page.context.close()


@pytest.fixture
def slow(small_decoder: SpeculativeDecoder, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The target takes its time, but no core's, so that no run ends by itself while a test looks on."""
    target, goes_on = small_decoder.pair.target, threading.Event()
    forward = target.forward

    def wait(*args, **kwargs):
        goes_on.wait(0.3)
        return forward(*args, **kwargs)

    monkeypatch.setattr(target, "forward", wait)
    yield
    goes_on.set()


def test_a_visitor_who_waits_reads_it_and_a_closed_tab_makes_way(served: Served, slow: None, chromium: Browser):
    """One place and a spare one: the third visitor waits."""
    served.ready.set()
    served.loading.join()
    context = chromium.new_context(reduced_motion="reduce")

    def visit() -> tuple[Page, str]:
        page = context.new_page()
        page.goto(served.url + link(prompt="The fox", num_draft_tokens=0, max_tokens=900, ignore_eos=True))
        linked(page, "The fox")
        before = shown_run(page)
        page.locator("#run").click()
        return page, before

    first, second = visit(), visit()
    for page, before in (first, second):
        another_run(page, before)
    third, before = visit()
    expect(third.get_by_text(re.compile("1 of 1 decoder slots are busy"))).to_be_visible()
    assert shown_run(third) == before
    health = json.loads(get(served.url + "health"))
    assert (health["running"], health["waiting"]) == (2, 1)
    first[0].close()
    another_run(third, before)
    context.close()


def test_through_a_proxy_that_has_put_it_deeper_the_page_finds_its_scripts(small_decoder, chromium: Browser, monkeypatch):
    monkeypatch.setenv("GRADIO_ROOT_PATH", "/deep")
    catalog = Catalog({"one": ServedPair(LocalEngine(small_decoder))}, measuring=False)
    with served_here(catalog) as url, chromium.new_context() as context:
        page = context.new_page()

        def pass_on(route: Route) -> None:
            path = route.request.url.removeprefix(url)
            if path.startswith("deep/") and "heartbeat" not in path:  # which never ends
                route.fulfill(response=route.fetch(url=url + path.removeprefix("deep/")))
            else:
                route.abort()

        page.route(f"{url}**", pass_on)
        page.goto(f"{url}deep/")
        page.locator("#tokens [data-step]").first.wait_for()
        page.unroute_all(behavior="ignoreErrors")  # a stream of events that is still passed on has no reader
