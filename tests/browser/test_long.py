"""Long and bumpy runs: nothing is lost, and the page stays smooth."""

from itertools import pairwise

from playwright.sync_api import expect

from tests.browser.steps import another_run, as_soon_as, ended, link, linked, run, set_number, shown_run, text, trace

PROMPT = "Once upon a time there was an old man who"

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


def test_a_long_run_keeps_the_page_smooth_and_a_hidden_a_paused_and_a_scrolled_page_lose_nothing(open_page):
    page = open_page(link(prompt=PROMPT, max_tokens=240, temperature=1, seed=2, ignore_eos=True))
    linked(page, PROMPT)
    page.evaluate(WATCH_FRAMES)
    as_soon_as(
        page,
        "stage.dataset.run !== 'recorded' && stage.querySelectorAll('#rounds .ns-round').length > 15",
        "window.rows = stage.querySelectorAll('#rounds .ns-round').length; stage.querySelector('#rounds').scrollTop = 0",
    )
    run(page, PROMPT)
    assert text(page) == trace(page).text
    shown = shown_run(page)
    frames = [(cursor, changes) for name, cursor, changes in page.evaluate("window.frames") if name == shown]
    assert max(after - before for (before, _), (after, _) in pairwise(frames)) <= FRAME_MS
    assert max(changes for _, changes in frames) < 8 * FRAME_MS  # whatever the length of the run
    assert page.locator("#rounds .ns-round").count() > page.evaluate("window.rows") + 5
    assert page.locator("#rounds").evaluate("(box) => box.scrollTop") == 0, "a reader who scrolled away keeps the place"

    page.locator("#run").click()
    another_run(page, shown)
    page.get_by_role("tab", name="Explore").click()
    expect(page.locator("#tokens")).to_be_hidden()
    page.locator(".ns-stage[data-state=done]").wait_for(state="attached")
    page.get_by_role("tab", name="Run").click()
    ended(page)
    assert text(page) == trace(page).text, "a panel that was hidden during the run has missed nothing"

    set_number(page, "k", 0)
    shown = shown_run(page)
    as_soon_as(
        page,
        f"stage.dataset.run !== '{shown}' && stage.querySelector('[aria-label=Pause]')",
        "stage.querySelector('[aria-label=Pause]').click(); window.held = stage.dataset.cursor",
    )
    page.locator("#run").click()
    another_run(page, shown)
    page.locator(".ns-stage[data-state=done]").wait_for()
    assert page.locator(".ns-stage").get_attribute("data-cursor") == page.evaluate("window.held")
    page.get_by_role("button", name="To the end", exact=True).click()
    ended(page)
    assert text(page) == trace(page).text
