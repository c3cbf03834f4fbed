"""The race in the browser: two real runs, replayed on one clock, with a verdict."""

import re
from itertools import pairwise

import pytest
from playwright.sync_api import Page, expect

from tests.browser.steps import as_soon_as, set_number, toast

PROMPT = "Once upon a time there was a fox who"


def open_race(page: Page, **numbers: object) -> None:
    page.locator("#prompt textarea").fill(PROMPT)
    for elem_id, value in numbers.items():
        set_number(page, elem_id.replace("_", "-"), value)
    page.get_by_role("tab", name="Race").click()
    page.locator("#race-run").wait_for()


def over(page: Page) -> None:
    page.locator(".ns-race[data-state=done]").wait_for()


def lane_text(page: Page, lane: str) -> str:
    spans = f".ns-lane[data-lane={lane}] .ns-token:not([data-kind=rejected])"
    return page.evaluate("(s) => [...document.querySelectorAll(s)].map((e) => e.textContent).join('')", spans)


def test_a_greedy_race_ends_with_the_same_text_and_a_verdict_in_numbers(page):
    open_race(page, temperature=0, max_tokens=32, k=3)
    page.locator("#race-run").click()
    over(page)
    assert lane_text(page, "plain") == lane_text(page, "speculative") != ""
    expect(page.locator("#race-verdict")).to_contain_text(re.compile(r"\d+ tokens a second against \d+"))
    expect(page.locator("#race-verdict")).to_contain_text("The texts are the same, token for token: all 32")
    expect(page.locator(".ns-lane[data-lane=plain] .ns-lane-numbers")).to_contain_text("32 tokens · 32 passes")


def test_a_sampled_race_explains_that_the_texts_may_differ(page):
    open_race(page, temperature=1, max_tokens=16, k=2)
    page.locator("#race-run").click()
    over(page)
    expect(page.locator("#race-verdict")).to_contain_text("a fair sample of the same distribution")


def test_both_lanes_are_replayed_at_their_recorded_pace(page):
    open_race(page, temperature=0, max_tokens=24, k=3)
    page.locator("#race-speed").wait_for(state="attached")
    page.locator("#race-run").click()
    over(page)
    page.locator("#race-speed").select_option("0.2")
    # Followed frame by frame, 4 ms each: every lane's count grows with the clock, and never runs ahead of the recorded times.
    early = page.evaluate(
        """() => {
            const race = document.querySelector(".ns-race");
            const seen = [];
            const soon = window.requestAnimationFrame;
            let due = null, now = 1000;
            window.requestAnimationFrame = (tick) => { due = tick; };
            document.getElementById("race-again").click();
            while (race.dataset.state === "running") {
                due(now += 4);
                const clock = Number(race.querySelector(".ns-race-clock").textContent.replace(" s", ""));
                const counts = [...race.querySelectorAll(".ns-lane-numbers")].map((n) => parseInt(n.textContent));
                if (race.dataset.state === "running") seen.push([clock, ...counts]);
            }
            window.requestAnimationFrame = soon;
            return seen;
        }"""
    )
    assert len(early) > 5
    for before, after in pairwise(early):
        assert all(x <= y for x, y in zip(before, after, strict=True))
    assert any(0 < plain < 24 for _, plain, _ in early)


def test_with_reduced_motion_the_result_is_there_at_once(open_page):
    page = open_page(reduced_motion="reduce")
    open_race(page, temperature=0, max_tokens=16, k=2)
    page.locator("#race-run").click()
    over(page)
    expect(page.locator(".ns-lane[data-lane=plain] .ns-lane-numbers")).to_contain_text("16 tokens")


def test_a_race_without_drafts_or_prompt_is_refused_and_the_page_stays_usable(page):
    open_race(page, k=0, max_tokens=16, temperature=0)
    page.locator("#race-run").click()
    toast(page, "k is 0")
    page.get_by_role("tab", name="Run").click()
    set_number(page, "k", 2)
    page.locator("#prompt textarea").fill("")
    page.get_by_role("tab", name="Race").click()
    page.locator("#race-run").click()
    toast(page, "prompt is empty")
    page.get_by_role("tab", name="Run").click()
    open_race(page)
    page.locator("#race-run").click()
    over(page)


def test_stop_ends_the_race_and_another_can_begin(page):
    open_race(page, max_tokens=900, temperature=1, k=2)
    under_way = "document.querySelector('#race-status').textContent.includes('so far')"
    as_soon_as(page, under_way, "document.querySelector('#race-stop').click()")
    page.locator("#race-run").click()
    expect(page.locator("#race-status")).to_have_text("Stopped.")
    page.get_by_role("tab", name="Run").click()
    open_race(page, max_tokens=8)
    page.locator("#race-run").click()
    over(page)


@pytest.mark.parametrize("width", [1440, 390])
def test_the_race_fits_its_page(open_page, width):
    page = open_page(width=width)
    open_race(page, temperature=0, max_tokens=16, k=2)
    page.locator("#race-run").click()
    over(page)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
