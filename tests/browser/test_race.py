"""The race in the browser: two real runs, replayed on one clock, with a verdict."""

import re
from itertools import pairwise

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.steps import as_soon_as, scrolls_sideways, set_number, toast
from ui.experiments.recordings import recorded_race

PROMPT = "Once upon a time there was a fox who"


@pytest.fixture
def page(open_page) -> Page:
    """Without motion, so that a race is over at once."""
    return open_page(reduced_motion="reduce")


def open_race(page: Page, **numbers: object) -> None:
    page.locator("#prompt textarea").fill(PROMPT)
    for elem_id, value in numbers.items():
        set_number(page, elem_id.replace("_", "-"), value)
    page.get_by_role("tab", name="Race").click()
    page.locator("#race-run").wait_for()


def go(page: Page) -> None:
    """Race, and wait until it is over."""
    page.locator(".ns-race").wait_for()
    before = page.locator(".ns-race").get_attribute("data-serial")
    page.locator("#race-run").click()
    page.locator(f".ns-race[data-state=done]:not([data-serial='{before}'])").wait_for()


def lane_text(page: Page, lane: str) -> str:
    spans = f".ns-lane[data-lane={lane}] .ns-token"
    return page.evaluate("(s) => [...document.querySelectorAll(s)].map((e) => e.textContent).join('')", spans)


def numbers(page: Page, lane: str) -> Locator:
    return page.locator(f".ns-lane[data-lane={lane}] .ns-lane-numbers")


def choose(page: Page, elem_id: str, name: str) -> None:
    page.locator(f"#{elem_id} input").click()
    page.locator(f"#{elem_id}").get_by_role("option", name=name, exact=True).click()


def test_the_tab_opens_with_a_finished_race_whose_texts_stand_side_by_side(page):
    page.get_by_role("tab", name="Race").click()
    page.locator(".ns-race[data-state=done]").wait_for()
    left, right = recorded_race()
    verdict = page.locator("#race-verdict")
    expect(verdict).to_contain_text(re.compile("target passes saved"))
    assert verdict.bounding_box()["y"] < page.locator(".ns-lanes").bounding_box()["y"]
    expect(page.locator(".ns-race-source")).to_be_visible()
    assert lane_text(page, "left") == left.text == right.text == lane_text(page, "right")
    places = [
        page.evaluate(
            """(s) => {
                const box = document.querySelector(s).getBoundingClientRect();
                return [...document.querySelectorAll(`${s} .ns-token`)].map((e) => {
                    const { left, top } = e.getBoundingClientRect();
                    return [Math.round(left - box.left), Math.round(top - box.top)];
                });
            }""",
            f".ns-lane[data-lane={lane}] .ns-lane-text",
        )
        for lane in ("left", "right")
    ]
    assert places[0] == places[1]


def test_a_race_is_stretched_to_eight_seconds_and_can_be_skipped(open_page):
    page = open_page()
    skip = """
        const [again, race] = [document.querySelector("#race-again"), document.querySelector(".ns-race")];
        window.seen = [race.dataset.state, document.querySelector(".ns-race-pace").textContent];
        again.click();
        window.seen.push(race.dataset.state);
    """  # at once: it would be over by itself after eight seconds
    as_soon_as(page, "document.querySelector('#race-again')?.textContent === 'Skip to the end'", skip)
    page.get_by_role("tab", name="Race").click()
    before, pace, after = page.wait_for_function("() => window.seen").json_value()
    assert (before, after) == ("running", "done")
    seconds = max(trace[-1].time for trace in recorded_race())
    assert float(re.search(r"[\d.]+", pace)[0]) == pytest.approx(8 / seconds, rel=0.05)
    expect(page.locator("#race-again")).to_have_text("Replay")
    assert lane_text(page, "left") == recorded_race()[0].text


def test_a_greedy_race_ends_with_the_same_text_and_a_verdict_in_numbers(page):
    open_race(page, temperature=0, max_tokens=32, k=3)
    go(page)
    expect(page.locator(".ns-race-source")).to_be_hidden()
    assert lane_text(page, "left") == lane_text(page, "right") != ""
    expect(page.locator("#race-reasons")).to_contain_text(re.compile(r"\d+ tokens per second with drafts, \d+ without"))
    expect(page.locator("#race-reasons")).to_contain_text("The texts are the same: all 32")
    expect(numbers(page, "left")).to_contain_text("32 tokens · 32 passes")


def test_a_sampled_race_explains_that_the_texts_may_differ_and_shows_where(page):
    open_race(page, temperature=1, max_tokens=16, k=2)
    go(page)
    expect(page.locator("#race-reasons")).to_contain_text("a random sample of the same distribution")
    parts = page.locator(".ns-lane [data-parts]")
    expect(parts).to_have_count(0 if lane_text(page, "left") == lane_text(page, "right") else 2)


def test_two_drafters_can_race_against_each_other(page):
    open_race(page, temperature=0, max_tokens=16, k=3)
    choose(page, "race-left", "Suffix decoding")
    choose(page, "race-right", "Prompt lookup")
    go(page)
    expect(page.locator(".ns-lane[data-lane=left] h2")).to_contain_text("Suffix decoding")
    expect(page.locator(".ns-lane[data-lane=right] h2")).to_contain_text("Prompt lookup")
    assert lane_text(page, "left") == lane_text(page, "right") != ""


def test_both_lanes_are_replayed_at_their_recorded_pace(page):
    open_race(page, temperature=0, max_tokens=24, k=3)
    go(page)
    page.emulate_media(reduced_motion="no-preference")
    page.wait_for_function("!matchMedia('(prefers-reduced-motion: reduce)').matches")
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
    go(page)


def test_stop_ends_the_race_and_another_can_begin(page):
    open_race(page, max_tokens=900, temperature=1, k=2)
    under_way = "document.querySelector('#race-status').textContent.includes('so far')"
    as_soon_as(page, under_way, "document.querySelector('#race-stop').click()")
    page.locator("#race-run").click()
    expect(page.locator("#race-status")).to_have_text("Stopped.")
    page.get_by_role("tab", name="Run").click()
    open_race(page, max_tokens=8)
    go(page)


def test_the_race_fits_its_page(open_page):
    page = open_page(width=390, reduced_motion="reduce")
    page.get_by_role("tab", name="Race").click()
    page.locator(".ns-race[data-state=done]").wait_for()
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert not scrolls_sideways(page), width
