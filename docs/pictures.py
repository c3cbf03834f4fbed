"""Makes the pictures of the documentation: `make .venv/.test chromium && .venv/bin/python -m
docs.pictures [NAME …]`.

Starts the page with its default pairs, asks it a question, and takes screenshots; `run.webp` is
an animation of a run, 2 MB at most.
"""

import io
import itertools
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.server import Server
from ui.assets import ROOT

FOLDER = Path(__file__).resolve().parent
QUESTION = "Write a Python function that reverses a list."
MOMENTS = (1000, 2000, 3000, 4400)
"""Milliseconds of a step's animation: the draft tokens, the target pass, the verdicts, the text."""
MOST_STILL_BYTES = 150_000
FREEZE = """(time) => {
    for (const move of document.querySelector(".ns-drawing").getAnimations({ subtree: true })) {
        move.pause();
        move.currentTime = time;
    }
}"""
SIZES = {1440: 900, 1024: 768, 390: 844}
PATIENCE = 180_000.0
FEWEST_FRAMES, MOST_FRAMES, SECONDS_PER_FRAME = 12, 150, 0.25
MOST_BYTES = 2_000_000


def opened(browser: Browser, url: str, width: int, theme: str = "light") -> Page:
    """The page, once it shows the recorded run and SmolLM2 is loaded."""
    context = browser.new_context(
        viewport={"width": width, "height": SIZES[width]}, color_scheme=theme
    )  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{url}{'' if '?' in url else '?'}__theme={theme}")
    page.wait_for_selector("#tokens [data-step]", state="attached")
    page.wait_for_selector("#ns-early", state="detached")
    return page


def ask(page: Page) -> None:
    """Ask the question, without waiting for the answer."""
    before = page.locator(".ns-stage").get_attribute("data-run")
    page.locator("#prompt textarea").fill(QUESTION)
    page.locator("#run").click()
    page.wait_for_function(
        "run => document.querySelector('.ns-stage').dataset.run !== run", arg=before
    )


def finish(page: Page) -> None:
    """Wait until the run has been measured and replayed."""
    page.wait_for_selector(".ns-stage[data-state=done]")
    page.wait_for_selector(".ns-race[data-state=done]")
    page.wait_for_timeout(1500)  # animations


def take(page: Page, name: str) -> None:
    """Save what is on the screen. Raises `RuntimeError` if the file is too large."""
    path = FOLDER / f"{name}.webp"
    picture = Image.open(io.BytesIO(page.screenshot(type="png"))).convert("RGB")
    picture.save(path, quality=75, method=6)
    if path.stat().st_size > MOST_STILL_BYTES:
        raise RuntimeError(f"{path} has {path.stat().st_size:,} bytes")


def screens(browser: Browser, url: str) -> None:
    """The first screen on arrival, at three widths in two themes."""
    for theme in ("light", "dark"):
        for width in SIZES:
            page = opened(browser, url, width, theme)
            page.wait_for_selector(".ns-race[data-state=done]")
            page.wait_for_timeout(1500)
            page.evaluate(FREEZE, MOMENTS[-1])
            take(page, f"page-{theme}-{width}")
            page.context.close()


def stage(browser: Browser, url: str) -> None:
    """Four moments of a step with a rejected draft token, and lecture mode."""
    page = opened(browser, f"{url}?embed=1&stage=1&", 1024)
    page.set_viewport_size({"width": 1000, "height": 470})
    page.locator("[data-act=end]").click()
    page.locator("[data-act=back]").click()
    page.wait_for_selector(".ns-drawing [data-part=fate]", state="attached")
    for time_ in MOMENTS:
        page.evaluate(FREEZE, time_)
        take(page, f"step-{time_}")
    page.context.close()
    page = opened(browser, f"{url}?lecture=1&", 1024)
    page.wait_for_selector(".ns-drawing svg")
    page.wait_for_timeout(1500)
    page.evaluate(FREEZE, MOMENTS[-1])
    take(page, "lecture")
    page.context.close()


def preview(browser: Browser, url: str) -> None:
    """The picture that links to the page show elsewhere: the first step."""
    context = browser.new_context(viewport={"width": 1200, "height": 630})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{url}?embed=1&stage=1&__theme=light")
    page.wait_for_selector(".ns-drawing svg")
    page.locator("[data-act=start]").click()
    page.evaluate(FREEZE, MOMENTS[-1])
    shot = page.locator(".ns-drawing").screenshot(type="png")
    drawing = Image.open(io.BytesIO(shot)).convert("RGB")
    picture = Image.new("RGB", (1200, 630), drawing.getpixel((0, 0)))
    picture.paste(drawing, ((1200 - drawing.width) // 2, (630 - drawing.height) // 2))
    picture.quantize(128).save(ROOT / "previews" / "run.png", optimize=True)
    context.close()


def why(browser: Browser, url: str) -> None:
    """The explanation of a rejected draft token."""
    page = opened(browser, url, 1440)
    page.locator("#tokens [data-kind=rejected]").first.click()
    page.wait_for_timeout(2500)
    page.screenshot(path=FOLDER / "why.png")
    page.context.close()


def rooms(browser: Browser, url: str) -> None:
    """Explore and Learn."""
    page = opened(browser, url, 1440)
    for name in ("Explore", "Learn"):
        page.get_by_role("tab", name=name, exact=True).click()
        page.wait_for_timeout(6000)
        page.screenshot(path=FOLDER / f"{name.lower()}.png")
    page.context.close()


def animation(browser: Browser, url: str) -> None:
    """A run, from the question to its result. Raises `RuntimeError` if the file is too large."""
    page = opened(browser, url, 1024)
    page.locator("#prompt textarea").fill(QUESTION)
    page.locator("#run").click()
    frames, times = list[Image.Image](), [time.monotonic()]
    over = page.locator(".ns-stage[data-state=done] .ns-race[data-state=done]")
    last = MOST_FRAMES
    while len(frames) < last:
        frames.append(
            Image.open(io.BytesIO(page.screenshot(type="png"))).convert("RGB").resize((768, 576))
        )
        page.wait_for_timeout(SECONDS_PER_FRAME * 1000)
        times.append(time.monotonic())
        if len(frames) > FEWEST_FRAMES and over.count():
            last = min(last, len(frames) + 1)
    path = FOLDER / "run.webp"
    durations = [round(1000 * (end - begin)) for begin, end in itertools.pairwise(times)]
    durations[-1] = 4000
    frames[0].save(
        path,
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=0,
        quality=70,
        method=4,
    )
    if path.stat().st_size > MOST_BYTES:
        raise RuntimeError(f"{path} has {path.stat().st_size:,} bytes, {MOST_BYTES:,} at most")


PICTURES: dict[str, Callable[[Browser, str], None]] = {
    "screens": screens,
    "stage": stage,
    "preview": preview,
    "why": why,
    "rooms": rooms,
    "run": animation,
}


def main() -> None:
    """Make the pictures named on the command line, or all."""
    names = sys.argv[1:] or list(PICTURES)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with Server(NAIVE_SPECULATE_PAIRS="") as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        warm = opened(browser, server.url, 1024)
        ask(warm)  # once SmolLM2 is loaded
        finish(warm)
        warm.context.close()
        for name in names:
            PICTURES[name](browser, server.url)
            print(name, flush=True)


if __name__ == "__main__":
    main()
