"""A connection that breaks in mid-run: the page says so and loses nothing, neither the run nor
the settings."""

import json
import socket
import threading
from contextlib import suppress
from itertools import count
from typing import Self
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page, expect

from benchmarks.server import Server
from tests.browser.conftest import small
from tests.browser.steps import (
    another_run,
    ended,
    link,
    linked,
    run,
    script,
    settled,
    shown_run,
    start,
    text,
    trace,
)
from tests.hosting.http import generate, get
from ui.experiments.learn import titles


class Relay:
    """Passes on what comes to `url`, in both directions; a context manager.

    Args:
        url: The server's address.
    """

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url).port
        self._last = b""
        self._speaks = threading.Event()
        self._speaks.set()
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._whole = True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break every connection, and whatever is tried from now on."""
        with self._lock:
            self._whole = False
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._open.clear()
        self._speaks.set()

    def hold_after(self, word: bytes) -> None:
        """Once the server has said something, it says no more, on any connection, until all are
        cut.

        No test is quick enough to cut a run by itself, and what a page has not read when its
        connection breaks is lost to it. A page that hears nothing for a while asks on another
        connection, which a busy machine gives it the time for.
        """
        self._last = word

    def mend(self, url: str = "") -> None:
        """Let new connections through again, to another server where one is named."""
        with self._lock:
            self._whole = True
            self._to = urlsplit(url).port if url else self._to

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                with self._lock:
                    if not self._whole:
                        near.close()
                        continue
                    far = socket.create_connection(("127.0.0.1", self._to))
                    self._open += [near, far]
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
                threading.Thread(
                    target=self._pass_on, args=(far, near), kwargs={"said": True}, daemon=True
                ).start()

    def _pass_on(self, near: socket.socket, far: socket.socket, *, said: bool = False) -> None:
        with suppress(OSError):
            while data := near.recv(65536):
                if said:
                    self._speaks.wait()
                if (
                    said and self._last and self._last in data
                ):  # before it is heard: then a test may cut at once
                    self._last = b""
                    self._speaks.clear()
                far.sendall(data)
        for end in (near, far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


PROMPT = "Once upon a time there was an old man who"
LONG = {"max_tokens": 400, "k": 0, "seed": 4}
"""So long that its first message never holds all of it."""
SAID = ".ns-connection"


REMEMBER_WHAT_REPEATS = """
    const [set, repeated] = [window.setInterval.bind(window), []];
    window.setInterval = (act, ...more) => { repeated.push(act); return set(act, ...more); };
    window.timePasses = () => repeated.forEach((act) => act());
