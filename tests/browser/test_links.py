"""Links that restore a view, tabs in the address, lecture mode, and the page as a part of
another."""

import re

import pytest
from playwright.sync_api import expect

from naive_speculate import Trace
from tests.browser.steps import (
    ended,
    linked,
    open_drawer,
    open_trace,
    run,
    script,
    shown_run,
    text,
    toast,
    trace,
)
from ui.run.recorded import SPECULATIVE

NOTE = ".ns-link-note"


def copy_link(page) -> str:
    before = page.url
    page.get_by_role("button", name="Copy link", exact=True).click()
    page.wait_for_function("(before) => location.href !== before", arg=before)
    return page.url


def opened(page, link: str) -> None:
    """Leave the page and follow a link to a run."""
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#tokens [data-step]")


LOOKED_AT = """() => {
    const stage = document.querySelector(".ns-stage");
    const place = ({ dataset }) => [dataset.kind, dataset.step, dataset.index];
    const chosen = [...stage.querySelectorAll("#tokens .ns-pinned")].map(place);
    return JSON.stringify([document.querySelector(".ns-clock").textContent.split(" · ")[0],
      stage.dataset.cursor, chosen]);
}"""


def looked_at(page) -> str:
    """The round, how many events are shown, and the token that was chosen."""
    return page.evaluate(LOOKED_AT)


def looks_at(page, before: str) -> None:
    """The same is shown, which playback reaches some frames after the run has come."""
    page.wait_for_function(f"(before) => ({LOOKED_AT})() === before", arg=before)


def test_a_link_shows_the_run_that_is_kept_or_runs_it_again_and_the_same_round_and_token(page):
    prompt = "There was once a king & a <queen> who"
    run(page, prompt, max_tokens=24, seed=5)
    last = int(page.locator(".ns-clock").inner_text().split()[1])
    for number in (last - 1, last - 2):
        page.get_by_role("button", name="One step back", exact=True).click()
        expect(page.locator(".ns-clock")).to_contain_text(f"step {number} of")
    page.locator("#rounds .ns-round:not([hidden]) .ns-chip").nth(6).click()
    kept, link, before, shown = trace(page), copy_link(page), looked_at(page), text(page)
    same = f"The linked run: the same {len(kept.token_ids)} tokens."

    def shows_it() -> None:
        expect(page.locator(NOTE)).to_have_text(same)
        looks_at(page, before)
        assert text(page) == shown

    opened(page, link)
    shows_it()
    assert (
        trace(page).events[:-1] == kept.events[:-1]
    )  # its times, too, so it was not decoded again
    gone = re.sub(r"run=[^&]+", "run=gone", link)
    opened(page, gone)  # the run is no longer kept, so it is decoded once more
    shows_it()
    assert trace(page).token_ids == kept.token_ids
    expect(page.locator("#prompt textarea")).to_have_value(prompt)
    opened(page, f"{link.split('?')[0]}?run=gone")
    expect(page.get_by_test_id("toast-body")).to_contain_text("no longer has the link")
    expect(page.locator(NOTE)).to_be_hidden()
    assert shown_run(page) == "recorded"


def test_a_link_to_the_recorded_run_needs_no_decoding_and_an_opened_trace_sets_the_controls(
    open_page, tmp_path
):
    recorded = Trace.load(SPECULATIVE)
    refused = next(n for n, event in enumerate(recorded) if event.kind == "rejected")
    shown = recorded[refused].step + 2  # rounds: the token's own and one more
    own = recorded[refused].step + 1  # the clock goes to the step of the chosen token
    page = open_page(f"?run=recorded&round={shown}&token={refused}&digest=120-00000000")
    expect(page.locator(".ns-clock")).to_contain_text(f"step {own} of")
    expect(page.locator("#tokens .ns-pinned")).to_have_text(recorded[refused].text)
    expect(page.locator(NOTE)).to_contain_text("These tokens differ from the linked run's")

    events = list(recorded)
    events[0].settings |= {
        "temperature": 0.3,
        "num_draft_tokens": 3,
        "verify_strategy": "block_verification",
        "stop": ["a\nb"],
    }
    events[0].prompt, events[0].seed = "Somebody else's words", 77
    open_trace(page, Trace(events), tmp_path / "theirs.jsonl")
    expect(page.locator("#prompt textarea")).to_have_value("Somebody else's words")
    open_drawer(page)
    expect(page.locator("#seed input")).to_have_value("77")
    expect(page.locator("#temperature input[type=number]")).to_have_value("0.3")
    expect(page.locator("#k input[type=number]")).to_have_value("3")
    expect(page.locator("#strategy input")).to_have_value("Block verification")


def test_embedded_there_is_the_run_or_a_lesson_and_a_link_to_the_whole_page(open_page):
    query, size = "?embed=1&run=recorded&round=2", {"width": 800, "height": 600}
    page = open_page(query, reduced_motion="no-preference", **size)
    expect(page.locator(".ns-clock")).to_contain_text("step 2 of")
    expect(page.locator(".ns-drawing svg > title")).to_have_text("Step 2")
    whole = page.get_by_role("link", name="Open the whole page")
    assert whole.get_attribute("href").endswith("?run=recorded&round=2")
    page.locator("#tokens [data-kind=rejected]").first.click()
    expect(page.locator("#inspector h3")).to_be_visible()
    for rest in (".ns-top", "#prompt", "#run", "[role=tab]", "#charts", "footer"):
        expect(page.locator(rest).filter(visible=True)).to_have_count(0)
    page.goto(page.url.split("?")[0] + "?embed=1&lesson=3&step=1")
    expect(page.locator(".ns-lesson-title")).to_be_visible()
    for rest in (".ns-top", "[role=tab]", ".ns-course", "#tokens", "footer"):
        expect(page.locator(rest).filter(visible=True)).to_have_count(0)


