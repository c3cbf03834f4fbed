"""The first screen, cards and lessons in lecture mode, what is otherwise on a phone, themes,
widths, and the page's policy."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect
from plotly.offline import get_plotlyjs

from tests.browser.steps import (
    TIP,
    TWO_FRAMES,
    becomes,
    drawn,
    ended,
    press,
    run,
    script,
    scrolls_sideways,
    see_chart,
)
from tests.browser.test_machine import shows as shows_step
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


def cards_lessons_and_rooms_fit(page):
    """A card opens and closes, an answer and a room's charts are in sight."""
    page.goto(page.url.split("?")[0] + "?lesson=1")
    link = page.locator(".ns-lesson-text a[href^='#term-']").first
    link.tap()
    shows(page, link)
    expect(page.locator(".ns-glossary[open]")).to_have_count(0)
    page.locator(".ns-lesson-title").tap()
    expect(page.locator(CARD)).to_have_count(0)

    page.goto(page.url.split("?")[0] + "?lesson=6&step=1")
    page.locator(".ns-choices button").last.click()
    expect(page.locator("section.ns-learn")).to_have_attribute("data-step", "2")
    expect(page.locator(".ns-answer")).to_be_in_viewport(
        ratio=1
    )  # though the choice was below the first screen
    page.locator("#learn-run").scroll_into_view_if_needed()
    expect(page.locator(".ns-next")).to_be_in_viewport(ratio=1)

    page.goto(page.url.split("?")[0] + "?room=doctor")
    page.locator("#doctor [data-example=vLLM]").click()
    page.locator(
        "#doctor [data-chart=windows]"
    ).scroll_into_view_if_needed()  # charts are drawn when they come into sight
    page.locator("#doctor [data-chart=windows] .main-svg").first.wait_for()
    assert not scrolls_sideways(page)
    page.get_by_role("tab", name="Run").click()
    page.wait_for_function("() => !location.search.includes('room=')")
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator("#doctor .ns-findings")).to_be_visible()


def test_on_a_phone_sheets_cards_rooms_and_charts_fit_and_plotly_comes_with_the_first_chart(
    open_page,
):
    page = open_page(width=390, height=844, is_mobile=True, has_touch=True, color_scheme="dark")
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url))
    page.reload()
    page.wait_for_selector("#tokens [data-step]")
    ended(page)
    page.evaluate("new Promise((resolve) => requestIdleCallback(resolve))")
    assert not [url for url in seen if "plotly-cartesian" in url], "no chart is nearly seen"

    expect(page.locator(".ns-title")).to_have_text(re.compile("^draft (model|head) · .* · seed"))
    assert page.locator(".ns-title").evaluate("(title) => title.scrollWidth <= title.clientWidth")
    page.locator("#tokens [data-kind=rejected]").first.click()
    expect(page.locator(".ns-inspector")).to_be_visible()
    above = (
        "(tip, sheet) => Number(getComputedStyle(tip).zIndex) >"
        " Number(getComputedStyle(sheet).zIndex)"
    )
    assert not page.locator(TIP).evaluate(above, page.locator(".ns-inspector").element_handle()), (
        "a card before the sheet"
    )

    assert not scrolls_sideways(page)
    page.get_by_role("button", name="Close", exact=True).click()

    see_chart(page, "chart-acceptance")
    assert len([url for url in seen if "plotly-cartesian" in url]) == 1
    assert page.evaluate("document.querySelector('#chart-speedup')._fullLayout") is None, (
        "it is still far off"
    )

    cards_lessons_and_rooms_fit(page)


COUNTS = script("counts")
SHIFTS = script("shifts")


STEP_IN_SIGHT = """() => {
    const edges = (name) => document.querySelector(name).getBoundingClientRect();
    const lowest = innerWidth > 560 ? innerHeight : edges(".ns-go").top;
    return edges("#prompt").top > 0 && edges(".ns-drawing").top > edges("#prompt").bottom &&
      edges(".ns-buttons").bottom <= lowest;
}"""
OVERFLOWS = "(prompt) => prompt.scrollHeight > prompt.clientHeight"


@pytest.mark.parametrize("language", ["en", "es", "zh"])
def test_the_whole_step_and_its_buttons_are_in_sight_however_long_the_prompt_is(
    open_page, language
):
    page = open_page(f"?lang={language}", width=390, height=844)
    page.locator(".ns-drawing svg").wait_for()
    assert becomes(page, STEP_IN_SIGHT)
    page.locator("#prompt textarea").fill("once upon a time " * 200)
    assert page.locator("#prompt textarea").evaluate(OVERFLOWS)
    for width, height in ((390, 844), (1024, 768), (1440, 900)):
        page.set_viewport_size({"width": width, "height": height})
        for motion in ("reduce", "no-preference"):
            page.emulate_media(reduced_motion=motion)
            assert becomes(page, STEP_IN_SIGHT), (width, motion)


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844)])
def test_before_anything_is_opened_there_is_little_on_the_screen_and_little_moves(
    open_page, width, height
):
    page = open_page(
        width=width, height=height, reduced_motion="no-preference" if width == 1440 else "reduce"
    )
    page.evaluate(SHIFTS)
    page.locator(".ns-race[data-state=done]").wait_for()
    page.locator(".ns-drawing svg").wait_for()
    controls, words, numbers, text = page.evaluate(COUNTS)
    assert (controls <= 28, words <= 110, numbers <= 30) == (True, True, True), (
        controls,
        words,
        numbers,
        text,
    )
    assert page.evaluate("window.shift") < 0.02, page.evaluate("window.moved")
    page.locator("#tokens [data-kind=rejected]").first.hover()
    expect(page.locator(TIP)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(TIP)).to_be_hidden()


def little_moves(page: Page, measure: str = "shift") -> None:
    """Since the last time; `shift` leaves out what an input in the half second before explains."""
    page.evaluate(TWO_FRAMES)
    assert page.evaluate(f"window.{measure}") < 0.02, page.evaluate("window.moved")
    page.evaluate("window.rest()")


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844)])
def test_little_moves_when_lecture_mode_opens_during_a_whole_run_and_from_step_to_step(
    open_page, measuring, width, height
):
    size = {"width": width, "height": height}
    page = open_page("?lecture=1", url=measuring, reduced_motion="no-preference", **size)
    page.evaluate(SHIFTS)
    page.locator(".ns-race[data-state=done]").wait_for()
    page.locator(".ns-drawing svg").wait_for()
    little_moves(page)

    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile("^(?!.*lecture)"))
    little_moves(page)
    run(page, "Once upon a time there was a fox who")
    page.locator(".ns-race[data-state=done]").wait_for()
    page.locator("#stats .ns-sentence:not(:empty)").wait_for()
    little_moves(page)

    press(page, "To the start")
    shows_step(page, 1)
    little_moves(page, "shiftOfAll")
    for step in (1, 2, 3):
        press(page, "One step forward")
        shows_step(page, step)
        page.locator("[data-phase='4']").click()
    little_moves(page, "shiftOfAll")


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