"""
"""So that no test has to wait: `timePasses()` does what the page does every few seconds, once."""


def opened(page: Page, url: str) -> None:
    """The page, ready to use; its runs go on to the last of their tokens."""
    page.add_init_script(REMEMBER_WHAT_REPEATS)
    page.goto(url + link(prompt=PROMPT, num_draft_tokens=LONG["k"], ignore_eos=True))
    linked(page, PROMPT)


def so_far(page: Page) -> None:
    """Wait until the console has every failed request of the page until now."""
    with page.expect_console_message(lambda message: message.text == "so far"):
        page.evaluate("fetch('nothing').catch(() => console.error('so far'))")


def broken(page: Page, way: Relay) -> None:
    """A run goes on, its first tokens are on the page, and the connection is gone."""
    way.hold_after(b"bonus")
    start(page, PROMPT, **LONG)
    page.locator("#tokens [data-step]").first.wait_for()
    way.cut()
    expect(page.locator(SAID)).to_contain_text("does not answer")


def test_a_run_whose_connection_breaks_is_whole_once_it_is_back(server, chromium):
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(
                f"{message.text} {message.location['url']}"
                if message.text != "so far"
                else message.text
            )

    with Relay(server.url) as way, chromium.new_context() as context:
        page = context.new_page()
        opened(page, way.url)
        page.evaluate("window.stays = true")
        page.on("console", listen)
        broken(page, way)
        context.set_offline(True)
        expect(page.locator(SAID)).to_contain_text("You are offline")
        shown = shown_run(page)
        page.evaluate("timePasses()")
        so_far(page)
        complaints.clear()
        for _ in range(3):
            page.evaluate("timePasses()")
        so_far(page)
        assert [text for text in complaints if text != "so far" and "nothing" not in text] == []
        assert page.locator(".ns-stage").get_attribute("data-state") == "running"
        page.locator("#run").click()  # it cannot; the run stays, and so does what is said
        expect(page.locator(SAID)).to_contain_text("You are offline")
        way.mend()
        context.set_offline(False)
        ended(page)
        expect(page.locator(SAID)).to_be_empty()
        assert shown_run(page) == shown
        whole = trace(page)
        assert whole.finished.finish_reason == "length"
        assert text(page) == whole.text
        run(page, "The goose said", max_tokens=8)
        assert trace(page).started.prompt == "The goose said"
        assert page.evaluate("window.stays"), "the page was not loaded anew"
        assert page.locator("#k input[type=number]").input_value() == str(LONG["k"])


def test_the_server_ends_when_asked_to_which_the_page_says_and_offers_to_make_the_run_again(
    server, chromium, small_pair
):
    with Server(**small(small_pair)) as first, Relay(first.url) as way:
        page = chromium.new_page()
        opened(page, way.url)
        broken(page, way)
        seeds = count()
        while json.loads(get(first.url + "health"))["running"] < 2:
            generate(first.url, "Once upon a time", 900, 1.0, 1.0, next(seeds))
        first.end()
        assert first.process.returncode == 0, "with a page that is open, and runs that go on"
        first.wait_for('"outcome": "cancelled"')
        shown, partial = shown_run(page), text(page)
        way.mend(server.url)  # which was started earlier, as another replica may be
        expect(page.locator(SAID)).to_contain_text("no longer has this run")
        page.get_by_role("button", name="Run it again").click()
        another_run(page, shown)
        ended(page)
        again = trace(page)
        assert (again.started.prompt, again.started.seed) == (PROMPT, LONG["seed"])
        assert again.finished.metrics["num_generated_tokens"] == LONG["max_tokens"]
        assert again.text.startswith(partial)
        assert page.locator("#prompt textarea").input_value() == PROMPT
        page.close()


def test_what_was_opened_offline_is_shown_once_online_and_an_old_page_offers_to_be_loaded_again(
    page,
):
    title = page.locator(".ns-lesson-title")
    for opened, lesson in (
        (page.get_by_role("tab", name="Learn"), 0),
        (page.get_by_role("button", name=titles()[1]), 1),
    ):
        page.context.set_offline(True)
        opened.click()
        expect(page.locator(SAID)).to_contain_text("You are offline")
        page.locator(".ns-course").wait_for()
        so_far(page)
        page.context.set_offline(False)
        expect(title).to_have_text(titles()[lesson])
        expect(page.locator(SAID)).to_have_text("")

    # A page that is older than the server offers to be loaded again, whatever becomes of the
    # connection.
    page.route("**/plotly-*", lambda route: route.fulfill(status=404))
    page.goto(page.url.split("?")[0])
    page.locator(
        "#chart-lengths"
    ).scroll_into_view_if_needed()  # no chart that needs Plotly is drawn before
    expect(page.locator(SAID)).to_contain_text("newer version of this page")
    page.route("**/app_id", lambda route: route.fulfill(status=503))
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.locator(SAID)).to_contain_text("does not answer")
    page.unroute("**/app_id")
    expect(page.locator(SAID)).not_to_contain_text("does not answer")
    page.set_viewport_size({"width": 390, "height": 844})
    said, bar = page.locator(SAID).bounding_box(), page.locator("#run").bounding_box()
    assert said["y"] + said["height"] <= bar["y"]
    page.set_viewport_size({"width": 1440, "height": 900})
    page.unroute("**/plotly-*")
    page.get_by_role("button", name="Reload").click()
    page.locator("#chart-lengths").scroll_into_view_if_needed()
    page.locator("#chart-lengths .main-svg").first.wait_for(state="attached")
    expect(page.locator(SAID)).to_be_empty()


HOLD_THE_END = script("hold_the_end")
"""A stream of results whose last message, that it ends, comes when the test says so."""


def test_a_call_that_joins_while_the_stream_of_results_ends_gets_its_results(server, chromium):
    page = chromium.new_page()
    page.add_init_script(HOLD_THE_END)
    opened(page, server.url)
    run(page, PROMPT, max_tokens=8, k=2)
    settled(page)
    page.evaluate("window.holds = true")
    for while_it_ends in (False, True):
        before, joined = shown_run(page), page.evaluate("window.joined")
        page.locator("#run").click()
        page.wait_for_function("(joined) => window.joined > joined", arg=joined)
        if while_it_ends:
            page.evaluate("window.letGo()")
        another_run(page, before)
        ended(page)
        page.wait_for_function("window.ending")
    page.close()
