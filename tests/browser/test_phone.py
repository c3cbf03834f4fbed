"""The first screen, cards and lessons in lecture mode, what is otherwise on a phone, themes,
widths, and the page's policy."""

import re
from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, expect
from plotly.offline import get_plotlyjs

from tests.browser.steps import (
    drawn,
    ended,
    run,
    scrolls_sideways,
    see_chart,
)
from tests.programs import run_program
from ui.assets import PLOTLY
from ui.charts.figures import BOARD
from ui.experiments.learn import read_steps
from ui.explain.glossary import TERMS

CARD = ".ns-card:popover-open"
MEANINGS = {term.key: term.meaning for term in TERMS}
WITHIN = """(card) => {
    const { left, top, right, bottom } = card.getBoundingClientRect();
    return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
}"""
WHOLE = """() => {
    const box = document.querySelector(".ns-lesson");
    const choices = [...document.querySelectorAll(".ns-ask:not([hidden]) .ns-choices button")];
    const bar = document.querySelector(".ns-lesson-bar").getBoundingClientRect();
    return box.scrollHeight <= box.clientHeight && box.scrollWidth <= box.clientWidth
        && choices.every((node) => node.getBoundingClientRect().bottom < bar.top);
}"""
SMALLEST = """(chart) =>
  Math.min(...[...chart.querySelectorAll("svg text")].filter((node) => node.getClientRects().length)
    .map((node) => parseFloat(getComputedStyle(node).fontSize)))"""


def shows(page: Page, link: Locator) -> None:
    """The card has the meaning of this term, on the screen and for screen readers."""
    card = page.locator(CARD)
    expect(card).to_contain_text(
        MEANINGS[(link.get_attribute("href") or "").removeprefix("#term-")]
    )
    expect(link).to_have_attribute("aria-describedby", "term-card")
    expect(card).to_have_role("tooltip")
    assert card.evaluate(WITHIN)


def test_a_term_shows_its_card_and_in_lecture_mode_no_step_is_cut_off_and_charts_are_legible(
    open_page,
):
    page = open_page("?lesson=1&lecture=1", shown=".ns-lesson-title", width=1024, height=768)
    whole = page.url.split("?")[0]
    link, card = page.locator(".ns-lesson-text a[href^='#term-']").first, page.locator(CARD)
    link.hover()
    shows(page, link)
    card.hover()
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    assert "lecture=1" in page.url  # Escape closed the card alone
    expect(link).not_to_have_attribute("aria-describedby", re.compile("."))
    link.focus()
    shows(page, link)
    link.blur()
    expect(card).to_have_count(0)
    link.hover()
    page.mouse.move(5, 5)
    expect(card).to_have_count(0)
    link.click()
    expect(page.locator(".ns-glossary[open] dl > div:focus")).to_be_focused()
    expect(card).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator(".ns-glossary[open]")).to_have_count(0)
    assert "lecture=1" in page.url  # Escape closed the glossary alone
    link.hover()
    page.keyboard.press("PageDown")
    expect(card).to_have_count(0)  # its term is gone
    page.mouse.move(5, 5)
    expect(page.locator(".ns-source")).to_contain_text("Recorded with")
    page.keyboard.press("PageUp")
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile("^(?!.*lecture)"))

    page.goto(f"{whole}?lecture=1")
    page.locator("#tokens [data-kind=rejected]").first.click()
    why = page.locator(".ns-inspector.ns-open")
    expect(why).to_have_count(1)
    page.keyboard.press("Escape")
    expect(why).to_have_count(0)
    assert "lecture=1" in page.url

    for lesson in (3, 10):
        page.goto(f"{whole}?lesson={lesson}&lecture=1")
        for step in range(len(read_steps(lesson))):
            page.locator(f".ns-learn[data-lesson='{lesson}'][data-step='{step}']").wait_for()
            page.wait_for_function(WHOLE)
            page.keyboard.press("PageDown")
    page.locator(
        f".ns-learn[data-lesson='{lesson + 1}']"
    ).wait_for()  # whose first step the last key opened
    page.keyboard.press("PageUp")
    chart = page.locator("[data-chart='10'] .ns-plot")
    chart.locator(".main-svg").first.wait_for()
    assert chart.evaluate(SMALLEST) >= 18


def test_charts_have_the_theme_s_colours_no_width_scrolls_sideways_and_the_theme_is_remembered(
    open_page,
):
    """The charts of the lessons are looked at in test_learn.py."""
    page = open_page(width=768)

    def inked(colour: str) -> None:
        see_chart(page, "chart-lengths")
        page.wait_for_function(
            "(ink) => document.querySelector('#chart-lengths')._fullLayout?.font.color === ink",
            arg=colour,
        )

    def fits(*widths: int) -> None:
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            see_chart(page, "chart-speedup")
            assert not scrolls_sideways(page), width

    fits(768, 1440)
    inked("#18181b")
    ended(page)
    drawn(page, 6, *BOARD, "chart-waterfall")
    button = page.get_by_role("button", name="Dark", exact=True)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    inked("#f4f4f5")
    fits(390, 1024)
    page.reload()
    page.wait_for_function("() => document.body.classList.contains('dark')")
    button.click()
    inked("#18181b")
    page.get_by_role("tab", name="Explore", exact=True).click()
    drawn(page, 4, "explore-speedup", "explore-acceptance", "explore-curve-0", "explore-batches")


def test_help_names_the_options_and_plotly_is_of_the_version_that_python_checks_figures_for():
    shown = run_program("app", ["--help"])
    for option in ("--host", "--port", "--share", "--target", "--draft", "--device"):
        assert option in shown.stdout
    ours, theirs = (
        re.search(r"v(\d+\.\d+\.\d+)", text[:200])
        for text in (PLOTLY.read_text("utf-8"), get_plotlyjs())
    )
    assert ours[1] == theirs[1]
    assert "MIT" in (PLOTLY.parent / "LICENSE").read_text(encoding="utf-8")


PLANTED = """() => new Promise((resolve) => {
    document.addEventListener("securitypolicyviolation", ({ violatedDirective }) =>
      resolve(violatedDirective));
    document.body.insertAdjacentHTML("beforeend",
      "<img src='none' onerror='window.planted = true'>");
})"""


def test_a_stage_that_never_comes_does_not_leave_the_reader_without_a_way_out(server, chromium):
    page = chromium.new_page()
    page.add_init_script(
        "const wait = setTimeout; window.setTimeout = (act, ms) => wait(act, ms === 20000 ? 0 : ms)"
    )
    page.route("**/stage.js", lambda route: route.abort())
    with page.expect_event("requestfailed"):
        page.goto(server.url)
    early = page.locator("#ns-early")
    again = early.get_by_role("button", name="Load again")
    expect(again).to_be_visible()
    page.unroute("**/stage.js")
    again.click()
    ended(page)
    expect(early).to_have_count(0)
    page.close()


def test_under_an_unconfigured_name_the_page_works_asks_only_there_and_runs_no_script_in_markup(
    server, chromium
):
    page, asked = chromium.new_page(), set[str]()
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    name = f"lan.test:{urlsplit(server.url).port}"
    page.goto(f"http://{name}/")
    page.wait_for_selector("#tokens [data-step]")
    run(page, "Once upon a time there was a fox who", max_tokens=4)
    assert asked - {""} == {name}
    assert page.evaluate(PLANTED).startswith("script-src")
    assert page.evaluate("() => window.planted") is None
    page.close()
