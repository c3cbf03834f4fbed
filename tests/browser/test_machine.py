"""The machine: one step as a drawing, whose parts move in the order in which they happened; and the
race below it, whose axis is time."""

import pytest
from playwright.sync_api import Page, expect

from naive_speculate.events.trace import Trace
from tests.browser.steps import ended, press
from ui.run.recorded import PLAIN, SPECULATIVE

PHASES = [
    {"draft", "q"},
    {"draft", "q", "pass", "p"},
    {"draft", "q", "pass", "p", "verdict"},
    {"draft", "q", "pass", "p", "verdict", "gain"},
    {"draft", "q", "pass", "p", "verdict", "gain", "count"},
]
"""The parts that are there at the end of each phase."""
IN_LESSON = """(there) => {
    const parts = (name) => [...document.querySelectorAll(`.ns-picture svg [data-part=${name}]`)];
    const names = ["draft", "q", "pass", "p", "verdict", "gain", "count"];
    const shown = names.filter((name) => parts(name).length &&
      parts(name).every((part) => getComputedStyle(part).opacity === "1"));
    return shown.join() === there.join();
}"""
THERE = """() => ["draft", "q", "pass", "p", "verdict", "gain", "count"].filter((name) =>
    [...document.querySelectorAll(`.ns-drawing [data-part=${name}]`)]
      .every((part) => getComputedStyle(part).opacity === "1"))"""
MOVES = """() => document.querySelector(".ns-drawing").getAnimations({ subtree: true })
    .some(({ playState }) => playState === "running")"""
MOVED = """() => [...new Set(document.querySelector(".ns-drawing").getAnimations({ subtree: true })
    .flatMap(({ effect }) => effect.getKeyframes()).flatMap(Object.keys))]
    .filter((name) => !["offset", "computedOffset", "easing", "composite"].includes(name))"""
"""The properties that change. Of the others, even `scale`, the compositor can move none in an
SVG."""
HURRY = """() => {
    const drawing = document.querySelector(".ns-drawing");
    for (const move of drawing.getAnimations({ subtree: true })) move.finish();
}"""
LENGTHS = """() => [...document.querySelectorAll(".ns-lane")].map((lane) => {
    const track = lane.querySelector(".ns-track");
    const right = track.querySelector("rect:last-child").getBoundingClientRect().right;
    return (right - track.getBoundingClientRect().left) / track.clientWidth;
})"""


def shows(page: Page, step: int) -> None:
    """The machine shows the step of this number, counted from 1."""
    expect(page.locator(".ns-drawing title")).to_have_text(f"Step {step}")


def test_without_motion_buttons_show_the_end_of_each_phase_and_a_column_explains_its_token(page):
    ended(page)
    last = Trace.load(SPECULATIVE).metrics.num_spec_steps
    shows(page, last)
    press(page, "One step back")
    shows(page, last - 1)
    for number, there in enumerate(PHASES):
        phase = page.locator(f"[data-phase='{number}']")
        phase.click()
        expect(phase).to_have_attribute("aria-pressed", "true")
        assert set(page.evaluate(THERE)) == there
    press(page, "To the start")
    shows(page, 1)
    assert page.evaluate(THERE) == []
    assert set(page.evaluate(MOVED)) == {"opacity", "transform"}
    page.locator("#tokens [data-kind=accepted]").first.wait_for(state="hidden")
    press(page, "To the end")
    shows(page, last)
    page.locator(".ns-column[data-index='0']").click()
    token = page.locator(f"#tokens [data-step='{last - 1}'][data-index='0']").first
    expect(token).to_have_class("ns-token ns-pinned")
    expect(page.locator("#inspector h3")).to_contain_text(token.text_content().strip())
    expect(page.locator(".ns-column.ns-looked")).to_have_attribute("data-index", "0")


def slider_is_at(page: Page, step: int) -> None:
    """At the end of the step of this number, which the clock names."""
    ends = [n + 1 for n, event in enumerate(Trace.load(SPECULATIVE)) if event.kind == "step"]
    expect(page.locator(".ns-slider")).to_have_value(str(ends[step - 1]))
    expect(page.locator(".ns-clock")).to_contain_text(f"step {step} of")


def test_it_loops_over_the_steps_until_touched_and_then_each_button_plays_its_step(open_page):
    page = open_page(reduced_motion="no-preference")
    shows(page, 1)
    page.wait_for_function(MOVES)
    slider_is_at(page, 1)
    page.evaluate(HURRY)
    shows(page, 2)
    slider_is_at(page, 2)
    page.get_by_role("tab", name="Explore", exact=True).click()
    page.evaluate(HURRY)
    page.get_by_role("tab", name="Run", exact=True).click()
    shows(page, 3)
    replay = page.get_by_role("group", name="Replay")
    replay.get_by_role("button", name="Pause", exact=True).click()
    expect(replay.get_by_role("button", name="Play", exact=True)).to_be_visible()
    assert not page.evaluate(MOVES)
    slider_is_at(page, 3)
    press(page, "One step forward")
    shows(page, 4)
    slider_is_at(page, 4)
    press(page, "One step back")
    shows(page, 3)
    page.wait_for_function(MOVES)
    page.evaluate(HURRY)
    page.wait_for_function(f"() => !({MOVES})()")
    assert set(page.evaluate(THERE)) == PHASES[-1]
    slider_is_at(page, 3)
    press(page, "Play")
    shows(page, 4)
    expect(page.locator(".ns-clock")).to_contain_text("step 4 of")
    press(page, "To the start")
    expect(replay.get_by_role("button", name="Play", exact=True)).to_be_visible()


def test_the_bars_of_the_race_are_as_long_as_their_times_at_every_width(open_page):
    page = open_page()
    page.locator(".ns-race[data-state=done]").wait_for()
    plain, drafts = (Trace.load(path)[-1].time for path in (PLAIN, SPECULATIVE))
    wanted = [time / max(plain, drafts) for time in (plain, drafts)]
    for width, height in ((1440, 900), (1024, 768), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(LENGTHS) == pytest.approx(wanted, abs=0.01)
        result = page.locator(".ns-result b")
        expect(result).to_contain_text(f"{drafts:.2f} s")
        box = result.bounding_box()
        assert box["x"] + box["width"] <= width


@pytest.mark.parametrize(("width", "motion"), [(1440, "no-preference"), (390, "reduce")])
def test_lesson_2_moves_the_stages_drawing_on_from_step_to_step(open_page, width, motion):
    size = {"width": width, "height": 844}
    page = open_page("?lesson=2&step=1", ".ns-lesson-title", reduced_motion=motion, **size)
    picture = page.locator(".ns-picture svg[data-layout]")
    expect(picture).to_have_attribute("data-layout", "narrow" if width < 500 else "lesson")
    expect(picture).to_have_count(1)
    for there in ([], ["draft", "q"], ["draft", "q", "pass", "p"]):
        page.wait_for_function(IN_LESSON, arg=there)
        page.locator(".ns-next").click()
    page.locator(".ns-next").click()
    page.wait_for_function(IN_LESSON, arg=["draft", "q", "pass", "p", "verdict", "gain", "count"])
    page.locator("[data-go='-1']").click()
    page.locator("[data-go='-1']").click()
    page.wait_for_function(IN_LESSON, arg=["draft", "q", "pass", "p"])
