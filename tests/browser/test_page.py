"""The page itself: links, themes, widths, its policy, what it fetches, programs that call it, Plotly, and its end."""

import json
import re
from urllib.parse import urlsplit

import plotly.offline
from gradio_client import Client
from playwright.sync_api import expect

from naive_speculate import SamplingParams, Trace
from tests.browser.steps import drawn, ended, open_drawer, run, scrolls_sideways, see_chart, set_number, start, toast
from tests.programs import run_program
from ui.assets import PLOTLY
from ui.charts.figures import BOARD

PROMPT = "Once upon a time there was a hen"


def test_no_width_scrolls_sideways_the_theme_button_is_remembered_and_charts_take_the_theme_s_colours(open_page):
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
    button = page.get_by_role("button", name="Dark", exact=True)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    inked("#f4f4f5")
    fits(390, 1024)
    page.reload()
    page.wait_for_function("() => document.body.classList.contains('dark')")
    button.click()
    inked("#18181b")


def test_a_link_reproduces_the_settings_and_one_with_nonsense_is_reported(open_page):
    page = open_page()
    page.locator("#prompt textarea").fill("A goose & a <gander>")
    set_number(page, "seed", 41)
    set_number(page, "temperature", 0.3)
    page.locator("#share").click()
    page.wait_for_url("**seed=41**")
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#prompt textarea")).to_have_value("A goose & a <gander>")
    open_drawer(page)
    expect(page.locator("#seed input")).to_have_value("41")
    expect(page.locator("#temperature input[type=number]")).to_have_value("0.3")
    page.goto(page.url.split("?")[0] + "?seed=abc")
    toast(page, "seed must be a whole number, got 'abc'")
    run(page, PROMPT, max_tokens=4)


def test_programs_get_the_events_that_the_library_makes(server, small_decoder):
    job = Client(server.url, verbose=False).submit(PROMPT, max_tokens=24, seed=11, num_draft_tokens=3, api_name="/generate")
    job.result(timeout=120)
    lines = [json.dumps(event) for part in job.outputs() for event in part]
    received = Trace.from_jsonl("\n".join(lines))
    params = SamplingParams(temperature=0.7, max_tokens=24, seed=11)
    assert received.text == small_decoder.generate(PROMPT, params, num_draft_tokens=3).text
    assert received.finished.finish_reason == "length"


def test_two_visitors_do_not_see_each_other(open_page):
    mine, yours = open_page(), open_page()
    start(mine, "The frog said", max_tokens=60)
    run(yours, "The toad said", max_tokens=8)
    ended(mine)
    assert "toad" not in "".join(mine.locator("#tokens [data-kind=prompt]").all_text_contents())
    assert "frog" not in "".join(yours.locator("#tokens [data-kind=prompt]").all_text_contents())


def test_help_names_the_options():
    shown = run_program("app", ["--help"])
    for option in ("--host", "--port", "--share", "--target", "--draft", "--device"):
        assert option in shown.stdout


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


PLANTED = """() => new Promise((resolve) => {
    document.addEventListener("securitypolicyviolation", ({ violatedDirective }) => resolve(violatedDirective));
    document.body.insertAdjacentHTML("beforeend", "<img src='none' onerror='window.planted = true'>");
})"""


def test_under_a_name_that_no_one_configured_the_page_works_asks_only_there_and_markup_in_it_runs_no_script(server, chromium):
    page = chromium.new_page()
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    name = f"lan.test:{urlsplit(server.url).port}"
    page.goto(f"http://{name}/")
    page.wait_for_selector("#tokens [data-step]")
    run(page, "Once upon a time there was a fox who", max_tokens=4)
    assert asked - {""} == {name}
    assert page.evaluate(PLANTED).startswith("script-src")
    assert page.evaluate("() => window.planted") is None
    page.close()


def test_it_is_of_the_version_that_python_checks_figures_for():
    ours = re.search(r"v(\d+\.\d+\.\d+)", PLOTLY.read_text(encoding="utf-8")[:200])
    theirs = re.search(r"v(\d+\.\d+\.\d+)", plotly.offline.get_plotlyjs()[:200])
    assert ours[1] == theirs[1]
    assert "MIT" in (PLOTLY.parent / "LICENSE").read_text(encoding="utf-8")


def test_it_draws_every_chart_of_the_page(page):
    """Those of the lessons are looked at in test_learn.py."""
    ended(page)
    drawn(page, 6, *BOARD, "chart-waterfall")
    page.get_by_role("tab", name="Explore", exact=True).click()
    drawn(page, 4, "explore-speedup", "explore-acceptance", "explore-curve-0", "explore-batches")
