"""The inspector's chart: a table of bars that is drawn at once and says its numbers to everybody."""

from playwright.sync_api import Page, expect

from naive_speculate import Trace
from tests.browser.steps import becomes, ended, scrolls_sideways
from ui.explain.inspector import distributions
from ui.run.recorded import SPECULATIVE

CHART = "#distributions table"
BARS = """(table) => {
    const box = (node) => node.getBoundingClientRect();
    const [first, ...rest] = [...table.querySelectorAll("tfoot span")].map(box);
    const [from, to] = [first.x, rest.pop().x];
    return [...table.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")].map((cell) => {
        const bar = cell.querySelector(".ns-odds-bar");
        return bar && [(box(bar).x - from) / (to - from), box(bar).width / (to - from), 1 / (to - from)];
    }));
}"""
FITS = """(table) => {
    const box = (node) => node.getBoundingClientRect();
    const start = box(table.querySelector("tfoot span")).x;
    return [...table.querySelectorAll("tbody tr")].every((row) => {
        const name = row.querySelector("th").firstChild;
        return box(name).x >= box(table).x && box(name).right <= start && [...row.querySelectorAll("td > :not(.ns-said)")]
            .every((node) => box(node).right <= box(table).right + 1);
    });
}"""


def choose(page: Page) -> dict:
    """Choose the second replacement of the recorded run; gives what its chart must show."""
    ended(page)
    page.locator("#tokens [data-kind=resampled]").nth(1).click()
    number = int(page.locator(".ns-why").get_attribute("data-event"))
    trace = Trace.load(SPECULATIVE)
    end = next(n for n, event in enumerate(trace) if n > number and event.kind == "step") + 1
    told = distributions(Trace(trace.events[:end]), number)
    expect(page.locator(f"{CHART} tbody th b")).to_have_text("▸ " + next(e["text"] for e in told["tokens"] if e["chosen"]))
    return told


def test_the_chart_is_a_table_of_bars_that_fits_every_page_and_needs_no_plotly(open_page):
    page = open_page(locale="en", color_scheme="dark")  # a context of its own, in which nothing is cached
    page.route("**/plotly-cartesian*", lambda route: route.abort())
    page.reload()
    told = choose(page)
    assert told["series"] == ["draft", "target", "residual"]
    table = page.get_by_role("table", name="Likely tokens here")
    expect(table.get_by_role("columnheader")).to_have_text(["token", *told["series"]])
    rows = table.get_by_role("row").filter(has=page.get_by_role("rowheader"))
    expect(rows).to_have_count(len(told["tokens"]) + 1)
    expect(rows.last.get_by_role("rowheader")).to_have_text("all others")
    for series in range(len(told["series"])):
        cells = [row.get_by_role("cell").nth(series).inner_text() for row in rows.all()]
        assert abs(sum(float(text) for text in cells if text[0].isdigit()) - 1) < 0.01, "a column and what it leaves sum to 1"
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
                assert abs(float(cell.inner_text().split()[-1]) - prob) < 0.001  # "over 0.999" is one, too
    exact = next(prob for prob in told["tokens"][0]["probs"] if prob is not None and prob < 1)
    rows.first.get_by_role("cell").nth(1).hover()
    tip = page.locator("#distributions .ns-tip")
    expect(tip).to_contain_text(f"{exact:.6f}")
    expect(tip).to_contain_text(f"“{told['tokens'][0]['name']}”")
    page.locator("#why h2").hover()
    expect(tip).to_be_hidden()

    for width, height in ((1440, 900), (1024, 768), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        assert becomes(page, f"() => ({FITS})(document.querySelector('{CHART}'))"), width
        assert not scrolls_sideways(page)
    assert page.evaluate("window.Plotly") is None
