"""A pair that is loaded after the page answers, in a page that was open before: runs wait for it, and the page follows."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import gradio as gr
import pytest
from playwright.sync_api import Browser, expect

from benchmarks.server import free_port
from naive_speculate.known import KNOWN
from naive_speculate.serving import Engine, LocalEngine
from tests.browser.steps import another_run, ended, open_drawer, set_number, start, text
from ui.host.catalog import Catalog, ServedPair
from ui.host.deferred import DeferredEngine, expected
from ui.page import build_page, launch, open_queue
from ui.run.runs import Runs


class Served:
    """A page in this process whose first pair is loaded once `ready` is set."""

    def __init__(self, engine: Engine, other: Engine) -> None:
        self.ready = threading.Event()

        def make() -> Engine:
            self.ready.wait()
            return engine

        later = DeferredEngine("SmolLM2", replace(expected(KNOWN["smollm2"], 4), chat=other.about.chat), make, 4)
        pairs = {"SmolLM2": ServedPair(later), "other": ServedPair(other)}
        self.catalog = Catalog(pairs, measuring=False, later={"SmolLM2": later})
        self.page: gr.Blocks = build_page(self.catalog, Runs())
        open_queue(self.page, 4)
        self.url = launch(self.page, server_port=free_port(), prevent_thread_lock=True, quiet=True)
        self.loading = threading.Thread(target=self.catalog.load_later)
        self.loading.start()

    def close(self) -> None:
        self.ready.set()
        self.loading.join()
        self.page.close(verbose=False)
        self.catalog.close()


@pytest.fixture
def served(small_decoder) -> Iterator[Served]:
    made = Served(LocalEngine(small_decoder), LocalEngine(small_decoder))
    yield made
    made.close()


def test_a_run_waits_for_the_pair_and_the_notice_goes_by_itself(served: Served, chromium: Browser):
    page = chromium.new_page()
    page.goto(served.url)
    notice, choice = page.locator("#loading .ns-notice"), page.locator("#pair input")
    expect(notice).to_have_text("SmolLM2 is loading. Its runs start as soon as it is ready.")
    open_drawer(page)
    expect(choice).to_have_value("SmolLM2 (loading)")
    set_number(page, "max-tokens", 12)
    before = start(page, "Once upon a time")
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
