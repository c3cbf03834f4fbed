"""The page itself: themes, widths, charts, its policy, what it fetches, and two visitors."""

import re
from urllib.parse import urlsplit

from playwright.sync_api import expect
from plotly.offline import get_plotlyjs

from tests.browser.steps import drawn, ended, run, scrolls_sideways, see_chart, start
from tests.programs import run_program
from ui.assets import PLOTLY
from ui.charts.figures import BOARD


def test_every_chart_is_drawn_in_the_theme_s_colours_no_width_scrolls_sideways_and_the_theme_button_is_remembered(open_page):
    """The charts of the lessons are looked at in test_learn.py."""
    page = open_page(width=768)

    def inked(colour: str) -> None:
        see_chart(page, "chart-lengths")
        page.wait_for_function("(ink) => document.querySelector('#chart-lengths')._fullLayout?.font.color === ink", arg=colour)

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


def test_two_visitors_do_not_see_each_other(open_page):
    mine, yours = open_page(), open_page()
    start(mine, "The frog said", max_tokens=60)
    run(yours, "The toad said", max_tokens=8)
    ended(mine)
    assert "toad" not in "".join(mine.locator("#tokens [data-kind=prompt]").all_text_contents())
    assert "frog" not in "".join(yours.locator("#tokens [data-kind=prompt]").all_text_contents())


def test_help_names_the_options_and_plotly_is_of_the_version_that_python_checks_figures_for():
    shown = run_program("app", ["--help"])
    for option in ("--host", "--port", "--share", "--target", "--draft", "--device"):
        assert option in shown.stdout
    ours, theirs = (re.search(r"v(\d+\.\d+\.\d+)", text[:200]) for text in (PLOTLY.read_text("utf-8"), get_plotlyjs()))
    assert ours[1] == theirs[1]
    assert "MIT" in (PLOTLY.parent / "LICENSE").read_text(encoding="utf-8")


PLANTED = """() => new Promise((resolve) => {
    document.addEventListener("securitypolicyviolation", ({ violatedDirective }) => resolve(violatedDirective));
    document.body.insertAdjacentHTML("beforeend", "<img src='none' onerror='window.planted = true'>");
})"""


def test_a_stage_that_never_comes_does_not_leave_the_reader_without_a_way_out(server, chromium):
    page = chromium.new_page()
    page.add_init_script("const wait = setTimeout; window.setTimeout = (act, ms) => wait(act, ms === 20000 ? 0 : ms)")
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


def test_under_a_name_that_no_one_configured_the_page_works_asks_only_there_and_markup_in_it_runs_no_script(server, chromium):
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
