"""Explore in the browser: a real sweep, its maps, its table and its file."""

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.steps import toast

KS, TEMPERATURES = ("1", "4"), ("0", "1")
ROWS = "#explore-table [role=row][data-index]"


def open_explore(page: Page, ks: tuple[str, ...] = KS, temperatures: tuple[str, ...] = TEMPERATURES, tokens: int = 16) -> None:
    page.get_by_role("tab", name="Explore").click()
    page.locator("#explore-run").wait_for()
    for elem_id, wanted in (("explore-k", ks), ("explore-temperature", temperatures)):
        for box in page.locator(f"#{elem_id} label:has(input[type=checkbox])").all():
            box.locator("input").set_checked(box.inner_text().strip() in wanted)
    field = page.locator("#explore-tokens input[type=number]")
    field.fill(str(tokens))
    field.press("Tab")


def texts(page: Page, chart: str) -> list[str]:
    page.locator(f"#{chart} .heatmaplayer text").first.wait_for()
    return page.locator(f"#{chart} .heatmaplayer text").all_text_contents()


def test_a_sweep_fills_maps_table_and_file(page):
    open_explore(page)
    page.locator("#explore-run").click()
    page.locator("#explore-csv").wait_for()
    expect(page.locator("#explore-status")).to_contain_text("Best k:")
    speedups = texts(page, "explore-speedup")
    assert len(speedups) == 4
    assert sum("★" in text for text in speedups) == 2
    assert len(texts(page, "explore-acceptance")) == 4
    rows = page.locator(ROWS)
    expect(rows).to_have_count(4)
    with page.expect_download() as download:
        page.locator("#explore-csv").click()
    with Path(download.value.path()).open(encoding="utf-8") as file:
        saved = list(csv.DictReader(file))
    assert [(float(r["temperature"]), int(r["k"])) for r in saved] == [(0, 1), (0, 4), (1, 1), (1, 4)]
    for row, line in zip(rows.all_inner_texts(), saved, strict=True):
        assert f"{float(line['acceptance_rate']):.1%}" in row
        assert f"{float(line['speedup']):.2f}×" in row


def test_stop_keeps_what_was_run(page):
    open_explore(page, ks=("1", "2", "3", "4", "5", "6", "8", "12"), temperatures=("0", "0.7", "1", "1.3"), tokens=256)
    page.locator("#explore-run").click()
    expect(page.locator(ROWS).first).to_be_visible()
    page.locator("#explore-stop").click()
    expect(page.locator("#explore-status")).to_contain_text("Stopped")
    kept = page.locator(ROWS).count()
    assert 1 <= kept < 32
    open_explore(page, ks=("1",), temperatures=("0",))
    page.locator("#explore-run").click()  # the sweep before has really ended: this one gets its turn
    page.locator("#explore-csv").wait_for()
    expect(page.locator(ROWS)).to_have_count(1)


def test_nothing_chosen_is_refused(page):
    open_explore(page, ks=())
    page.locator("#explore-run").click()
    toast(page, "choose at least one k")


@pytest.mark.parametrize("width", [1440, 390])
def test_the_maps_fit_the_page_in_both_themes(open_page, width):
    page = open_page(width=width, color_scheme="dark", query="?__theme=dark")
    open_explore(page, ks=("1",), temperatures=("0",))
    page.locator("#explore-run").click()
    page.locator("#explore-csv").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    title = page.locator("#explore-speedup .xtitle")
    dark = title.evaluate("(e) => getComputedStyle(e).fill")
    page.evaluate("document.body.classList.remove('dark')")
    page.wait_for_function(
        "(before) => getComputedStyle(document.querySelector('#explore-speedup .xtitle')).fill !== before", arg=dark
    )
