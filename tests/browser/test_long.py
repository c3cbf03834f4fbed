"""Long and bumpy runs: nothing is lost, and the page stays smooth."""

from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.browser.steps import another_run, as_soon_as, ended, open_drawer, run, start, text, trace

PROMPT = "Once upon a time there was an old man who"
TOKENS = 240
LONGEST = 500

FRAME_MS = 8  # as assets/js/stage.js has it
# Each look at the clock takes a millisecond more: what is drawn in a frame does not depend on the machine then.
WATCH_FRAMES = """
    const now = performance.now.bind(performance), stage = document.querySelector(".ns-stage");
    let looks = 0;
    performance.now = () => now() + ++looks;
    window.frames = [];
    new MutationObserver((changes) => window.frames.push([stage.dataset.run, Number(stage.dataset.cursor), changes.length]))
        .observe(stage, { subtree: true, childList: true, attributes: true });
"""


@pytest.fixture
def page(page):
    """A page whose runs go on to the last of their tokens."""
    open_drawer(page)
    page.get_by_label("Ignore the end token").check()
    return page


def test_a_long_run_keeps_the_page_smooth(page):
    page.evaluate(WATCH_FRAMES)
    run(page, PROMPT, max_tokens=TOKENS, temperature=1, seed=2)
    assert text(page) == trace(page).text
    shown = page.locator(".ns-stage").get_attribute("data-run")
    frames = [(cursor, changes) for name, cursor, changes in page.evaluate("window.frames") if name == shown]
    assert max(after - before for (before, _), (after, _) in pairwise(frames)) <= FRAME_MS
    assert max(changes for _, changes in frames) < 8 * FRAME_MS  # whatever the length of the run


def test_a_panel_that_was_hidden_during_the_run_has_missed_nothing(page):
    before = start(page, PROMPT, max_tokens=TOKENS, seed=4)
    another_run(page, before)
    page.get_by_role("tab", name="Explore").click()
    expect(page.locator("#tokens")).to_be_hidden()
    page.locator(".ns-stage[data-state=done]").wait_for(state="attached")
    page.get_by_role("tab", name="Run").click()
    ended(page)
    assert text(page) == trace(page).text


def test_updates_that_were_lost_on_the_way_are_asked_for_again(page):
    ended(page)
    lost, asked = [], []

    def lose(route):
        answer = route.fetch(timeout=0)
        kept = []
        for message in answer.text().split("\n\n"):
            if "process_generating" in message and len(kept) % 4:
                lost.append(message)
                kept.append(": lost")
            else:
                kept.append(message)
        route.fulfill(response=answer, body="\n\n".join(kept))

    page.route("**/queue/data*", lose)
    page.on("request", lambda request: asked.append(request.url) if "component_server" in request.url else None)
    run(page, PROMPT, max_tokens=LONGEST, seed=4)
    assert len(lost) > 2
    assert asked
    assert text(page) == trace(page).text


def test_pausing_a_live_run_holds_the_view_and_loses_nothing(page):
    as_soon_as(
        page,
        "stage.dataset.run !== 'recorded' && stage.querySelector('[aria-label=Pause]')",
        "stage.querySelector('[aria-label=Pause]').click(); window.held = stage.dataset.cursor",
    )
    another_run(page, start(page, PROMPT, max_tokens=TOKENS, seed=4, k=0))
    page.locator(".ns-stage[data-state=done]").wait_for()
    assert page.locator(".ns-stage").get_attribute("data-cursor") == page.evaluate("window.held")
    page.get_by_role("button", name="To the end", exact=True).click()
    ended(page)
    assert text(page) == trace(page).text


def test_a_reader_who_scrolled_away_keeps_the_place(page):
    as_soon_as(
        page,
        "stage.dataset.run !== 'recorded' && stage.querySelectorAll('#rounds .ns-round').length > 15",
        "window.rows = stage.querySelectorAll('#rounds .ns-round').length; stage.querySelector('#rounds').scrollTop = 0",
    )
    run(page, PROMPT, max_tokens=TOKENS, seed=6)
    assert page.locator("#rounds .ns-round").count() > page.evaluate("window.rows") + 5
    assert page.locator("#rounds").evaluate("(box) => box.scrollTop") == 0
