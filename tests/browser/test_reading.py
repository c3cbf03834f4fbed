"""Reading a run: pointing, the inspector, the keyboard, and boxes that show that there is more of their text."""

from io import BytesIO

from PIL import Image, ImageStat
from playwright.sync_api import Page, expect

from tests.browser.steps import TIP, ended, shown_run


def focused(page) -> dict[str, str]:
    return page.evaluate("({ ...document.activeElement.dataset })")


def test_a_token_shows_its_numbers_to_who_points_explains_itself_to_who_clicks_and_the_keyboard_does_it_all(page):
    expect(page.locator("#inspector")).to_be_hidden()
    page.locator("#tokens [data-kind=rejected]").first.hover()
    tip = page.locator(TIP)
    expect(tip).to_be_visible()
    for words in ("rejected", "draft probability", "target probability", "acceptance probability", "draw"):
        expect(tip).to_contain_text(words)
    expect(page.locator("#rounds .ns-linked")).to_have_count(1)
    page.locator("#tokens [data-kind=resampled]").nth(1).click()
    expect(page.locator("#inspector h3")).to_contain_text("resampled")
    expect(tip).to_be_hidden()  # it would cover the explanation
    expect(page.locator("#inspector h3")).to_have_attribute("data-kind", "resampled")
    expect(page.locator(".ns-pinned")).to_have_count(2)
    expect(page.locator(".ns-zoom .ns-looked")).to_contain_text("resampled")
    expect(page.locator("#distributions tbody tr").first).to_be_visible()
    box = page.locator("#inspector").bounding_box()
    assert box["x"] + box["width"] <= page.viewport_size["width"]
    assert box["y"] + 200 <= page.viewport_size["height"]
    page.locator(".ns-tiles").scroll_into_view_if_needed()
    page.mouse.wheel(0, 300)
    expect(page.locator(".ns-pinned").first).not_to_be_in_viewport()
    expect(page.locator("#inspector h3")).to_be_in_viewport(ratio=1)  # it stays while one reads on
    page.keyboard.press("Escape")
    expect(page.locator("#inspector")).to_be_hidden()

    page.mouse.move(0, 0)
    for box in ("#tokens", "#rounds"):
        expect(page.locator(f"{box} [tabindex='0']")).to_have_count(1)
    page.locator("#tokens [data-step]").first.focus()
    first = focused(page)
    page.keyboard.press("ArrowRight")
    second = focused(page)
    assert (first["step"], first["index"]) != (second["step"], second["index"])
    page.keyboard.press("ArrowLeft")
    assert focused(page) == first
    page.keyboard.press("ArrowDown")
    assert focused(page)["step"] == "1"
    page.keyboard.press("ArrowUp")
    assert focused(page)["step"] == "0"
    page.keyboard.press("End")
    last = focused(page)
    page.keyboard.press("ArrowRight")
    assert focused(page) == last
    expect(page.locator(TIP)).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#inspector h3")).to_have_attribute("data-kind", last["kind"])
    assert last["kind"] in page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.locator("#prompt textarea").focus()
    reached = []
    while "run" not in reached and len(reached) < 12:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached[-1] == "run"
    page.keyboard.press("Enter")
    expect(page.locator(".ns-badge")).not_to_have_text("recorded")
    assert shown_run(page) != "recorded"


SEEN = 12
"""Of 255: how far from its ground a shade is that eyes see."""


def shades(page: Page, box: str) -> tuple[bool, bool]:
    """Whether a shade lies at the upper and at the lower edge of a box, looked for where no words are."""
    place = page.locator(box).bounding_box()
    left, top, height = place["x"] + 4, place["y"], place["height"]
    clip = {"x": left, "y": top, "width": 4, "height": height}
    picture = Image.open(BytesIO(page.screenshot(clip=clip))).convert("L")
    middle = height / 2

    def light(low: float) -> float:
        return ImageStat.Stat(picture.crop((0, round(low), picture.width, round(low) + 4))).mean[0]

    ground = light(middle)
    return abs(light(3) - ground) > SEEN, abs(light(height - 7) - ground) > SEEN


def test_a_box_of_text_shows_on_which_side_there_is_more(open_page):
    page = open_page()
    ended(page)
    for theme, width, height in (("light", 1440, 700), ("dark", 390, 844)):
        page.emulate_media(color_scheme=theme)
        page.evaluate("(dark) => document.body.classList.toggle('dark', dark)", theme == "dark")
        page.set_viewport_size({"width": width, "height": height})
        for box in ("#tokens", ".ns-clean"):
            if box == ".ns-clean":
                page.locator("[data-act=clean]").click()
            page.locator(box).evaluate("(box) => box.scrollIntoView({ block: 'center' })")  # all of it, to the last pixel
            most = page.locator(box).evaluate("(box) => box.scrollHeight - box.clientHeight")
            assert most > 60
            for at, expected in ((0, (False, True)), (most / 2, (True, True)), (most, (True, False))):
                page.locator(box).evaluate("(box, at) => { box.scrollTop = at; }", at)
                assert shades(page, box) == expected, (theme, box, at)
        page.locator("[data-act=clean]").click()