STANDS = """() => !document.getElementById("ns-early") &&
    [...document.querySelectorAll(".ns-plot[style]")].every((place) =>
      place.getBoundingClientRect().top > innerHeight || !place.checkVisibility() ||
      place.getBoundingClientRect().bottom < 0 ||
      place.querySelector("svg"))"""
LINKS = {
    "": "ns-tokens",
    "?run=recorded&round=2": "ns-tokens",
    "?tab=explore": "Every cell of these maps",
    "?lesson=1": "Lesson 1",
    "?lesson=2&step=2": "Lesson 2, step 2",
    "?lesson=6&step=2&path=1": "Lesson 6, step 2",
    "?lesson=3&lecture=1": "Lesson 3",
    "?room=yourself": "Write the next words",
    "?room=doctor": "What does your engine",
    "?embed=1&run=recorded&round=2": "ns-tokens",
    "?embed=1&stage=1": "ns-early-narrow",
    "?embed=1&lesson=10&step=2": "Lesson 10, step 2",
}


@pytest.mark.parametrize("query", LINKS)
def test_the_server_paints_what_a_link_asks_for_and_nothing_moves_once_it_can_be_used(
    server, chromium, query
):
    page = chromium.new_page()
    page.add_init_script(f"({script('shifts')})()")
    for width, height in ((1440, 900), (1024, 768), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        first = page.goto(server.url + query).text().split("<gradio-app")[0]
        assert LINKS[query] in first
        page.wait_for_function(STANDS)
        assert page.evaluate("window.shiftOfAll") < 0.02, (width, page.evaluate("window.moved"))
    page.close()


def selected(page, name: str) -> None:
    expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute(
        "aria-selected", "true"
    )


def go(page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()
    selected(page, name)


ABOVE_THE_BAR = """() => {
    const [picture, bar] = [".ns-drawing svg", ".ns-player"].map((name) =>
      document.querySelector(name).getBoundingClientRect());
    return picture.top >= 0 && picture.bottom <= bar.top &&
      document.querySelector(".ns-drawing").scrollWidth <= innerWidth;
}"""
TYPE = """() => {
    const chip = document.querySelector(".ns-drawing [data-part=draft] text");
    return chip.getBoundingClientRect().height;
}"""


def back_and_forward_lead_to_what_there_is(page):
    """Between tabs and lessons; a link to what there is not is refused by name."""
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
    page.goto(
        start + "?tab=cellar&verify_strategy=mine&prompt=%3Cimg%20src=x%20onerror=window.hit=1%3E"
    )
    toast(page, "the link names tab 'cellar'")
    toast(page, "Verification must be one of .*got 'mine'")
    assert page.evaluate("window.hit") is None


def test_a_setting_of_a_link_that_is_refused_is_marked_in_the_drawer_which_opens(open_page):
    page = open_page("?tree=4x2x1&prompt=Once")
    linked(page, "Once")
    page.locator("#run").click()
    field = page.locator("#tree")
    expect(field).to_contain_text("Token tree must be at most 16 nodes")
    expect(field.locator("textarea, input")).to_be_focused()


def test_lecture_mode_is_led_by_keys_and_back_and_forward_lead_from_tab_to_tab_to_what_there_is(
    page,
):
    size = "() => parseFloat(getComputedStyle(document.querySelector('#tokens')).fontSize)"
    small = page.evaluate(size)
    page.get_by_role("button", name="Lecture", exact=True).click()
    assert page.evaluate(size) > 1.2 * small
    page.set_viewport_size({"width": 1024, "height": 768})
    expect(page.locator("#prompt textarea")).to_be_in_viewport()
    page.locator("#prompt textarea").fill("once upon a time " * 200)
    page.wait_for_function(ABOVE_THE_BAR)
    page.locator("#prompt textarea").blur()
    assert page.locator(".ns-legend").evaluate(
        "(legend) => legend.scrollWidth <= legend.clientWidth"
    )
    expect(page.locator(".ns-hint")).to_contain_text("Page keys: moments")
    page.set_viewport_size({"width": 1440, "height": 900})
    assert "lecture=1" in page.url
    bar = page.locator(".ns-player").bounding_box()
    assert bar["y"] + bar["height"] == page.viewport_size["height"]
    last = int(page.locator(".ns-clock").inner_text().split()[1])
    for key, shown in (
        ("ArrowLeft", last - 1),
        ("ArrowLeft", last - 2),
        ("ArrowRight", last - 1),
        ("Home", 1),
    ):
        page.keyboard.press(key)
        expect(page.locator(".ns-clock")).to_contain_text(f"step {shown} of")
    page.locator(".ns-speed").select_option("1")
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("Space")
    ended(page)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("End")
    expect(page.locator(".ns-clock")).to_contain_text(f"step {last} of")
    page.get_by_role("tab", name="Explore", exact=True).click()
    for name in ("Explore", "Measure batches"):
        page.get_by_role("button", name=name, exact=True).click(trial=True)
    page.get_by_role("tab", name="Run", exact=True).click()
    page.keyboard.press("Alt+Escape")
    assert page.evaluate(size) > small, "with another key it is the system's"
    page.keyboard.press("Escape")
    assert page.evaluate(size) == small
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".ns-clock")).to_contain_text(f"step {last} of")

    back_and_forward_lead_to_what_there_is(page)
