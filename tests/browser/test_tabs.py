"""Tabs: in the address and in the browser's history."""

from playwright.sync_api import expect

from tests.browser.steps import toast


def selected(page, name: str) -> None:
    expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute("aria-selected", "true")


def go(page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()
    selected(page, name)


def test_back_and_forward_lead_from_tab_to_tab_and_a_link_to_what_there_is_not_is_reported(page):
    start = page.url
    go(page, "Learn")
    page.locator("[data-lesson='3']").click()
    expect(page).to_have_url(start + "?lesson=3")
    go(page, "Explore")
    expect(page).to_have_url(start + "?tab=explore")
    for move, name, address in (
        (page.go_back, "Learn", "?lesson=3"),
        (page.go_back, "Run", ""),
        (page.go_forward, "Learn", "?lesson=3"),
    ):
        move()
        selected(page, name)
        expect(page).to_have_url(start + address)
    page.reload()
    selected(page, "Learn")
    page.goto(start + "?lesson=99&room=attic")
    for name, value in (("lesson", "99"), ("room", "attic")):
        toast(page, f"the link names {name} '{value}'")
    selected(page, "Learn")
    page.goto(start + "?tab=cellar&verify_strategy=mine&prompt=%3Cimg%20src=x%20onerror=window.hit=1%3E")
    toast(page, "the link names tab 'cellar'")
    toast(page, "verify_strategy must be one of .*got 'mine'")
    assert page.evaluate("window.hit") is None
