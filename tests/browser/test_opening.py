"""The round that plays on arrival."""

import pytest
from playwright.sync_api import expect

from tests.browser.steps import another_run, ended, run, scrolls_sideways, shown_run
from tests.browser.test_truth import in_sight

OPENING = ".ns-opening"
PLACES = (
    """() => [".ns-opening", "#tokens", ".ns-player"].map((name) => document.querySelector(name).getBoundingClientRect().top)"""
)


SCENE = """(number) => {
    const opening = document.querySelector(".ns-opening");
    if (opening.dataset.scene !== String(number)) return null;
    const shown = [...opening.querySelectorAll("li")].map(({ dataset }) => dataset.shown);
    return [shown, document.querySelector(".ns-player").getBoundingClientRect().y];
}"""


def scene(page, number: int) -> tuple[list[str], float]:
    """Wait for a scene; returns how much of each draft token it shows, and the state of the player below it.

    Both are read in the turn in which the scene is seen, since no scene waits for a test.
    """
    shown, below = page.wait_for_function(SCENE, arg=number).json_value()
    return shown, below


def test_on_arrival_a_round_plays_over_and_over_until_it_is_stopped(page):
    page.set_viewport_size({"width": 1024, "height": 768})
    (compared, below), (judged, below_judged) = scene(page, 1), scene(page, 3)
    assert compared[0] == "2"
    assert set(judged) == {"4"}
    assert {below, below_judged} == {scene(page, 5)[1]}, "nothing below moves from scene to scene"
    expect(page.locator(f"{OPENING} [data-kind=rejected] .ns-op-instead")).to_be_visible()
    scene(page, 0)
    pause = page.locator(OPENING).get_by_role("button", name="Pause")
    pause.focus()
    page.keyboard.press("Enter")
    play = page.locator(OPENING).get_by_role("button", name="Play")
    expect(play).to_be_focused()
    play.click()
    page.locator(".ns-op-picture").click()  # a touch stops it, too
    expect(play).to_be_visible()

    for size in ((1440, 900), (1024, 768), (390, 844)):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        assert in_sight(page, OPENING, "#tokens", "#run", ".ns-player"), size
        assert not scrolls_sideways(page)
    bar = page.locator("#run").bounding_box()
    text = page.locator("#tokens").bounding_box()
    assert text["y"] + text["height"] <= bar["y"], "the text ends above the bar of buttons"
    page.set_viewport_size({"width": 720, "height": 450})
    expect(page.locator(OPENING)).to_be_hidden()


def test_it_says_to_who_hears_it_what_it_shows(page):
    figure = page.get_by_role("figure", name="One step in slow motion")
    expect(figure).to_contain_text("A small model drafts")
    expect(figure).to_contain_text("min(1, p/q)")
    assert page.locator(f"{OPENING} [aria-hidden=true] :is(a, button)").count() == 0


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_run_moves_nothing_on_the_screen_and_the_opening_goes_once_it_is_out_of_sight(open_page, width, height):
    page = open_page(width=width, height=height)
    ended(page)
    scene(page, 2)
    page.evaluate("() => document.activeElement?.blur()")
    places = page.evaluate(PLACES)
    before = shown_run(page)
    page.locator("#run").click()
    another_run(page, before)
    ended(page)
    expect(page.locator(f"{OPENING} [data-shown]")).to_have_count(0)  # it stands as it ends
    assert page.evaluate(PLACES) == places
    expect(page.locator(f"{OPENING} .ns-op-instead")).to_be_visible()

    page.locator("#rounds").evaluate("(rounds) => rounds.scrollIntoView()")
    page.locator(f"{OPENING}[hidden]").wait_for(state="attached")
    page.wait_for_function("() => !document.scrollingElement.style.overflowAnchor")
    assert abs(page.locator("#rounds").bounding_box()["y"]) < 2
    page.evaluate("() => scrollTo(0, 0)")
    assert page.locator("#tokens").bounding_box()["y"] < places[1]
    page.reload()
    ended(page)
    expect(page.locator(OPENING)).to_be_hidden()


def test_closed_it_stays_closed_and_a_run_closes_it(page):
    page.locator(OPENING).get_by_role("button", name="Close the introduction").focus()
    page.keyboard.press("Enter")
    expect(page.locator(OPENING)).to_be_hidden()
    expect(page.locator("#tokens :focus")).to_have_count(1)  # the keyboard goes on at the text
    above = page.locator(".ns-show").bounding_box()["y"]
    assert page.locator(".ns-head").bounding_box()["y"] - above < 10, "nothing is left of its place"
    page.reload()
    ended(page)
    expect(page.locator(OPENING)).to_be_hidden()

    page.evaluate("sessionStorage.clear()")
    page.reload()
    expect(page.locator(OPENING)).to_be_visible()
    run(page, "Once upon a time", max_tokens=8)
    page.reload()
    ended(page)
    expect(page.locator(OPENING)).to_be_hidden()


def test_who_wants_no_movement_sees_how_it_ends(open_page):
    page = open_page(reduced_motion="reduce")
    expect(page.locator(f"{OPENING} .ns-op-instead")).to_be_visible()
    expect(page.locator(f"{OPENING} figcaption")).to_contain_text("in one pass of the large model")
    expect(page.locator(f"{OPENING} figcaption p:visible")).to_have_count(1)
    expect(page.locator(f"{OPENING} .ns-op-play")).to_be_hidden()
    expect(page.locator(f"{OPENING} [data-shown]")).to_have_count(0)


def test_who_follows_a_link_or_sees_a_part_of_the_page_is_not_kept_from_it(open_page):
    page = open_page()
    address = page.url
    for query in ("?run=recorded&round=3", "?embed=1&run=recorded", "?lecture=1", "?lesson=2"):
        page.goto(address + query)
        page.locator("#tokens").wait_for(state="attached")
        page.locator(f"{OPENING}[hidden]").wait_for(state="attached")
        assert not page.locator(OPENING).is_visible()
    page.goto(address)
    expect(page.locator(OPENING)).to_be_visible()
    page.get_by_role("button", name="Lecture", exact=True).click()
    expect(page.locator(OPENING)).to_be_hidden()
