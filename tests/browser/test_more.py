"""A text that is longer than its box shows that there is more of it."""

from io import BytesIO

from PIL import Image, ImageStat
from playwright.sync_api import Page

from tests.browser.steps import ended

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
