"""Glossary cards, and lessons in lecture mode on a small projector."""

import re

from playwright.sync_api import Locator, Page, expect

from ui.experiments.learn import read_steps
from ui.explain.glossary import TERMS

CARD = ".ns-card:popover-open"
MEANINGS = {term.key: term.meaning for term in TERMS}
WITHIN = """(card) => {
    const { left, top, right, bottom } = card.getBoundingClientRect();
    return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
}"""
WHOLE = """() => {
    const box = document.querySelector(".ns-lesson");
    const choices = [...document.querySelectorAll(".ns-ask:not([hidden]) .ns-choices button")];
    const bar = document.querySelector(".ns-lesson-bar").getBoundingClientRect();
    return box.scrollHeight <= box.clientHeight && box.scrollWidth <= box.clientWidth
        && choices.every((node) => node.getBoundingClientRect().bottom < bar.top);
}"""
SMALLEST = """(chart) => Math.min(...[...chart.querySelectorAll("svg text")].filter((node) => node.getClientRects().length)
    .map((node) => parseFloat(getComputedStyle(node).fontSize)))"""


def shows(page: Page, link: Locator) -> None:
    """The card has the meaning of this term, on the screen and for screen readers."""
    card = page.locator(CARD)
    expect(card).to_contain_text(MEANINGS[(link.get_attribute("href") or "").removeprefix("#term-")])
    expect(link).to_have_attribute("aria-describedby", "term-card")
    expect(card).to_have_role("tooltip")
    assert card.evaluate(WITHIN)


def test_a_term_shows_its_card_and_in_lecture_mode_no_step_is_cut_off_and_charts_are_legible(open_page):
    page = open_page("?lesson=1&lecture=1", shown=".ns-lesson-title", width=1024, height=768)
    whole = page.url.split("?")[0]
    link, card = page.locator(".ns-lesson-text a[href^='#term-']").first, page.locator(CARD)
    link.hover()
    shows(page, link)
    card.hover()
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    assert "lecture=1" in page.url  # Escape closed the card alone
    expect(link).not_to_have_attribute("aria-describedby", re.compile("."))
    link.focus()
    shows(page, link)
    link.blur()
    expect(card).to_have_count(0)
    link.hover()
    page.mouse.move(5, 5)
    expect(card).to_have_count(0)
    link.click()
    expect(page.locator(".ns-glossary[open] .ns-meant")).to_be_focused()
    expect(card).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator(".ns-glossary[open]")).to_have_count(0)
    assert "lecture=1" in page.url  # Escape closed the glossary alone
    link.hover()
    page.keyboard.press("PageDown")
    expect(card).to_have_count(0)  # its term is gone
    page.mouse.move(5, 5)
    expect(page.locator(".ns-source")).to_contain_text("Recorded with")
    page.keyboard.press("PageUp")
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile("^(?!.*lecture)"))

    page.goto(f"{whole}?lecture=1")
    page.locator("#tokens [data-kind=rejected]").first.click()
    why = page.locator(".ns-inspector.ns-open")
    expect(why).to_have_count(1)
    page.keyboard.press("Escape")
    expect(why).to_have_count(0)
    assert "lecture=1" in page.url

    for lesson in (3, 10):
        page.goto(f"{whole}?lesson={lesson}&lecture=1")
        for step in range(len(read_steps(lesson))):
            page.locator(f".ns-learn[data-lesson='{lesson}'][data-step='{step}']").wait_for()
            page.wait_for_function(WHOLE)
            page.keyboard.press("PageDown")
    page.locator(f".ns-learn[data-lesson='{lesson + 1}']").wait_for()  # whose first step the last key opened
    page.keyboard.press("PageUp")
    chart = page.locator("[data-chart='10'] .ns-plot")
    chart.locator(".main-svg").first.wait_for()
    assert chart.evaluate(SMALLEST) >= 18
