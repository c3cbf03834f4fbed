"""The inspector's chart of odds, luck and skill, and a step as a picture."""

import re

import pytest
from playwright.sync_api import expect

from naive_speculate import Trace
from tests.browser.steps import becomes, ended, save_as, scrolls_sideways
from ui.explain.inspector import distributions
from ui.run.recorded import SPECULATIVE


@pytest.fixture(scope="module")
def recorded() -> Trace:
    return Trace.load(SPECULATIVE)


def test_luck_is_distinguished_from_skill_and_a_step_is_a_drawing_too(
    open_page, recorded, tmp_path
):
    page = open_page(reduced_motion="no-preference")
    ended(page)
    figures = recorded.expected_acceptance
    said = (
        f"This draft's exact α is {figures.alpha:.2f} ± {figures.deviation:.2f}; observed"
        f" {figures.observed:.2f}"
    )
    expect(page.locator(".ns-chart", has=page.locator("#chart-positions"))).to_contain_text(said)
    expect(page.locator("#stats")).to_contain_text(
        f"Expected for this draft: {figures.alpha:.2f} ± {figures.deviation:.2f}"
    )
    expect(page.locator("#chart-speedup")).to_have_attribute(
        "aria-label", re.compile(f"α = {figures.alpha:.2f}")
    )
    page.locator("#chart-positions").scroll_into_view_if_needed()
    expect(page.locator("#chart-positions .main-svg").first).to_be_attached()
    spread = page.evaluate("document.querySelector('#chart-positions').data.at(-1)")
    assert spread["y"] == pytest.approx(list(figures.by_place))
    assert spread["x"] == list(range(1, len(figures.by_place) + 1))

    another = next(e for e in recorded if e.kind == "accepted" and e.accept_prob < 1)
    page.locator(f"#tokens [data-step='{another.step}'][data-index='{another.index}']").click()
    picture = save_as(page, "This step, for a slide (SVG)", tmp_path / "menu.svg").read_text()
    cited, _, drawing = picture.partition("\n")
    assert cited.startswith("<!-- Cite as: Naive Speculate")
    assert drawing == recorded.to_svg(another.step)


CHART = "#distributions table"
BARS = """(table) => {
    const box = (node) => node.getBoundingClientRect();
    const [first, ...rest] = [...table.querySelectorAll("tfoot span")].map(box);
    const [from, to] = [first.x, rest.pop().x];
    return [...table.querySelectorAll("tbody tr")].map((row) =>
      [...row.querySelectorAll("td")].map((cell) => {
        const bar = cell.querySelector(".ns-odds-bar");
        return bar && [(box(bar).x - from) / (to - from), box(bar).width / (to - from),
          1 / (to - from)];
    }));
}"""
FITS = """(table) => {
    const box = (node) => node.getBoundingClientRect();
    const start = box(table.querySelector("tfoot span")).x;
    return [...table.querySelectorAll("tbody tr")].every((row) => {
        const name = row.querySelector("th").firstChild;
        return box(name).x >= box(table).x && box(name).right <= start &&
          [...row.querySelectorAll("td > :not(.ns-said)")]
            .every((node) => box(node).right <= box(table).right + 1);
    });
}"""


def test_the_chart_is_a_table_of_bars_that_fits_every_page_and_needs_no_plotly(open_page, recorded):
    page = open_page(color_scheme="dark")
    ended(page)
    page.locator("#tokens [data-kind=resampled]").nth(1).click()
    number = int(page.locator(".ns-why").get_attribute("data-event"))
    end = next(n for n, event in enumerate(recorded) if n > number and event.kind == "step") + 1
    told = distributions(Trace(recorded.events[:end]), number)
    expect(page.locator(f"{CHART} tbody th b")).to_have_text(
        "▸ " + next(e["text"] for e in told["tokens"] if e["chosen"])
    )
    assert told["series"] == ["draft", "target", "residual"]
    table = page.get_by_role("table", name="Likely tokens here")
    expect(table.get_by_role("columnheader")).to_have_text(["token", *told["series"]])
    rows = table.get_by_role("row").filter(has=page.get_by_role("rowheader"))
    expect(rows).to_have_count(len(told["tokens"]) + 1)
    expect(rows.last.get_by_role("rowheader")).to_have_text("all others")
    for series in range(len(told["series"])):
        cells = [row.get_by_role("cell").nth(series).inner_text() for row in rows.all()]
        assert abs(sum(float(text) for text in cells if text[0].isdigit()) - 1) < 0.01, (
            "a column and what it leaves sum to 1"
        )
    bars = page.locator(CHART).evaluate(BARS)
    for place, entry in enumerate(told["tokens"]):
        expect(rows.nth(place).get_by_role("rowheader")).to_contain_text(entry["text"])
        for series, prob in enumerate(entry["probs"]):
            cell = rows.nth(place).get_by_role("cell").nth(series)
            if prob is None:
                expect(cell).to_contain_text("not recorded")
                assert bars[place][series] is None
            else:
                start, length, pixel = bars[place][series]
                assert abs(start) < 0.01
                assert abs(length - max(prob, pixel)) < 0.01  # no bar is too short to be seen
                assert (
                    abs(float(cell.inner_text().split()[-1]) - prob) < 0.001
                )  # "over 0.999" is one, too
    place, exact = next(
        (n, prob)
        for n, prob in enumerate(told["tokens"][0]["probs"])
        if prob is not None and prob < 1
    )
    expect(rows.first.get_by_role("cell").nth(place)).to_have_attribute("title", f"{exact:.6f}")
    expect(rows.first.get_by_role("rowheader").locator("*")).to_have_attribute(
        "title", told["tokens"][0]["name"]
    )

    for width, height in ((1440, 900), (1024, 768), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        assert becomes(page, f"() => ({FITS})(document.querySelector('{CHART}'))"), width
        assert not scrolls_sideways(page)
    assert page.evaluate("window.Plotly") is None
