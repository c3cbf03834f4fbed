"""What a visitor does, and what is on the page then."""

import re
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Locator, Page, TimeoutError

from naive_speculate import Trace

OUTPUT = "#tokens [data-kind=accepted], #tokens [data-kind=resampled], #tokens [data-kind=bonus]"
TIP = ".ns-stage > .ns-tip"
ENDED = ".ns-stage[data-state=done]"
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""With the first one Gradio gives the fields that it shows for the first time their values once
more."""
ALL_TOLD = """() => {
    const { cursor, told, length } = document.querySelector(".ns-stage").dataset;
    return length > 0 && cursor === length && told === length;
}"""


def script(name: str) -> str:
    """JavaScript of `scripts`, for `Page.evaluate` or `Page.add_init_script`."""
    return (Path(__file__).parent / "scripts" / f"{name}.js").read_text("utf-8")


def set_number(page: Page, elem_id: str, value: object) -> None:
    """Type into a number field, and leave it, so that the page has it; a sheet or the drawer is
    opened first if need be."""
    field = page.locator(f"#{elem_id} input[type=number]").first
    if page.locator(".ns-settings-open").is_visible() and not field.is_visible():
        page.locator(".ns-settings-open").click()
    if elem_id not in ("k", "temperature"):
        open_drawer(page)
    field.fill(str(value))
    field.press("Tab")


def open_drawer(page: Page) -> None:
    """Open the drawer of settings, unless it is."""
    if not page.locator("#more > button.open").count():
        page.locator("#more > button").click()
        page.locator("#share").wait_for()
        page.evaluate(TWO_FRAMES)


def link(**settings: object) -> str:
    """The query of a link with these settings, a prompt among them."""
    return f"?{urlencode(settings)}"


def linked(page: Page, prompt: object) -> None:
    """Wait until the controls have the settings of such a link."""
    page.wait_for_function(
        "(prompt) => document.querySelector('#prompt textarea')?.value === prompt", arg=prompt
    )


def start(page: Page, prompt: str, **numbers: object) -> None:
    """Type a prompt, set controls by their ids, press Run, and wait until another run is shown."""
    page.locator("#prompt textarea").fill(prompt)
    for elem_id, value in numbers.items():
        set_number(page, elem_id.replace("_", "-"), value)
    before = shown_run(page)
    page.locator("#run").click()
    another_run(page, before)


def run(page: Page, prompt: str, **numbers: object) -> None:
    """The same, and wait until it has ended and every token is on the page."""
    start(page, prompt, **numbers)
    ended(page)


def shown_run(page: Page) -> str:
    return page.locator(".ns-stage").get_attribute("data-run") or ""


def another_run(page: Page, before: str) -> None:
    """By waiting, not by expecting: an `expect` that looks again writes down all of the stage
    for a reader each time."""
    page.locator(f'.ns-stage:not([data-run="{before}"])').wait_for()


def as_soon_as(page: Page, condition: str, action: str) -> None:
    """Do something in the very turn in which something holds of the page or its `stage` first: a
    run waits for no test."""
    page.evaluate(f"""() => {{
            const stage = document.querySelector(".ns-stage");
            const watch = new MutationObserver(() => {{
                if (!({condition})) return;
                watch.disconnect();
                {action}
            }});
            watch.observe(document.body,
              {{ subtree: true, childList: true, attributes: true, characterData: true }});
        }}""")


def ended(page: Page) -> None:
    """Wait until the run is over and everything is shown; numbers and words follow a little
    later."""
    page.locator(ENDED).wait_for()
    page.wait_for_function(ALL_TOLD, polling=50)


def settled(page: Page) -> None:
    """Nothing moves or fades any more, apart from what never ends."""
    page.wait_for_function(
        """() => document.getAnimations().every((one) => one.playState !== "running" ||
            one.effect.getComputedTiming().endTime === Infinity)"""
    )


def text(page: Page) -> str:
    """The generated text, as the elements have it."""
    return page.evaluate(
        "(s) => [...document.querySelectorAll(s)].filter(e => !e.hidden).map(e =>"
        " e.textContent).join('')",
        OUTPUT,
    )


def visible_tokens(page: Page) -> int:
    return page.locator("#tokens [data-step]:not([hidden])").count()


def trace(page: Page) -> Trace:
    """The trace that `Save trace` downloads."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Save trace").click()
    return Trace.load(Path(download.value.path()))


