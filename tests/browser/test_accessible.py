"""Nothing that axe-core finds wrong, and every button readable in every state, in both themes;
and the reader's own colours."""

from io import BytesIO
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Page

from tests.browser.steps import ended, run, script, see_chart, settled
from ui.experiments.learn import LESSONS

EVERY_RULE: dict[str, Any] = {"resultTypes": ["violations"], "preload": False}
# all that differs between the themes
COLOURS = EVERY_RULE | {"runOnly": ["color-contrast", "link-in-text-block"]}


def violations(page: Page, rules: dict[str, Any], within: str | None = None) -> list[Any]:
    """What axe-core finds, on the page or a part of it: the rule, and the elements against it."""
    settled(page)  # what fades in is pale for a moment
    # half a megabyte, and a page keeps it
    axe = Axe("" if page.evaluate("'axe' in window") else AXE_SCRIPT)
    found = axe.run(page, within, rules).response["violations"]
    return [(rule["id"], [node["html"][:200] for node in rule["nodes"]]) for rule in found]


def open_tab(page: Page, name: str, shown: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()
    page.locator(shown).first.wait_for()


BUTTONS = "button, summary, [role=button], [role=tab]"
STATES = {
    "rest": [],
    "hover": ["hover"],
    "focus": ["focus", "focus-visible"],
    "active": ["hover", "active"],
}
AT_LEAST = 4.5
LARGE, AT_LEAST_LARGE = 24, 3.0  # CSS pixels

CHOSEN = "[data-judged=now]"
CHOOSE = script("choose")
PALE = script("pale")


def pale(page: Page, *, again: bool) -> dict[str, list[str]]:
    """The buttons whose text is too pale, by state; of those that are there now and were not the
    last time, or of the same."""
    client = page.context.new_cdp_session(page)
    for domain in ("DOM", "CSS"):
        client.send(f"{domain}.enable")
    if not again:
        page.evaluate(CHOOSE, BUTTONS)
    root = client.send("DOM.getDocument", {"depth": 0})["root"]["nodeId"]
    nodes = client.send("DOM.querySelectorAll", {"nodeId": root, "selector": CHOSEN})["nodeIds"]
    asked = [CHOSEN, AT_LEAST, LARGE, AT_LEAST_LARGE]
    found = {}
    for state, classes in STATES.items():
        for node in nodes if classes else ():
            client.send("CSS.forcePseudoState", {"nodeId": node, "forcedPseudoClasses": classes})
        found[state] = page.evaluate(PALE, asked)
    client.detach()  # and nothing is forced any more
    enabled = page.evaluate_handle(f"() => [...document.querySelectorAll('{CHOSEN}:enabled')]")
    enabled.evaluate("(all) => { for (const one of all) one.disabled = true; }")
    found["disabled"] = page.evaluate(PALE, asked)
    enabled.evaluate("(all) => { for (const one of all) one.disabled = false; }")
    return {state: some for state, some in found.items() if some}


def test_axe_finds_nothing_on_any_tab_and_every_button_can_be_read_in_every_state_of_both_themes(
    open_page,
):
    page = open_page("?__theme=light")
    found: dict[str, Any] = {}

    def look(place: str, within: str | None = None) -> None:
        for theme, rules in (("light", EVERY_RULE), ("dark", COLOURS)):
            page.emulate_media(color_scheme=theme)
            page.evaluate("(dark) => document.body.classList.toggle('dark', dark)", theme == "dark")
            found[f"{place}, {theme}"] = (
                violations(page, rules, within),
                pale(page, again=theme == "dark"),
            )
        page.evaluate("document.body.classList.remove('dark')")

    ended(page)
    # few tokens, of every kind
    run(page, "Once upon a time there was a fox who", max_tokens=12, temperature=1, k=3, seed=3)
    for kind in ("prompt", "accepted", "rejected", "discarded", "resampled", "bonus"):
        page.locator(f"#tokens [data-kind={kind}]").first.wait_for(state="attached")
    see_chart(page, "chart-speedup")
    page.locator(".ns-meanings summary").click()
    page.locator("#tokens [data-kind=rejected]").first.click()
    page.locator("#distributions tbody tr").first.wait_for()
    look("run, with the drawer open and a token explained")
    page.get_by_role("button", name="Glossary").click()
    page.locator(".ns-glossary[open]").wait_for()
    look("glossary", ".ns-glossary")
    page.keyboard.press("Escape")
    open_tab(page, "Explore", "#explore-speedup .main-svg")
    look("explore")
    open_tab(page, "Learn", ".ns-lesson-title")
    for room in page.locator(".ns-room > summary").all():
        room.click()
    page.get_by_role("button", name="Examine").wait_for()
    page.get_by_role("button", name="Begin", exact=True).click()
    page.get_by_role("button", name="Draft it", exact=True).wait_for()
    look("learn, with every room open and a chart")
    for number in (
        lesson.number for lesson in LESSONS if lesson.markup
    ):  # every other one is a chart with a text
        page.locator(f".ns-course [data-lesson='{number}']").click()
        page.locator(f".ns-learn[data-lesson='{number}']").wait_for()
        look(f"lesson {number}", ".ns-lesson")
    assert {place: wrong for place, wrong in found.items() if any(wrong)} == {}


KINDS_LOOK = """() =>
  Object.fromEntries([...document.querySelectorAll("#tokens [data-kind]")].map((node) => {
    const look = getComputedStyle(node);
    const line = look.textDecorationLine === "none" ? []
      : [look.textDecorationLine, look.textDecorationStyle];
    return [node.dataset.kind, [...line, look.outlineStyle].join(" ")];
}))"""


def test_with_forced_colours_kinds_differ_and_sliders_are_seen(page):
    page.emulate_media(forced_colors="active")
    looks = page.evaluate(KINDS_LOOK)
    assert {"prompt", "accepted", "rejected", "discarded", "resampled", "bonus"} <= set(looks)
    assert len(set(looks.values())) == len(looks), looks
    picture = Image.open(BytesIO(page.locator(".ns-slider").screenshot())).convert("RGB")
    ground = picture.getpixel((0, 0))
    most = max(
        count
        for count, colour in picture.getcolors(picture.width * picture.height)
        if colour != ground
    )
    assert most > picture.width / 2, "a line from end to end, or nearly"
