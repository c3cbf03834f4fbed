"""Nothing that axe-core finds wrong, on any tab, in light and dark; and what the reader's own colours leave of the page."""

from base64 import b64encode
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.steps import ended, run, see_chart, settled
from ui.experiments.lessons.course import LESSONS

EVERY_RULE: dict[str, Any] = {"resultTypes": ["violations"]}
COLOURS = EVERY_RULE | {"runOnly": ["color-contrast", "link-in-text-block"]}  # all that differs between the themes


def violations(page: Page, rules: dict[str, Any], within: str | None = None) -> list[Any]:
    """What axe-core finds, on the page or a part of it: the rule, and the elements against it."""
    settled(page)  # what fades in is pale for a moment
    axe = Axe("" if page.evaluate("'axe' in window") else AXE_SCRIPT)  # half a megabyte, and a page keeps it
    found = axe.run(page, within, rules).response["violations"]
    return [(rule["id"], [node["html"][:200] for node in rule["nodes"]]) for rule in found]


def open_tab(page: Page, name: str, shown: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()
    page.locator(shown).first.wait_for()


@pytest.mark.parametrize(("theme", "rules"), [("light", EVERY_RULE), ("dark", COLOURS)], ids=["light", "dark"])
def test_axe_finds_nothing_on_any_tab(open_page, theme, rules):
    page = open_page(f"?__theme={theme}", color_scheme=theme)
    ended(page)
    run(page, "Once upon a time there was a fox who", max_tokens=40, temperature=1, k=3)  # few tokens, of every kind
    for kind in ("prompt", "accepted", "rejected", "discarded", "resampled", "bonus"):
        page.locator(f"#tokens [data-kind={kind}]").first.wait_for(state="attached")
    see_chart(page, "chart-speedup")
    page.locator(".ns-meanings summary").click()
    assert violations(page, rules) == []
    page.get_by_role("button", name="Glossary").click()
    page.locator(".ns-glossary[open]").wait_for()
    assert violations(page, rules, ".ns-glossary") == []
    page.keyboard.press("Escape")
    open_tab(page, "Explore", "#explore-speedup .main-svg")
    assert violations(page, rules) == []
    open_tab(page, "Learn", ".ns-lesson-title")
    assert violations(page, rules) == []
    for number in (lesson.number for lesson in LESSONS):
        page.locator(f".ns-course [data-lesson='{number}']").click()
        page.locator(f".ns-learn[data-lesson='{number}']").wait_for()
        assert violations(page, rules, ".ns-learn") == [], number


KINDS_LOOK = """() => Object.fromEntries([...document.querySelectorAll("#tokens [data-kind]")].map((node) => {
    const look = getComputedStyle(node);
    const line = look.textDecorationLine === "none" ? [] : [look.textDecorationLine, look.textDecorationStyle];
    return [node.dataset.kind, [...line, look.outlineStyle].join(" ")];
}))"""
SHOWN_PIXELS = """async (source) => {
    const image = await createImageBitmap(await (await fetch(source)).blob());
    const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    const { data } = canvas.getImageData(0, 0, image.width, image.height);
    const colours = new Map();
    for (let n = 0; n < data.length; n += 4) {
        const colour = data.slice(n, n + 3).join();
        colours.set(colour, (colours.get(colour) || 0) + 1);
    }
    colours.delete(data.slice(0, 3).join()); // the ground
    return [image.width, Math.max(...colours.values())];
}"""


def test_with_forced_colours_kinds_differ_and_sliders_are_seen(open_page):
    page = open_page(forced_colors="active")
    ended(page)
    looks = page.evaluate(KINDS_LOOK)
    assert {"prompt", "accepted", "rejected", "discarded", "resampled", "bonus"} <= set(looks)
    assert len(set(looks.values())) == len(looks), looks
    for slider in (".ns-slider",):
        png = page.locator(slider).first.screenshot()
        source = "data:image/png;base64," + b64encode(png).decode()
        width, most = page.evaluate(SHOWN_PIXELS, source)
        assert most > width / 2, slider  # a line from end to end, or nearly
