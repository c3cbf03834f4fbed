"""Charts are drawn by the Plotly that ships here: it comes when the first one is nearly seen, and draws every one of them."""

import re

import plotly.offline

from tests.browser.steps import ended, see_chart
from ui.assets import PLOTLY
from ui.charts.plot import BOARD
from ui.experiments.lessons.course import LESSONS

DRAWN = """() => [...document.querySelectorAll(".ns-plot")].filter((place) => place.offsetParent && place._fullData)
    .map((place) => [place._fullLayout.annotations?.length ?? 0, place.data.map(({ type }) => type ?? "scatter"),
        place._fullData.map(({ type }) => type), place.querySelectorAll(".main-svg").length])"""


def test_it_is_of_the_version_that_python_checks_figures_for():
    ours = re.search(r"v(\d+\.\d+\.\d+)", PLOTLY.read_text(encoding="utf-8")[:200])
    theirs = re.search(r"v(\d+\.\d+\.\d+)", plotly.offline.get_plotlyjs()[:200])
    assert ours[1] == theirs[1]
    assert "MIT" in (PLOTLY.parent / "LICENSE").read_text(encoding="utf-8")


def test_a_phone_does_not_load_it_until_a_chart_is_nearly_seen(open_page):
    seen: list[str] = []
    page = open_page(width=390, height=844, is_mobile=True, has_touch=True)
    page.on("request", lambda request: seen.append(request.url))
    page.reload()
    page.wait_for_selector("#tokens [data-step]")
    ended(page)
    page.evaluate("new Promise((resolve) => requestIdleCallback(resolve))")
    assert not [url for url in seen if "plotly-cartesian" in url]
    see_chart(page, "chart-acceptance")
    assert len([url for url in seen if "plotly-cartesian" in url]) == 1
    assert page.evaluate("document.querySelector('#chart-speedup')._fullLayout") is None, "it is still far off"


def test_it_draws_every_chart_of_the_page(page):
    ended(page)

    def drawn(number: int, *ids: str) -> None:
        for elem_id in ids:
            see_chart(page, elem_id)
        charts = page.evaluate(DRAWN)
        assert len(charts) >= number
        for notes, asked, made, drawings in charts:
            assert asked == made, "a kind of chart that it does not know, it draws as another"
            assert drawings
            assert made or notes

    drawn(6, *BOARD, "chart-waterfall")
    page.get_by_role("tab", name="Explore", exact=True).click()
    maps = ("explore-speedup", "explore-acceptance", "explore-curve-0", "explore-batches")
    drawn(4, *maps)
    page.get_by_role("tab", name="Learn", exact=True).click()
    for number in (lesson.number for lesson in LESSONS if lesson.chart):
        page.locator(f".ns-course [data-lesson='{number}']").click()
        place = page.locator(f"[data-chart='{number}']")
        place.scroll_into_view_if_needed()
        place.locator(".main-svg").first.wait_for(state="attached")
        drawn(1)
