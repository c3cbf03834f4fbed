"""The lessons in the browser: every button does what its lesson speaks of, on the real models."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.steps import another_run, ended, set_number, shown_run

LESSONS = (
    "Why decoding is slow",
    "Draft and verify",
    "Accept or reject",
    "Why the output is unchanged",
    "How many guesses?",
    "When it does not pay",
)


@pytest.fixture
def lessons(page) -> Page:
    page.get_by_role("tab", name="Learn").click()
    page.locator("#learn-1-run").wait_for()
    return page


def test_there_are_six_lessons_in_order(lessons):
    for number, title in enumerate(LESSONS, start=1):
        expect(lessons.locator(f"#learn-{number} h2")).to_have_text(title)
        expect(lessons.locator(f"#learn-{number}-run")).to_be_enabled()


def test_the_first_measures_passes(lessons):
    lessons.locator("#learn-1-run").click()
    expect(lessons.locator("#learn-1-status")).to_contain_text("16 tokens:")
    assert lessons.locator("#learn-1-view .barlayer .point").count() == 5


def test_the_second_sets_the_controls_and_runs(lessons):
    before = shown_run(lessons)
    lessons.locator("#learn-2-run").click()
    another_run(lessons, before)
    ended(lessons)
    expect(lessons.locator("#k input[type=number]")).to_have_value("4")
    expect(lessons.locator("#temperature input[type=number]")).to_have_value("0.7")
    assert lessons.locator("#rounds .ns-round").count() > 3


def test_the_third_explains_a_real_rejection(lessons):
    lessons.locator("#learn-3-run").click()
    expect(lessons.locator("#learn-3-why")).to_contain_text(re.compile(r"The draw [\d.]+ was not below [\d.]+: rejected"))
    expect(lessons.locator("#learn-3-why h3")).to_have_attribute("data-kind", "rejected")
    lessons.locator("#learn-3-chart .main-svg").first.wait_for()


def test_the_fourth_draws_tokens_whose_counts_meet_the_target(lessons):
    lessons.locator("#learn-4-run").click()
    status = lessons.locator("#learn-4-status")
    expect(status).to_contain_text("After 1,500 draws", timeout=120_000)
    measured, chance, blind = map(float, re.findall(r"\d+\.\d+|\d+(?= however)", status.inner_text())[:3])
    assert measured < 5 * chance
    assert measured < blind
    lessons.locator("#learn-4-distance .scatterlayer").first.wait_for()
    assert lessons.locator("#learn-4-shares .barlayer .trace").count() == 2


def test_drawing_can_be_stopped(lessons):
    lessons.locator("#learn-4-run").click()
    expect(lessons.locator("#learn-4-status")).to_contain_text("drawn")
    lessons.locator("#learn-4-stop").click()
    expect(lessons.locator("#learn-4-status")).to_contain_text("Stopped")


def test_the_fifth_explores_k(lessons):
    lessons.locator("#learn-5-run").click()
    lessons.locator("#explore-csv").wait_for(timeout=180_000)
    expect(lessons.locator("#explore-table [role=row][data-index]")).to_have_count(7)


def test_the_sixth_races_with_sixteen_guesses(lessons):
    lessons.locator("#learn-6-run").click()
    expect(lessons.locator(".ns-race-source")).to_be_hidden()  # no longer the recorded one
    lessons.locator(".ns-race[data-state=done]").wait_for()
    expect(lessons.locator("#race-reasons")).to_contain_text("tokens a second with drafts")
    lessons.get_by_role("tab", name="Run").click()
    expect(lessons.locator("#k input[type=number]")).to_have_value("16")


def test_an_empty_prompt_is_told_and_the_lesson_can_be_tried_again(page):
    page.locator("#prompt textarea").fill("")
    set_number(page, "k", 3)
    page.get_by_role("tab", name="Learn").click()
    page.locator("#learn-3-run").click()
    expect(page.get_by_test_id("toast-body").first).to_contain_text("prompt is empty")
    page.get_by_role("tab", name="Run").click()
    page.locator("#prompt textarea").fill("Once upon a time")
    page.get_by_role("tab", name="Learn").click()
    page.locator("#learn-3-run").click()
    page.locator("#learn-3-chart .main-svg").first.wait_for()


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lessons_fit_the_page(open_page, width, theme):
    page = open_page(width=width, query=f"?__theme={theme}")
    page.get_by_role("tab", name="Learn").click()
    page.locator("#learn-6-run").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
