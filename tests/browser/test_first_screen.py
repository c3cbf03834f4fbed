"""The first screen: how much is on it, and what moves on arrival."""

import pytest
from playwright.sync_api import expect

from tests.browser.steps import TIP

COUNTS = """() => {
    const inside = (node) => {
        const { top, bottom, width, height } = node.getBoundingClientRect();
        return width > 1 && height > 1 && top < innerHeight && bottom > 0 && node.checkVisibility({ visibilityProperty: true });
    };
    // What can be pressed, typed into or reached with Tab; the tokens count once, since arrow keys move between them.
    const usable = "button, input, textarea, select, summary, a[href], [tabindex='0']";
    const controls = [...document.querySelectorAll(usable)].filter(inside);
    // The page's own text, without that of prompt and models.
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const texts = controls.filter((node) => node.type === "number").map((node) => node.value);
    while (walker.nextNode()) {
        const { parentElement: node, data } = walker.currentNode;
        const theirs = node.closest("#tokens, .ns-clean, .ns-lane-text, .ns-zoom-word, script, style, .ns-said");
        if (data.trim() && inside(node) && !theirs) texts.push(data);
    }
    const all = texts.join(" ");
    return [controls.length, (all.match(/\\p{L}+/gu) ?? []).length, (all.match(/\\d+(\\.\\d+)?/g) ?? []).length, all];
}"""
SHIFTS = """() => {
    Object.assign(window, { shift: 0, moved: [] });
    const box = ({ top, height }) => `${Math.round(top)}+${Math.round(height)}`;
    const named = ({ node, previousRect: from, currentRect: to }) => `${node?.id || node?.className} ${box(from)}, ${box(to)}`;
    const add = ({ value, hadRecentInput, sources }) => {
        window.shift += hadRecentInput ? 0 : value;
        if (!hadRecentInput && value > 0.001) window.moved.push(value, ...sources.map(named));
    };
    new PerformanceObserver((list) => list.getEntries().forEach(add))
        .observe({ type: "layout-shift", buffered: true });
}"""


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844)])
def test_before_anything_is_opened_there_is_little_on_the_screen_and_little_moves(open_page, width, height):
    page = open_page(width=width, height=height, reduced_motion="no-preference" if width == 1440 else "reduce")
    page.evaluate(SHIFTS)
    page.locator(".ns-race[data-state=done]").wait_for()
    page.wait_for_function("() => !document.querySelector('.ns-zoom').dataset.scene")
    controls, words, numbers, text = page.evaluate(COUNTS)
    assert (controls <= 16, words <= 90, numbers <= 12) == (True, True, True), (controls, words, numbers, text)
    assert page.evaluate("window.shift") < 0.02, page.evaluate("window.moved")
    page.locator("#tokens [data-kind=rejected]").first.hover()
    expect(page.locator(TIP)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(TIP)).to_be_hidden()
