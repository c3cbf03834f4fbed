"""Two histograms of a run's first tokens, with drafts and without, which real runs fill."""

import re

from playwright.sync_api import expect

from tests.browser.steps import run

ROOM = ".ns-samples"
SHARES = """(rows) => rows.map((row) => [...row.querySelectorAll("td")].map((cell) =>
    Number(cell.style.getPropertyValue("--share"))))"""


def drawn(page) -> int:
    return int(re.match(r"\d+", page.locator(f"{ROOM} caption").text_content() or "0")[0])


def test_one_click_fills_two_histograms_until_it_is_stopped_and_greedy_runs_have_none(
    open_page, measuring
):
    page = open_page(url=measuring)
    expect(page.locator(ROOM)).to_be_visible()
    page.locator(f"{ROOM} button").click()
    expect(page.locator(f"{ROOM} button")).to_have_text("Stop")
    page.wait_for_function(f"parseInt(document.querySelector('{ROOM} caption').textContent) > 20")
    page.locator(f"{ROOM} button").click()
    expect(page.locator(f"{ROOM} button")).to_have_text("Draw it again, with drafts and without")
    before = drawn(page)
    shares = page.locator(f"{ROOM} tbody tr").evaluate_all(SHARES)
    for column in zip(*shares, strict=True):
        assert abs(sum(column) - 1) < 0.01
    expect(page.locator(f"{ROOM} caption")).to_contain_text("total variation")
    run(page, "The goose said", max_tokens=8, temperature=0)
    expect(page.locator(ROOM)).to_be_hidden()
    run(page, "The goose said", max_tokens=8, temperature=1)
    expect(page.locator(ROOM)).to_be_visible()
    expect(page.locator(f"{ROOM} table")).to_be_hidden()
    assert drawn(page) == before, "a stopped one draws no more"


def test_a_server_that_does_not_measure_says_so(page):
    page.locator(f"{ROOM} button").click()
    expect(page.locator(f"{ROOM} [role=status]")).not_to_be_empty()
    expect(page.locator(f"{ROOM} button")).to_have_text("Draw it again, with drafts and without")
