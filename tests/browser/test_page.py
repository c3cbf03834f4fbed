"""The page itself: links, themes, widths, what it fetches, programs that call it, and its end."""

import json
import subprocess
import sys

import pytest
from gradio_client import Client
from playwright.sync_api import Route, expect

from benchmarks.server import ROOT, Server
from naive_speculate import SamplingParams, Trace
from tests.browser.steps import ended, run, scrolls_sideways, see_chart, set_number, start, toast

PROMPT = "Once upon a time there was a hen"


@pytest.mark.parametrize(("theme", "widths"), [("light", (768, 1440, 390)), ("dark", (390, 1024))], ids=["light", "dark"])
def test_no_width_scrolls_sideways_and_charts_take_the_theme_s_colours(open_page, theme, widths):
    page = open_page(f"?__theme={theme}", width=widths[0], color_scheme=theme)
    ended(page)
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        see_chart(page, "chart-speedup")
        assert not scrolls_sideways(page), width
    assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")
    see_chart(page, "chart-lengths")
    ink = {"light": "#18181b", "dark": "#f4f4f5"}[theme]
    page.wait_for_function("(ink) => document.querySelector('#chart-lengths')._fullLayout?.font.color === ink", arg=ink)


def test_the_theme_button_turns_the_page_dark_and_is_remembered(open_page):
    page = open_page(color_scheme="light")
    see_chart(page, "chart-lengths")
    button = page.get_by_role("button", name="Dark", exact=True)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    see_chart(page, "chart-lengths")
    page.wait_for_function("() => document.querySelector('#chart-lengths')._fullLayout?.font.color === '#f4f4f5'")
    page.reload()
    page.wait_for_function("() => document.body.classList.contains('dark')")
    see_chart(page, "chart-lengths")
    button.click()
    see_chart(page, "chart-lengths")
    page.wait_for_function("() => document.querySelector('#chart-lengths')._fullLayout?.font.color === '#18181b'")


def test_nothing_is_fetched_from_elsewhere(open_page, server):
    page = open_page()
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url))
    page.reload()
    ended(page)
    see_chart(page, "chart-speedup")
    run(page, PROMPT, max_tokens=4)
    elsewhere = [url for url in seen if not url.startswith((server.url, "data:", "blob:"))]
    assert len(seen) > 10
    assert elsewhere == []


def test_behind_a_proxy_that_has_put_it_deeper_the_page_finds_its_scripts(chromium):
    with Server(GRADIO_ROOT_PATH="/deep") as server:
        page = chromium.new_page()

        def pass_on(route: Route) -> None:
            path = route.request.url.removeprefix(server.url)
            if path.startswith("deep/") and "heartbeat" not in path:  # which never ends
                route.fulfill(response=route.fetch(url=server.url + path.removeprefix("deep/")))
            else:
                route.abort()

        page.route(f"{server.url}**", pass_on)
        page.goto(f"{server.url}deep/")
        page.locator("#tokens [data-step]").first.wait_for()
        page.unroute_all(behavior="ignoreErrors")  # a stream of events that is still passed on has no reader
        page.close()


def test_a_link_reproduces_the_settings(open_page):
    first = open_page()
    first.locator("#prompt textarea").fill("A goose & a <gander>")
    set_number(first, "seed", 41)
    set_number(first, "temperature", 0.3)
    first.locator("#share").click()
    first.wait_for_url("**seed=41**")
    query = "?" + first.url.split("?", 1)[1]
    second = open_page(query)
    expect(second.locator("#prompt textarea")).to_have_value("A goose & a <gander>")
    expect(second.locator("#seed input")).to_have_value("41")
    expect(second.locator("#temperature input[type=number]")).to_have_value("0.3")


def test_a_link_with_nonsense_is_told_and_the_page_works(open_page):
    page = open_page("?seed=abc&prompt=%3Cimg%20src=x%20onerror=window.hit=1%3E")
    toast(page, "seed must be a whole number, got 'abc'")
    run(page, PROMPT, max_tokens=4)
    assert page.evaluate("window.hit") is None


def test_programs_get_the_events_that_the_library_makes(server, small_decoder):
    client = Client(server.url, verbose=False)
    job = client.submit(PROMPT, max_tokens=24, seed=11, num_draft_tokens=3, api_name="/generate")
    job.result(timeout=120)
    lines = [json.dumps(event) for part in job.outputs() for event in part]
    received = Trace.from_jsonl("\n".join(lines))
    params = SamplingParams(temperature=0.7, max_tokens=24, seed=11)
    assert received.text == small_decoder.generate(PROMPT, params, num_draft_tokens=3).text
    assert received.finished.finish_reason == "length"


def test_programs_may_leave_out_all_but_the_prompt(server):
    job = Client(server.url, verbose=False).submit("Once", api_name="/generate")
    assert job.result(timeout=120)[-1]["kind"] == "finished"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": "many"}, "max_tokens"),
        ({"prompt": "a", "num_draft_tokens": -1}, "num_draft_tokens"),
        ({"prompt": "a", "verify_strategy": "hope"}, "verify_strategy"),
    ],
)
def test_programs_are_told_what_is_wrong(server, arguments, reason):
    with pytest.raises(Exception, match=reason):
        Client(server.url, verbose=False).predict(**arguments, api_name="/generate")


def test_two_visitors_do_not_see_each_other(open_page):
    mine, yours = open_page(), open_page()
    before = start(mine, "The frog said", max_tokens=200)
    run(yours, "The toad said", max_tokens=8)
    expect(mine.locator(".ns-stage")).not_to_have_attribute("data-run", before)
    ended(mine)
    assert "toad" not in "".join(mine.locator("#tokens [data-kind=prompt]").all_text_contents())
    assert "frog" not in "".join(yours.locator("#tokens [data-kind=prompt]").all_text_contents())


def test_help_names_the_options():
    shown = subprocess.run([sys.executable, "app.py", "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for option in ("--host", "--port", "--share", "--target", "--draft", "--device"):
        assert option in shown.stdout


def test_a_stage_that_never_comes_does_not_leave_the_reader_without_a_way_out(server, chromium):
    page = chromium.new_page()
    page.add_init_script("const wait = setTimeout; window.setTimeout = (act, ms) => wait(act, ms === 20000 ? 0 : ms)")
    page.route("**/stage.js", lambda route: route.abort())
    with page.expect_event("pageerror"):
        page.goto(server.url)
    early = page.locator("#ns-early")
    again = early.get_by_role("button", name="Load again")
    expect(again).to_be_visible()
    page.unroute("**/stage.js")
    again.click()
    ended(page)
    expect(early).to_have_count(0)
    page.close()
