"""Charts are drawn by the Plotly that ships here: it comes when the first one is nearly seen, and draws every one of them."""

import re

import plotly.offline
from playwright.sync_api import Page

from tests.browser.steps import ended, see_chart
from ui.assets import PLOTLY
from ui.charts.plot import BOARD

DRAWN = """() => [...document.querySelectorAll(".ns-plot")].filter((place) => place.offsetParent && place._fullData)
    .map((place) => [place._fullLayout.annotations?.length ?? 0, place.data.map(({ type }) => type ?? "scatter"),
        place._fullData.map(({ type }) => type), place.querySelectorAll(".main-svg").length])"""


def test_it_is_of_the_version_that_python_checks_figures_for():
    ours = re.search(r"v(\d+\.\d+\.\d+)", PLOTLY.read_text(encoding="utf-8")[:200])
    theirs = re.search(r"v(\d+\.\d+\.\d+)", plotly.offline.get_plotlyjs()[:200])
    assert ours[1] == theirs[1]
    assert "MIT" in (PLOTLY.parent / "LICENSE").read_text(encoding="utf-8")


def drawn(page: Page, number: int, *ids: str) -> None:
    """Go to these charts, and check whatever is drawn, at least so many."""
    for elem_id in ids:
        see_chart(page, elem_id)
    charts = page.evaluate(DRAWN)
    assert len(charts) >= number
    for notes, asked, made, drawings in charts:
        assert asked == made, "a kind of chart that it does not know, it draws as another"
        assert drawings
        assert made or notes


def test_it_draws_every_chart_of_the_page(page):
    """Those of the lessons are looked at in test_learn.py."""
    ended(page)
    drawn(page, 6, *BOARD, "chart-waterfall")
    page.get_by_role("tab", name="Explore", exact=True).click()
    drawn(page, 4, "explore-speedup", "explore-acceptance", "explore-curve-0", "explore-batches")
