"""The real app with a small pair, and a real Chromium."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Route, expect, sync_playwright

from benchmarks.server import Server
from tests.browser.steps import ended
from ui.assets import ROOT

CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-sync",
    # Each window would load the pages of its address bar, which is hidden here; the rest is Playwright's own list.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,PaintHolding,OptimizationHints,MediaRouter",
    "--host-resolver-rules=MAP lan.test 127.0.0.1",
    "--js-flags=--single-threaded",  # several collect garbage and compile no faster where cores are shared, but compute more
]
HERE = ("http://127.0.0.1:", "data:", "blob:", "file:", "about:")
PATIENCE = 180_000  # milliseconds; a busy machine is slow, and nothing here waits longer than it must
expect.set_options(timeout=PATIENCE)


def small(pair: tuple[Path, Path]) -> dict[str, str]:
    """The environment of a server with this pair."""
    return {"NAIVE_SPECULATE_TARGET": str(pair[0]), "NAIVE_SPECULATE_DRAFT": str(pair[1])}


@pytest.fixture(scope="package")
def server(small_pair: tuple[Path, Path]) -> Iterator[Server]:
    """With a small pair, and without a measurement after each run, which takes some times as long as the run itself;
    `measuring` is with them."""
    with Server(NAIVE_SPECULATE_MEASURING="off", **small(small_pair)) as running:
        yield running


@pytest.fixture(scope="package")
def measuring(small_pair: tuple[Path, Path]) -> Iterator[Server]:
    with Server(**small(small_pair)) as running:
        yield running


def set_up_pages(patch: pytest.MonkeyPatch, maker: type[Browser] | type[BrowserContext], rate: float) -> None:
    """Every page that `maker` opens waits as long as it must, and computes `rate` times slower."""
    plain = maker.new_page

    def new_page(self: Browser | BrowserContext, **options: object) -> Page:
        page = plain(self, **options)
        page.set_default_timeout(PATIENCE)
        if rate > 1:
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": rate})
        return page

    patch.setattr(maker, "new_page", new_page)


@pytest.fixture(scope="package")
def chromium(request: pytest.FixtureRequest) -> Iterator[Browser]:
    """For these files only: Playwright keeps an event loop running, and a test of another file could not start its own."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    rate = request.config.getoption("cpu_throttling")
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        set_up_pages(patch, Browser, rate)
        set_up_pages(patch, BrowserContext, rate)
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def scripts(chromium: Browser) -> Iterator[Page]:
    """An empty page that can import the page's scripts."""
    page = chromium.new_page()

    def serve(route: Route) -> None:
        name = route.request.url.rsplit("/", 1)[-1]
        if name:
            route.fulfill(path=ROOT / "js" / name, content_type="text/javascript")
        else:
            route.fulfill(body="<!doctype html><body></body>", content_type="text/html")

    page.route("http://page.test/**", serve)
    page.goto("http://page.test/")
    yield page
    page.close()


@pytest.fixture(scope="package")
def tab(chromium: Browser) -> list[Page]:
    """A page that tests share one after another, or none yet: Chromium has its scripts compiled already, which is most of what
    opening costs."""
    return []


@pytest.fixture
def open_page(server: Server, chromium: Browser, tab: list[Page]) -> Iterator:
    """Opens the page, ready to use and without anything of the test before; fails the test on errors in the page's scripts, and
    on what its content security policy forbids, and on requests to anywhere else.

    Nothing moves unless a test asks for it: frames take time.
    A test's second page, and one with other options than size, colours and motion, has a context of its own.
    """
    opened, problems = list[Page](), list[str]()

    def note(error: object) -> None:
        problems.append(str(error))

    def forbidden(said: ConsoleMessage) -> None:
        if "Content Security Policy" in said.text:
            problems.append(said.text)

    def asked(request: Request) -> None:
        if not request.url.startswith(HERE):
            problems.append(request.url)

    def open_(
        query: str = "",
        url: str = server.url,
        shown: str = "#tokens [data-step]",
        width: int = 1440,
        height: int = 900,
        color_scheme="light",
        reduced_motion="reduce",
        **context,
    ):
        page = tab.pop() if tab and not context else chromium.new_context(**context).new_page()
        opened.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=color_scheme, reduced_motion=reduced_motion)
        page.on("pageerror", note)
        page.on("console", forbidden)
        page.on("request", asked)
        page.goto(url + query)
        page.locator(shown).first.wait_for()
        return page

    yield open_
    for page in opened:
        if page.is_closed() or tab or len(opened) > 1:
            page.context.close()
            continue
        page.unroute_all()
        if page.url.startswith("http"):
            page.evaluate("localStorage.clear(), sessionStorage.clear()")
        page.goto("about:blank")  # what it still decodes is cancelled, as by closing it
        page.remove_listener("pageerror", note)
        page.remove_listener("console", forbidden)
        page.remove_listener("request", asked)
        tab.append(page)
    assert problems == []


@pytest.fixture
def page(open_page) -> Page:
    """The page once all of the recorded run is shown."""
    page = open_page()
    ended(page)
    return page
