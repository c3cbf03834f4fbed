"""The page in Chromium: the figures of a run, of a long one, and of a first visit with a phone."""

import json
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

PHONE_NETWORK = {
    "offline": False,
    "latency": 150,
    "downloadThroughput": 200_000,
    "uploadThroughput": 94_000,
}
PHONE_SLOWNESS = 4
LONG_RUN, LONG_MS = 1000, 50
"""Tokens of a long run; longest task that a visitor does not notice."""
WATCH = """
new PerformanceObserver((list) => {
  for (const frame of list.getEntries()) {
    const ours = frame.scripts.filter((script) => script.sourceURL.includes("/scripts-"));
    const longest = Math.max(0, ...ours.map((script) => script.duration));
    window.longest = Math.max(window.longest, longest);
    window.slow.push(longest);
  }
}).observe({ type: "long-animation-frame" });
(function count() { window.frames_ += 1; requestAnimationFrame(count); })();
const clicked = () => { window.clicked = performance.now(); };
document.querySelector("#run").addEventListener("click", clicked, true);
new MutationObserver(() => {
  if (window.first) return;
  const stage = document.querySelector(".ns-stage");
  const judged = "#tokens :is([data-kind=accepted], [data-kind=resampled], [data-kind=bonus])";
  if (stage.dataset.run === window.before || !stage.querySelector(judged)) return;
  window.first = performance.now();
}).observe(document.querySelector("#tokens"), { childList: true, subtree: true, attributes: true });
"""
NEXT = """
Object.assign(window, { slow: [], frames_: 0, longest: 0, first: 0 });
window.before = document.querySelector(".ns-stage").dataset.run;
"""


def chromium_of(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(
        executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
    )


@cache
def open_browser(url: str) -> Page:
    """The page in Chromium, for the life of this process."""
    playwright = sync_playwright().start()
    page = chromium_of(playwright).new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(180_000)
    page.goto(url)
    page.locator("#tokens [data-step]").first.wait_for()
    page.locator(".ns-stage[data-state=done]").wait_for()
    page.get_by_role("button", name="More").click()
    page.evaluate(NEXT + WATCH)
    return page


def browser(url: str, tokens: int, seed: int, *, to_the_end: bool = False) -> dict[str, Any]:
    """The figures of one run on the page; with `to_the_end` it continues after the end of the
    text."""
    page = open_browser(url)
    page.get_by_label("Ignore the end token").set_checked(to_the_end)
    for name, value in (("max-tokens", tokens), ("seed", seed)):
        field = page.locator(f"#{name} input").first
        field.fill(str(value))
        field.press("Tab")
    page.evaluate(NEXT)
    began = time.perf_counter()
    page.locator("#run").click()
    page.wait_for_function("document.querySelector('.ns-stage').dataset.run !== window.before")
    page.locator(".ns-stage[data-state=done]").wait_for()
    seconds = time.perf_counter() - began
    run = page.locator(".ns-stage").get_attribute("data-run")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save trace").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").strip().split("\n")
    metrics: dict[str, Any] = json.loads(lines[-1])["metrics"]
    assert run is not None
    return {
        "rate": metrics["tokens_per_second"],
        "first_ms": page.evaluate("window.first - window.clicked"),
        "events": len(lines) / seconds,
        "longest_ms": page.evaluate("window.longest"),
        "slow": page.evaluate("window.slow.length"),
        "slow_by_us": page.evaluate(f"window.slow.filter((ms) => ms > {LONG_MS}).length"),
        "frames": page.evaluate("window.frames_"),
    }


def phone(url: str) -> dict[str, float]:
    """A first visit with a phone: milliseconds until the first text and until the stage has
    tokens, the bytes so far, and whether they include the charts' library."""
    with sync_playwright() as playwright:
        context = chromium_of(playwright).new_context(
            viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
        )
        page = context.new_page()
        page.set_default_timeout(180_000)
        tools = context.new_cdp_session(page)
        received: list[float] = []
        urls: list[str] = []
        tools.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
        tools.on("Network.requestWillBeSent", lambda event: urls.append(event["request"]["url"]))
        tools.send("Network.enable")
        tools.send("Network.emulateNetworkConditions", PHONE_NETWORK)
        tools.send("Emulation.setCPUThrottlingRate", {"rate": PHONE_SLOWNESS})
        page.goto(url, wait_until="commit")
        page.locator("#tokens [data-step]").first.wait_for()
        return {
            "ready_ms": page.evaluate("performance.now()"),
            "seen_ms": page.evaluate(
                "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            ),
            "bytes": sum(received),
            "charts_too": any("plotly-cartesian" in url for url in urls),
        }


def smoothness(url: str) -> None:
    """Print the smoothness of a long run and the loading time on a phone."""
    with ProcessPoolExecutor(1, get_context("spawn")) as clients:
        run = clients.submit(browser, url, LONG_RUN, 1, to_the_end=True).result()
    with ProcessPoolExecutor(1, get_context("spawn")) as clients:
        visit = clients.submit(phone, url).result()
    slow, longest = f"{run['slow']:.0f} of {run['frames']:.0f}", f"{run['longest_ms']:.0f} ms"
    print(f"{LONG_RUN} tokens live: {slow} frames over {LONG_MS} ms,")
    print(f"{run['slow_by_us']:.0f} of them by a task of our scripts; the longest took {longest}")
    print(f"a phone's first words            {visit['seen_ms']:7.0f} ms")
    after = f"{visit['bytes'] / 1000:.0f} kB {'with' if visit['charts_too'] else 'without'}"
    print(f"a phone's stage {visit['ready_ms']:24.0f} ms, after {after} the charts' library")
