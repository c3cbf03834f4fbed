"""What is otherwise on a phone: sheets, taps, what is loaded when, and that nothing is wider than the screen."""

import re

from playwright.sync_api import expect

from naive_speculate import Trace
from tests.browser.steps import TIP, ended, scrolls_sideways, see_chart
from tests.browser.test_lecture import CARD, shows
from tests.browser.test_roll import REDRAW, choose, refused
from ui.run.recorded import SPECULATIVE


def test_on_a_phone_sheets_cards_rooms_and_charts_fit_and_plotly_comes_with_the_first_chart(open_page):
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
    above = "(tip, sheet) => Number(getComputedStyle(tip).zIndex) > Number(getComputedStyle(sheet).zIndex)"
    assert not page.locator(TIP).evaluate(above, page.locator(".ns-inspector").element_handle()), "a card before the sheet"

    choose(page, refused(Trace.load(SPECULATIVE))[1])
    box = page.locator(".ns-die-bar").bounding_box()
    page.mouse.click(box["x"] + 3, box["y"] + box["height"] / 2)
    expect(page.locator(".ns-roll-verdict")).to_contain_text("accepted")
    page.get_by_role("button", name=REDRAW).click()
    assert page.locator(".ns-roll-said").text_content().startswith("1,000 new draws"), "at once, without motion"
    assert not scrolls_sideways(page)
    page.get_by_role("button", name="Close", exact=True).click()

    see_chart(page, "chart-acceptance")
    assert len([url for url in seen if "plotly-cartesian" in url]) == 1
    assert page.evaluate("document.querySelector('#chart-speedup')._fullLayout") is None, "it is still far off"

    page.goto(page.url.split("?")[0] + "?lesson=1")
    link = page.locator(".ns-lesson-text a[href^='#term-']").first
    link.tap()
    shows(page, link)
    expect(page.locator(".ns-glossary[open]")).to_have_count(0)
    page.locator(".ns-lesson-title").tap()
    expect(page.locator(CARD)).to_have_count(0)

    page.goto(page.url.split("?")[0] + "?room=doctor")
    page.locator("#doctor [data-example=vLLM]").click()
    page.locator("#doctor [data-chart=windows]").scroll_into_view_if_needed()  # charts are drawn when they come into sight
    page.locator("#doctor [data-chart=windows] .main-svg").first.wait_for()
    assert not scrolls_sideways(page)
    page.get_by_role("tab", name="Run").click()
    page.wait_for_function("() => !location.search.includes('room=')")
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator("#doctor .ns-findings")).to_be_visible()
