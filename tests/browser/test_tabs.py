"""Tabs: in the address, in the browser's history, in lecture mode; and fields as the keyboard and fingers find them."""

import re

from playwright.sync_api import expect

from tests.browser.steps import TIP, ended, open_drawer, run, toast


def selected(page, name: str) -> None:
    expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute("aria-selected", "true")


def go(page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()
    selected(page, name)


def test_back_and_forward_lead_from_tab_to_tab_and_the_address_leads_there_again(page):
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


def test_a_link_to_what_there_is_not_is_told(page):
    start = page.url
    page.goto(start + "?lesson=99&room=attic")
    for name, value in (("lesson", "99"), ("room", "attic")):
        toast(page, f"the link names {name} '{value}'")
    selected(page, "Learn")
    page.goto(start + "?tab=cellar&verify_strategy=mine")
    toast(page, "the link names tab 'cellar'")
    toast(page, "verify_strategy must be one of .*got 'mine'")


def test_in_lecture_mode_space_plays_and_the_buttons_of_every_tab_can_be_pressed(page):
    ended(page)
    page.get_by_role("button", name="Lecture", exact=True).click()
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    ended(page)
    assert "lecture=1" in page.url
    go(page, "Explore")
    for name in ("Explore", "Measure batches"):
        page.get_by_role("button", name=name, exact=True).click(trial=True)


def test_a_list_of_choices_closes_when_the_keyboard_leaves_it_and_a_drafter_without_drafts_is_not_called_plain_decoding(page):
    open_drawer(page)
    page.locator("#strategy input").focus()
    expect(page.locator("#strategy .options")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator("#strategy .options")).to_be_hidden()
    page.locator("#strategy input").click()
    page.get_by_role("option", name="Greedy match").click()
    expect(page.locator("#strategy input")).to_have_value("Greedy match")
    page.locator("#drafter").get_by_label("Prompt lookup").check()
    run(page, "Xyzzy", max_tokens=1, seed=1)
    expect(page.locator("#stats")).to_contain_text("Prompt lookup proposed nothing: the target model wrote 1 token")


def test_on_a_phone_no_card_stands_before_the_sheet_and_the_run_says_who_drafted(open_page):
    page = open_page(width=390, height=844)
    ended(page)
    expect(page.locator(".ns-title")).to_have_text(re.compile("^draft (model|head) · .* · seed"))
    assert page.locator(".ns-title").evaluate("(title) => title.scrollWidth <= title.clientWidth")
    page.locator("#tokens [data-kind=rejected]").first.click()
    expect(page.locator(".ns-inspector")).to_be_visible()
    above = "(tip, sheet) => Number(getComputedStyle(tip).zIndex) > Number(getComputedStyle(sheet).zIndex)"
    assert not page.locator(TIP).evaluate(above, page.locator(".ns-inspector").element_handle())
