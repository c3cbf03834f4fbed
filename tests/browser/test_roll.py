"""The inspector's odds: its chart, a position drawn again, luck and skill, and a step as a
picture, used as a person would."""

import math
import re

import pytest
from playwright.sync_api import Page, expect

from naive_speculate import Trace
from tests.browser.steps import becomes, ended, open_trace, save_as, saved, scrolls_sideways
from ui.explain.inspector import OBSTACLES, UNRECORDED, bins, distributions
from ui.labels import number
from ui.run.recorded import SPECULATIVE

REDRAW = "Redraw this position × 1,000"
ROLL = """async ([bins, times, seed]) => {
    const { dice, rollMany } = await import("/inspector.js");
    return rollMany(bins, times, dice(seed)).map(({ kept, replaced }) => [kept, replaced]);
}"""


@pytest.fixture(scope="module")
def recorded() -> Trace:
    return Trace.load(SPECULATIVE)


def refused(trace: Trace):
    """The first draft whose refusal was far from certain, with its number."""
    return next(
        (n, e) for n, e in enumerate(trace) if e.kind == "rejected" and 0.2 < e.accept_prob < 0.9
    )


def choose(page: Page, event) -> None:
    page.locator(f"#tokens [data-step='{event.step}'][data-index='{event.index}']").first.click()
    expect(page.locator(".ns-roll")).to_be_visible()


def rolled(page: Page, times: int) -> list[list[int]]:
    """What came out of so many rolls, as the rows of the histogram say."""
    expect(page.locator(".ns-roll-said")).to_contain_text(f"{times:,} new draws")
    rows = page.locator(".ns-roll tbody tr")
    return rows.evaluate_all(
        "(rows) => rows.map(({ dataset }) => [Number(dataset.kept), Number(dataset.replaced)])"
    )


def redrawn(said: str) -> tuple[int, int]:
    """How often the chosen draft token was proposed again, and accepted then."""
    found = re.search(r"proposed “.*” ([\d,]+) times, and ([\d,]+) of these were accepted", said)
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def test_what_comes_out_of_many_rolls_is_p_and_the_same_for_the_same_seed(scripts, recorded):
    event = refused(recorded)[1]
    found, times = [list(each) for each in bins(event)], 40_000
    counts = scripts.evaluate(ROLL, [found, times, 7])
    assert counts == scripts.evaluate(ROLL, [found, times, 7])
    assert counts != scripts.evaluate(ROLL, [found, times, 8])
    kept = sum(k for k, _ in counts)
    alpha = event.expected_accept
    assert abs(kept / times - alpha) < 5 * math.sqrt(alpha * (1 - alpha) / times)
    for (_, p, _, shared), (k, r) in zip(found, counts, strict=True):
        for count, probability in (
            (k + r, p),
            (k, shared),
        ):  # and five more, for what is too rare for the normal law
            assert (
                abs(count - times * probability)
                < 5 * math.sqrt(times * probability * (1 - probability)) + 5
            )


def the_die_is_in_the_reader_s_hand(page, event):
    """By pointer and by keys; the verdict follows."""
    verdict, slider = (
        page.locator(".ns-roll-verdict"),
        page.get_by_role("slider", name="The draw u"),
    )
    expect(verdict).to_be_hidden()
    bar = page.locator(".ns-die-bar").bounding_box()
    middle, edge = bar["y"] + bar["height"] / 2, bar["x"] + bar["width"] * event.accept_prob
    page.mouse.move(bar["x"] + bar["width"] * event.uniform, middle)
    page.mouse.down()
    page.mouse.move(edge - 4, middle, steps=4)
    expect(verdict).to_contain_text("accepted")
    page.mouse.move(edge + 4, middle, steps=4)
    expect(verdict).to_contain_text("rejected")
    page.mouse.up()
    slider.press("Home")
    expect(verdict).to_have_text(re.compile(r"^u = 0 is below .* accepted"))
    slider.press("ArrowRight")
    expect(page.locator(".ns-die-u")).to_have_text("u = 0.001")
    assert slider.get_attribute("aria-valuetext") == "u = 0.001: accepted"
    slider.press("End")
    expect(verdict).to_contain_text("rejected")


def test_luck_is_distinguished_from_skill_and_a_draft_s_die_is_in_the_reader_s_hand(
    open_page, scripts, recorded, tmp_path
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

    for control in (
        ".ns-die",
        ".ns-die > input",
        ".ns-roll button >> nth=0",
        ".ns-roll button >> nth=1",
    ):
        expect(page.locator(control)).to_be_hidden()  # the first view has no more controls for it
    event = refused(recorded)[1]
    choose(page, event)
    the_die_is_in_the_reader_s_hand(page, event)
    page.get_by_role("button", name=REDRAW).press("Enter")
    seed, found = event.step * 64 + event.index, [list(each) for each in bins(event)]
    assert (
        rolled(page, 1000) == scripts.evaluate(ROLL, [found, 1000, seed])[: len(rolled(page, 1000))]
    )
    page.get_by_role("button", name=REDRAW).click()
    assert sum(map(sum, rolled(page, 2000))) == 2000
    said = page.locator(".ns-roll-said").text_content()
    drafted, own = redrawn(said)
    assert abs(drafted - 2000 * event.draft_prob) < 5 * math.sqrt(2000 * event.draft_prob) + 5
    assert abs(own - drafted * event.accept_prob) < 5 * math.sqrt(drafted) + 5
    assert (
        f"(min(1, p/q) = {number(event.accept_prob)})" in said
    )  # of the chosen draft token, as its bar says
    expect(page.locator(".ns-roll caption")).to_contain_text("Output")
    another = next(e for e in recorded if e.kind == "accepted" and e.accept_prob < 1)
    choose(page, another)
    expect(page.locator(".ns-roll table")).to_be_hidden()
    expect(page.locator(".ns-die-u")).to_have_text(f"u = {number(another.uniform)}")
    picture = saved(page, page.get_by_role("button", name="Step as SVG"), tmp_path / "round.svg")
    assert picture.read_text() == recorded.to_svg(another.step)
    assert (
        save_as(page, "This step, for a slide (SVG)", tmp_path / "menu.svg").read_text()
        == picture.read_text()
    )


def test_where_a_die_alone_decides_nothing_it_is_said_and_not_offered(page, tmp_path):
    event = refused(Trace.load(SPECULATIVE))[1]
    for rule, why in OBSTACLES.items():
        trace = Trace.load(SPECULATIVE)
        trace[0].settings["verify_strategy"] = rule.value
        for each in trace:
            if rule != "block_verification" and each.accept_prob is not None:
                each.uniform, each.accept_prob = None, float(each.kind == "accepted")
                each.threshold = 0.1 if rule == "typical_acceptance" else None
        open_trace(page, trace, tmp_path / f"{rule}.jsonl")
        choose(page, event)
        expect(page.locator(".ns-roll-why")).to_have_text(why)
        expect(page.locator(".ns-die > input")).to_be_hidden()
        expect(page.get_by_role("button", name=REDRAW)).to_be_hidden()
    old = Trace.load(SPECULATIVE)
    for each in old:
        each.expected_accept = each.draft_top_target = each.target_top_draft = None
    open_trace(page, old, tmp_path / "old.jsonl")
    choose(page, event)
    expect(page.locator(".ns-roll-why")).to_have_text(UNRECORDED)
    expect(page.locator(".ns-die > input")).to_be_visible()  # its own p, q and u are known
    expect(page.locator("#chart-positions")).to_have_attribute(
        "aria-label", re.compile("Accepted when reached: α = ")
    )


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