def open_trace(page: Page, trace: Trace, path: Path) -> None:
    """Save a trace, open its file, and wait until it is shown."""
    trace.save(path)
    open_file(page, path)


def open_file(page: Page, path: Path) -> None:
    before = shown_run(page)
    page.locator(".ns-file").set_input_files(path)
    another_run(page, before)
    ended(page)


def see_chart(page: Page, elem_id: str) -> None:
    """Go to a chart, and wait until it is drawn, which no chart is before it is nearly seen."""
    page.locator(f"#{elem_id}").scroll_into_view_if_needed()
    page.locator(f"#{elem_id} .main-svg").first.wait_for(state="attached")


DRAWN = """() => [...document.querySelectorAll(".ns-plot")]
    .filter((place) => place.offsetParent && place._fullData)
    .map((place) => [place._fullLayout.annotations?.length ?? 0,
      place.data.map(({ type }) => type ?? "scatter"),
        place._fullData.map(({ type }) => type), place.querySelectorAll(".main-svg").length])"""


def drawn(page: Page, number: int, *ids: str) -> None:
    """Go to these charts, and check whatever is drawn, at least so many."""
    for elem_id in ids:
        see_chart(page, elem_id)
    charts = page.evaluate(DRAWN)
    assert len(charts) >= number
    for notes, asked, made, drawings in charts:
        assert asked == made, "a kind of chart that it does not know, it draws as another"
        assert drawings
        assert made or notes


def toast(page: Page, words: str) -> None:
    """A toast says this."""
    page.get_by_test_id("toast-body").filter(has_text=re.compile(words)).first.wait_for()


def becomes(page: Page, condition: str, arg: object = None) -> bool:
    """Whether something holds of the page, at once or once all that a new width or place sets in
    motion is over."""
    try:
        page.wait_for_function(condition, arg=arg)
    except TimeoutError:
        return False
    return True


def scrolls_sideways(page: Page) -> bool:
    """Charts follow a new width some frames later; what is too wide for good scrolls then, too."""
    return not becomes(
        page, "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )


SCRUB = """(slider, at) => {
    slider.value = at;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
}"""
FIND = """async (slider, n) => {
    const stage = document.querySelector(".ns-stage");
    const frame = () => new Promise(requestAnimationFrame);
    let [low, high] = [0, Number(slider.max)];
    while (low < high) {
      const middle = Math.floor((low + high) / 40) * 20;
      slider.value = middle;
      slider.dispatchEvent(new Event("input"));
      for (let cursor = -1; cursor !== stage.dataset.cursor; await frame(), await frame()) {
        cursor = stage.dataset.cursor;
      }
      if (Number(stage.dataset.cursor) >= n) high = middle; else low = middle + 20;
    }
    slider.value = high;
    slider.dispatchEvent(new Event("input"));
}"""


def scrub(page: Page, at: float) -> None:
    """Hold the run at a time of its time line, in milliseconds."""
    page.locator(".ns-slider").evaluate(SCRUB, at)


def go_to(page: Page, n: int) -> None:
    """Hold the run where n of its events are shown."""
    page.locator(".ns-slider").evaluate(FIND, n)
    page.locator(f".ns-stage[data-cursor='{n}']").wait_for()


def press(page: Page, name: str) -> None:
    """A button of the replay bar; that which plays also names the moment."""
    bar = page.get_by_role("group", name="Replay")
    bar.get_by_role("button", name=re.compile(f"^{name}(,|$)")).click()


def saved(page: Page, button: Locator, path: Path) -> Path:
    with page.expect_download() as download:
        button.click()
    download.value.save_as(path)
    return path


def save_as(page: Page, name: str, path: Path) -> Path:
    page.locator(".ns-take summary").click()
    return saved(page, page.get_by_role("button", name=name, exact=True), path)
