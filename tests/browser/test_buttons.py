"""Every button's text stands out from its ground in every state, in light and dark: WCAG AA, from the computed styles."""

import pytest
from playwright.sync_api import Page

from tests.browser.steps import ended, run
from ui.experiments.lessons.course import LESSONS

BUTTONS = "button, summary, [role=button], [role=tab]"
STATES = {"rest": [], "hover": ["hover"], "focus": ["focus", "focus-visible"], "active": ["hover", "active"]}
AT_LEAST = 4.5
TABS = {"Race": ".ns-lane .ns-token", "Explore": "#explore-speedup .main-svg", "Learn": ".ns-lesson-title"}
"""And what is there once each is."""
LARGE, AT_LEAST_LARGE = 24, 3.0  # CSS pixels

CHOSEN = "[data-judged=now]"
CHOOSE = """(buttons) => {
    for (const button of document.querySelectorAll(buttons)) {
        if (button.dataset.judged) button.dataset.judged = "before";
        else if (button.checkVisibility()) button.dataset.judged = "now";
    }
}"""
PALE = """([buttons, least, large, leastLarge]) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const rgba = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = ([r, g, b, a], below) => [r, g, b].map((c, n) => c * a + below[n] * (1 - a));
    const lines = (node) => (node ? [...lines(node.parentElement), node] : []);
    const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    // The ground and the text as they are painted: `opacity` mixes all of an element with what lies below it.
    const painted = (node, chain) => {
        let ground = [255, 255, 255];
        let opacity = 1, below = ground;
        for (const one of chain) {
            const style = getComputedStyle(one);
            if (style.opacity !== "1") { below = opacity === 1 ? ground : below; opacity *= Number(style.opacity); }
            ground = over(rgba(style.backgroundColor), ground);
        }
        const text = over(rgba(getComputedStyle(node).color), ground);
        return [ground, text].map((color) => over([...color, opacity], opacity === 1 ? color : below));
    };
    const found = [];
    for (const button of document.querySelectorAll(buttons)) {
        for (const node of [button, ...button.querySelectorAll("*")]) {
            const texts = [...node.childNodes].filter(({ nodeType }) => nodeType === 3);
            const said = texts.map(({ data }) => data.trim()).join("").slice(0, 40);
            const seen = node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
            if (!said || !seen || !node.getClientRects().length) continue;
            const [ground, text] = painted(node, lines(node)).map(luminance);
            const contrast = (Math.max(ground, text) + 0.05) / (Math.min(ground, text) + 0.05);
            const size = parseFloat(getComputedStyle(node).fontSize);
            if (contrast >= (size >= large ? leastLarge : least)) continue;
            found.push(`${said}: ${contrast.toFixed(2)} in ${button.className}`);
        }
    }
    return [...new Set(found)];
}"""


def pale(page: Page) -> dict[str, list[str]]:
    """The buttons whose text is too pale, by state; of those that are there now and were not the last time."""
    client = page.context.new_cdp_session(page)
    for domain in ("DOM", "CSS"):
        client.send(f"{domain}.enable")
    page.evaluate(CHOOSE, BUTTONS)
    root = client.send("DOM.getDocument", {"depth": 0})["root"]["nodeId"]
    nodes = client.send("DOM.querySelectorAll", {"nodeId": root, "selector": CHOSEN})["nodeIds"]
    asked = [CHOSEN, AT_LEAST, LARGE, AT_LEAST_LARGE]
    found = {}
    for state, classes in STATES.items():
        for node in nodes:
            client.send("CSS.forcePseudoState", {"nodeId": node, "forcedPseudoClasses": classes})
        found[state] = page.evaluate(PALE, asked)
    client.detach()  # and nothing is forced any more
    enabled = page.evaluate_handle(f"() => [...document.querySelectorAll('{CHOSEN}:enabled')]")
    enabled.evaluate("(all) => { for (const one of all) one.disabled = true; }")
    found["disabled"] = page.evaluate(PALE, asked)
    enabled.evaluate("(all) => { for (const one of all) one.disabled = false; }")
    return {state: some for state, some in found.items() if some}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_button_can_be_read_in_every_state(open_page, theme):
    page = open_page(f"?__theme={theme}", color_scheme=theme)
    page.add_style_tag(content="*, *::before, *::after { transition: none !important; animation: none !important }")
    ended(page)
    found = {"opening": pale(page)}
    run(page, "Once upon a time there was a fox who", max_tokens=40, temperature=1, k=3)
    page.locator("#tokens [data-kind=rejected]").first.click()
    found["run"] = pale(page)
    page.get_by_role("button", name="Glossary").click()
    found["glossary"] = pale(page)
    page.keyboard.press("Escape")
    for name, shown in TABS.items():
        page.get_by_role("tab", name=name, exact=True).click()
        page.locator(shown).first.wait_for()
        found[name] = pale(page)
    for number in (lesson.number for lesson in LESSONS):
        page.locator(f".ns-course [data-lesson='{number}']").click()
        page.locator(f".ns-learn[data-lesson='{number}']").wait_for()
        found[f"lesson {number}"] = pale(page)
    for room in page.locator(".ns-room > summary").all():
        room.click()
    page.get_by_role("button", name="Examine").wait_for()
    page.get_by_role("button", name="Begin", exact=True).wait_for()
    found["rooms"] = pale(page)
    page.get_by_role("button", name="Begin", exact=True).click()
    page.get_by_role("button", name="Draft it", exact=True).wait_for()
    found["a room in use"] = pale(page)
    too_pale = [(place, *some) for place, states in found.items() for some in states.items()]
    assert not too_pale, too_pale
