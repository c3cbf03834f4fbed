"""Explore in the browser: a real sweep, its maps, its table and its file."""

import csv
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.steps import TWO_FRAMES, scrolls_sideways, see_chart, toast
from ui.experiments.explore import recorded_exploration
from ui.experiments.sweep import TEMPERATURES as OFFERED
from ui.experiments.sweep import cells
from ui.labels import percent

KS, TEMPERATURES = ("1", "4"), ("0", "1")
TEMPERATURE_PLACES = {temperature: place for place, temperature in enumerate(OFFERED)}
BAR_ABOVE_WORDS = """() => {
    const [bar, words] = ["progressbar", "status"].map((role) => document.querySelector(`#explore-status [role=${role}]`));
    return bar && bar.getBoundingClientRect().bottom <= words.getBoundingClientRect().top;
}"""
LEFT = "(node) => node.getBoundingClientRect().left"
CUT_OFF = (
    "(nodes) => nodes.filter((node) => node.scrollWidth > node.clientWidth + 1).map((node) =>"
    " node.textContent)"
)
ROWS = "#explore-table [role=row][data-index]"


def open_explore(
    page: Page,
    ks: tuple[str, ...] = KS,
    temperatures: tuple[str, ...] = TEMPERATURES,
    tokens: int = 16,
    prompts: str = "The fox said",
) -> None:
    page.get_by_role("tab", name="Explore").click()
    page.locator("#explore-run").wait_for()
    page.evaluate(TWO_FRAMES)
    page.locator("#explore-prompts textarea").fill(prompts)
    for elem_id, wanted in (("explore-k", ks), ("explore-temperature", temperatures)):
        for box in page.locator(f"#{elem_id} label:has(input[type=checkbox])").all():
            box.locator("input").set_checked(box.inner_text().strip() in wanted)
    field = page.locator("#explore-tokens input[type=number]")
    field.fill(str(tokens))
    field.press("Tab")


def texts(page: Page, chart: str) -> list[str]:
    see_chart(page, chart)
    page.locator(f"#{chart} .heatmaplayer text").first.wait_for()
    return page.locator(f"#{chart} .heatmaplayer text").all_text_contents()


def explore(page: Page) -> None:
    """Explore, and wait until the last word is said: the recorded maps are there before."""
    page.locator("#explore-run").click()
    expect(page.locator("#explore-status [role=status]")).to_contain_text(
        re.compile("^At temperature")
    )


def test_the_tab_opens_with_recorded_maps_curves_and_a_table_that_fit_the_page(open_page):
    page = open_page("?tab=explore", shown="#explore-run", width=390)
    assert texts(page, "explore-speedup")
    assert not scrolls_sideways(page)
    page.set_viewport_size({"width": 1440, "height": 900})
    left = [page.locator(f"#explore-{name}").evaluate(LEFT) for name in ("tokens", "seeds")]
    assert left[0] == left[1], "the two sliders are one column"
    assert page.locator("#explore-table th .text").evaluate_all(CUT_OFF) == []
    for stop in ("#explore-stop", "#explore-batch-stop"):
        expect(page.locator(stop)).to_be_hidden()  # there is nothing to stop
    recorded = recorded_exploration()
    made = cells(recorded.samples)
    assert len(texts(page, "explore-speedup")) >= len(made)
    expect(page.locator("#explore-status")).to_contain_text("Recorded with the bundled models")
    expect(page.locator("#explore-curves .ns-chart:visible")).to_have_count(
        len({cell.temperature for cell in made})
    )
    curve = f"explore-curve-{TEMPERATURE_PLACES[made[0].temperature]}"
    see_chart(page, curve)
    expect(page.locator(f"#{curve} .errorbar")).to_have_count(
        sum(cell.temperature == made[0].temperature for cell in made)
    )
    batches = {(s.size, s.k) for s in recorded.batches if s.k}
    assert len(texts(page, "explore-batches")) >= len(batches)
    expect(page.locator("#explore-csv")).to_be_visible()
    assert not scrolls_sideways(page)


def test_a_sweep_fills_maps_curves_table_and_file_and_a_stopped_one_keeps_what_was_run(
    page,
):
    open_explore(page, ks=())
    page.locator("#explore-run").click()
    toast(page, "choose at least one k")
    expect(page.locator("#explore-status [role=status]")).to_have_text(
        ""
    )  # what does not begin has no status
    open_explore(
        page,
        ks=("1", "2", "3", "4", "5", "6", "8", "12"),
        temperatures=("0", "0.7", "1", "1.3"),
        tokens=96,
    )
    page.locator("#explore-run").click()
    expect(page.locator("#explore-status [role=status]")).to_contain_text(
        re.compile(r"^([3-9]|\d\d) of 72 runs done, about \d+ (s|min) left")
    )
    assert page.wait_for_function(BAR_ABOVE_WORDS)
    page.locator("#explore-stop").click()
    expect(page.locator("#explore-status")).to_contain_text("Stopped")
    page.wait_for_function(
        "(rows) => document.querySelector(rows) && document.querySelectorAll(rows).length < 32",
        arg=ROWS,
    )

    open_explore(page)
    explore(page)  # the sweep before has really ended: this one gets its turn
    expect(page.locator("#explore-curves .ns-chart:visible")).to_have_count(2)
    rows = page.locator(ROWS)
    expect(rows).to_have_count(4)
    with page.expect_download() as download:
        page.locator("#explore-csv").click()
    with Path(download.value.path()).open(encoding="utf-8") as file:
        saved = list(csv.DictReader(file))
    assert [(float(r["temperature"]), int(r["k"])) for r in saved] == [
        (0, 1),
        (0, 4),
        (1, 1),
        (1, 4),
    ]
    assert {(r["prompts"], r["speedup_low"]) for r in saved} == {("2", "")}
    expect(page.locator("#explore-status")).to_contain_text("fewer than 5 prompts")
    for row, line in zip(rows.all_inner_texts(), saved, strict=True):
        assert percent(float(line["acceptance_rate"])) in row
        assert f"{float(line['speedup']):.2f}×" in row
    see_chart(page, "explore-speedup")
    for line in saved:  # the recorded map stays until this one is drawn
        expect(page.locator("#explore-speedup .heatmaplayer")).to_contain_text(
            f"{float(line['speedup']):.2f}"
        )

    open_explore(page, ks=("2",), tokens=8)
    page.locator("#explore-batch-run").click()
    status = page.locator("#explore-batch-status [role=status]")
    expect(status).to_contain_text(
        re.compile("^Drafting (does not clearly pay|still pays|did not clearly pay) off")
    )
    expect(page.locator("#explore-batches .xtick")).to_have_count(5)
