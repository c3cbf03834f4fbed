"""A real browser obeys the page's content security policy, and finds the page under any name."""

from urllib.parse import urlsplit

import pytest

from tests.browser.steps import ended, run, see_chart

TABS = {"Explore": "#explore-speedup .main-svg", "Learn": ".ns-lesson-title"}
"""And what is there once each is."""
BROKEN = """document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
    (window.broken ??= []).push(`${violatedDirective} ${blockedURI}`);
})"""
PLANTED = """() => new Promise((resolve) => {
    document.addEventListener("securitypolicyviolation", ({ violatedDirective }) => resolve(violatedDirective));
    document.body.insertAdjacentHTML("beforeend", "<img src='none' onerror='window.planted = true'>");
})"""


@pytest.mark.parametrize("query", ["", "?embed=1&run=recorded"])
def test_no_tab_does_what_its_policy_forbids_or_fetches_anything_from_elsewhere(open_page, server, query):
    page = open_page(query)
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url))
    page.add_init_script(BROKEN)
    page.reload()
    ended(page)
    if not query:
        run(page, "Once upon a time there was a fox who", max_tokens=20)
        see_chart(page, "chart-speedup")
        with page.expect_download():
            page.get_by_role("button", name="Save trace").click()
        for name, shown in TABS.items():
            page.get_by_role("tab", name=name, exact=True).click()
            page.locator(shown).first.wait_for()
        for room in page.locator(".ns-room > summary").all():
            room.click()
        page.get_by_role("button", name="Begin").first.wait_for()
    assert page.evaluate("() => window.broken ?? []") == []
    assert len(seen) > 10
    assert [url for url in seen if not url.startswith((server.url, "data:", "blob:"))] == []


def test_markup_that_got_into_the_page_runs_no_script(server, chromium):
    page = chromium.new_page()
    page.goto(server.url)
    assert page.evaluate(PLANTED).startswith("script-src")
    assert page.evaluate("() => window.planted") is None
    page.close()


def test_under_a_name_that_nobody_configured_the_page_works_and_asks_only_where_it_came_from(server, open_page):
    page = open_page()
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    name = f"lan.test:{urlsplit(server.url).port}"
    page.goto(f"http://{name}/")
    page.wait_for_selector("#tokens [data-step]")
    run(page, "Once upon a time there was a fox who", max_tokens=20)
    assert asked - {""} == {name}
