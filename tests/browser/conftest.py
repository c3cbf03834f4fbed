"""The real app with a small pair, and a real Chromium."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

from benchmarks.server import Server
from naive_speculate import SpeculativeDecoder
from naive_speculate.serving import LocalEngine
from tests.browser.steps import ended
from tests.hosting.http import served_here
from ui.assets import ROOT
from ui.host.catalog import Catalog, ServedPair

CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-sync",
    # Each window would load the pages of its address bar, which is hidden here; the rest is
    # Playwright's own list.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,"
    "PaintHolding,OptimizationHints,MediaRouter",
    "--host-resolver-rules=MAP lan.test 127.0.0.1",
    # several collect garbage and compile no faster where cores are shared, but compute more
    "--js-flags=--single-threaded",
]
HERE = ("http://127.0.0.1:", "data:", "blob:", "file:", "about:")
# milliseconds; a busy machine is slow, and nothing here waits longer than it must
PATIENCE = 180_000
expect.set_options(timeout=PATIENCE)


def small(pair: tuple[Path, Path]) -> dict[str, str]:
    """The environment of a server with this pair."""
    return {"NAIVE_SPECULATE_TARGET": str(pair[0]), "NAIVE_SPECULATE_DRAFT": str(pair[1])}


@pytest.fixture(scope="package")
def server(small_pair: tuple[Path, Path]) -> Iterator[Server]:
    """With a small pair, and without a measurement after each run, which takes some times as
    long as the run itself."""
    with Server(NAIVE_SPECULATE_MEASURING="off", **small(small_pair)) as running:
        yield running


@pytest.fixture(scope="package")
def measuring(small_decoder: SpeculativeDecoder) -> Iterator[str]:
    """The address of a page that measures, once however busy the machine is."""
    engine = LocalEngine(small_decoder)
    with (
        pytest.MonkeyPatch.context() as patch,
        served_here(Catalog({"small": ServedPair(engine, measurable=True)})) as page,
    ):
        patch.setattr("ui.host.measuring.MOST_REPEATS", 1)
        yield page.local_url


@pytest.fixture(scope="package")
def chromium(request: pytest.FixtureRequest) -> Iterator[Browser]:
    """For these files only: Playwright keeps an event loop running, and a test of another file
    could not start its own.

    Every page waits as long as it must, and computes `--cpu-throttling` times slower. Nothing
    moves unless a test asks for it: frames take time."""
    path = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    rate = request.config.getoption("cpu_throttling")

    def still(plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda browser, **options: plain(browser, **{"reduced_motion": "reduce"} | options)

    def patient(plain: Callable[..., Page]) -> Callable[..., Page]:
        def new_page(*args: object, **options: object) -> Page:
            page = plain(*args, **options)
            page.set_default_timeout(PATIENCE)
            if rate > 1:
                page.context.new_cdp_session(page).send(
                    "Emulation.setCPUThrottlingRate", {"rate": rate}
                )
            return page

        return new_page

    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Browser, "new_context", still(Browser.new_context))
        patch.setattr(Browser, "new_page", patient(still(Browser.new_page)))
        patch.setattr(BrowserContext, "new_page", patient(BrowserContext.new_page))
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def scripts(chromium: Browser) -> Iterator[Page]:
    """An empty page that can import the page's scripts."""

    def serve(route: Route) -> None:
        name = route.request.url.rsplit("/", 1)[-1]
        script = {"path": ROOT / "js" / name, "content_type": "text/javascript"}
        route.fulfill(
            **(
                script
                if name
                else {"body": "<!doctype html><body></body>", "content_type": "text/html"}
            )
        )

    page = chromium.new_page()
    page.route("http://page.test/**", serve)
    page.goto("http://page.test/")
    yield page
    page.close()


@pytest.fixture(scope="package")
def tab(chromium: Browser) -> list[Page]:
    """A page that tests share one after another, or none yet: Chromium has its scripts compiled
    already, which is most of what opening costs."""
    return []


@pytest.fixture
def open_page(server: Server, chromium: Browser, tab: list[Page]) -> Iterator:
    """Opens the page, ready to use and without anything of the test before; fails the test on
    errors in the page's scripts, and on what its content security policy forbids, and on
    requests to anywhere else.

    A test's second page, and one with other options than size, colours and motion, has a context
    of its own.
    """
    opened, problems = list[Page](), list[str]()
    listeners = {
        "pageerror": lambda error: problems.append(str(error)),
        "console": lambda said: (
            problems.append(said.text) if "Content Security Policy" in said.text else None
        ),
        "request": lambda asked: None if asked.url.startswith(HERE) else problems.append(asked.url),
    }

    def open_(
        query="",
        shown="#tokens [data-step]",
        *,
        url=server.url,
        width=1440,
        height=900,
        color_scheme="light",
        reduced_motion="reduce",
        **context,
    ):
        page = tab.pop() if tab and not context else chromium.new_context(**context).new_page()
        opened.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(
            color_scheme=color_scheme, reduced_motion=reduced_motion, forced_colors="none"
        )
        for event, listener in listeners.items():
            page.on(event, listener)
        page.goto(url + query)
        page.locator(shown).first.wait_for()
        page.locator("#ns-early").wait_for(state="detached")  # what was painted before it
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
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        tab.append(page)
    assert problems == []


@pytest.fixture
def page(open_page) -> Page:
    """The page once all of the recorded run is shown."""
    page = open_page()
    ended(page)
    return page
