"""Long and bumpy runs: nothing is lost, and the page stays smooth."""

import pytest
from playwright.sync_api import expect

from tests.browser.steps import another_run, ended, run, start, text, trace

PROMPT = "Once upon a time there was an old man who"
TOKENS = 400

WATCH_FRAMES = """
    window.frames = [];
    new PerformanceObserver((list) => {
        for (const frame of list.getEntries())
            for (const script of frame.scripts)
                if (script.sourceFunctionName === "draw") window.frames.push(script.duration);
    }).observe({ type: "long-animation-frame" });
"""


@pytest.fixture
def page(page):
    """A page whose runs go on to the last of their tokens."""
    page.get_by_role("button", name="More").click()
    page.get_by_label("Go on after the end").check()
    return page


def test_a_long_run_keeps_the_page_smooth(page):
    page.evaluate(WATCH_FRAMES)
    run(page, PROMPT, max_tokens=TOKENS, temperature=1, seed=2)
    assert text(page) == trace(page).text
    slow = [milliseconds for milliseconds in page.evaluate("window.frames") if milliseconds > 100]
    assert slow == []


def test_a_panel_that_was_hidden_during_the_run_has_missed_nothing(page):
    before = start(page, PROMPT, max_tokens=TOKENS, seed=4)
    another_run(page, before)
    page.get_by_role("tab", name="Race").click()
    expect(page.locator("#tokens")).to_be_hidden()
    page.locator(".ns-stage[data-state=done]").wait_for(state="attached")
    page.get_by_role("tab", name="Run").click()
    ended(page)
    assert text(page) == trace(page).text


def test_updates_that_were_lost_on_the_way_are_asked_for_again(page):
    ended(page)
    lost, asked = [], []

    def lose(route):
        answer = route.fetch()
        kept = []
        for message in answer.text().split("\n\n"):
            if "process_generating" in message and len(kept) % 2:
                lost.append(message)
                kept.append(": lost")
            else:
                kept.append(message)
        route.fulfill(response=answer, body="\n\n".join(kept))

    page.route("**/queue/data*", lose)
    page.on("request", lambda request: asked.append(request.url) if "component_server" in request.url else None)
    run(page, PROMPT, max_tokens=TOKENS, seed=4)
    assert len(lost) > 5
    assert asked
    assert text(page) == trace(page).text


def test_pausing_a_live_run_holds_the_view_and_loses_nothing(page):
    before = start(page, PROMPT, max_tokens=TOKENS, seed=4)
    another_run(page, before)
    page.get_by_role("button", name="Pause", exact=True).click()
    held = page.locator(".ns-stage").get_attribute("data-cursor")
    page.locator(".ns-stage[data-state=done]").wait_for()
    assert page.locator(".ns-stage").get_attribute("data-cursor") == held
    page.get_by_role("button", name="To the end", exact=True).click()
    ended(page)
    assert text(page) == trace(page).text


def test_a_reader_who_scrolled_away_keeps_the_place(page):
    before = start(page, PROMPT, max_tokens=TOKENS, seed=6)
    another_run(page, before)
    page.wait_for_function("() => document.querySelectorAll('#rounds .ns-round').length > 15")
    page.locator("#rounds").evaluate("(box) => { box.scrollTop = 0; }")
    rows = page.locator("#rounds .ns-round").count()
    page.wait_for_function("(n) => document.querySelectorAll('#rounds .ns-round').length > n + 5", arg=rows)
    assert page.locator("#rounds").evaluate("(box) => box.scrollTop") == 0
    page.locator("#stop").click()
    ended(page)
