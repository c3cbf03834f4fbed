"""The machine: one step as a drawing, held at any moment of one time line; its columns, which have
names and answer; and the race below it, whose axis is time."""

import random

import pytest
from playwright.sync_api import Page, expect

from naive_speculate.events import EventKind
from naive_speculate.events.steps import Step, steps
from naive_speculate.events.trace import Trace
from naive_speculate.text import visible
from naive_speculate.tools.show.columns import LONGEST
from naive_speculate.tools.show.drawing import rounded
from tests.browser.steps import TWO_FRAMES, ended, press, run, scrub, trace
from ui.run.recorded import PLAIN, SPECULATIVE

STEP = 4400
ENDS = (1000, 1800, 3200, 3700, STEP)
TICKS = ("draft", "target pass", "verdicts", "its token", "text")
PHASES = [
    {"draft", "q"},
    {"draft", "q", "pass", "p"},
    {"draft", "q", "pass", "p", "verdict"},
    {"draft", "q", "pass", "p", "verdict", "gain"},
    {"draft", "q", "pass", "p", "verdict", "gain", "count"},
]
"""The parts that are there at the end of each phase."""
SHOWN = """(where) => ["draft", "q", "pass", "p", "verdict", "gain", "count"].filter((name) => {
    const parts = [...document.querySelectorAll(`${where} [data-part=${name}]`)];
    return parts.length && parts.every((part) => getComputedStyle(part).opacity === "1");
})"""
IN_LESSON = f"(there) => ({SHOWN})('.ns-picture svg').join() === there.join()"
MOVED = """() => [...new Set(document.querySelector(".ns-drawing").getAnimations({ subtree: true })
    .flatMap(({ effect }) => effect.getKeyframes()).flatMap(Object.keys))]
    .filter((name) => !["offset", "computedOffset", "easing", "composite"].includes(name))"""
"""The properties that change. Of the others, even `scale`, the compositor can move none in an
SVG."""
MOMENT = """() => {
    const text = (selector) => document.querySelector(selector)?.textContent ?? "";
    const slider = document.querySelector(".ns-slider");
    return [text(".ns-clock"), text(".ns-drawing svg > title"), Number(slider.value),
      slider.ariaValueText, document.querySelector("[data-phase][aria-pressed=true]")?.textContent];
}"""
LENGTHS = """() => [...document.querySelectorAll(".ns-lane")].map((lane) => {
    const track = lane.querySelector(".ns-track");
    const right = track.querySelector("rect:last-child").getBoundingClientRect().right;
    return (right - track.getBoundingClientRect().left) / track.clientWidth;
})"""


def named(step: int, phase: int, of: int) -> str:
    return f"step {step} of {of} · {TICKS[phase]}"


def names(step: Step, phase: int) -> list[str]:
    """What a screen reader says of each column with a draft token, from the trace alone."""
    found = []
    for draft in step.drafts:
        verdict, said = step.verdict(draft.index), [f"q {rounded(draft.draft_prob, 3)}"]
        if phase > 0:
            said.append(f"p {rounded(draft.target_prob, 3)}")
        if phase > 1 and verdict.kind != EventKind.DISCARDED:
            said.append(f"u {rounded(verdict.uniform, 3)}")
        if phase > 1:
            said.append(verdict.kind)
        if phase > 2 and verdict.kind == EventKind.REJECTED:
            said.append(f"resampled {visible(step.added.text, LONGEST)}")
        found.append(f"{visible(draft.text, LONGEST)}: {', '.join(said)}")
    return found


def test_page_keys_walk_through_all_moments_which_clock_slider_and_columns_name(page):
    every = list(steps(Trace.load(SPECULATIVE)))
    press(page, "To the start")
    page.locator(".ns-play").focus()
    for step in every:
        for phase, there in enumerate(PHASES):
            page.keyboard.press("PageDown")
            expect(page.locator(".ns-clock")).to_have_text(
                named(step.number + 1, phase, len(every))
            )
            expect(page.locator(".ns-drawing svg > title")).to_have_text(f"Step {step.number + 1}")
            drawing = page.get_by_role("group", name="The step as a drawing")
            for name in names(step, phase):
                expect(drawing.get_by_role("button", name=name, exact=True).first).to_be_visible()
            assert set(page.evaluate(SHOWN, ".ns-drawing")) == there
            clock, _, at, spoken, pressed = page.evaluate(MOMENT)
            assert (at, spoken, pressed) == (step.number * STEP + ENDS[phase], clock, TICKS[phase])
    assert set(page.evaluate(MOVED)) == {"opacity", "transform"}
    for phase in (3, 2, 1, 0):
        page.keyboard.press("PageUp")
        expect(page.locator(".ns-clock")).to_have_text(named(len(every), phase, len(every)))
    page.keyboard.press("PageUp")
    expect(page.locator(".ns-clock")).to_have_text(named(len(every) - 1, 4, len(every)))


def moment(at: float) -> tuple[int, int]:
    """The step, from 1, and the phase at a time of the time line."""
    step = max(0, -int(-at // STEP) - 1)
    return step + 1, next(n for n, end in enumerate(ENDS) if at - step * STEP <= end)


def agree(page: Page) -> float:
    """Clock, drawing, slider and ticks name the same moment, which is returned."""
    page.evaluate(TWO_FRAMES)
    clock, title, at, spoken, pressed = page.evaluate(MOMENT)
    step = int(clock.split()[1])
    assert clock == spoken
    assert (step, TICKS.index(clock.split(" · ")[1])) in {
        moment(max(0, at + off))
        for off in (-10, 0, 10)  # the slider has steps of 20
    }
    assert pressed in (clock.split(" · ")[1], None)
    assert title in ("", f"Step {step}"), "no other step stands in its place"
    return at


def test_clock_drawing_and_slider_agree_wherever_a_run_is_held_and_it_goes_on_from_there(open_page):
    page = open_page(reduced_motion="no-preference")
    page.locator(".ns-play[data-going=true]").wait_for()  # it loops
    page.wait_for_function("() => document.querySelector('.ns-slider').value > 1500")
    page.locator(".ns-play").press("Space")
    expect(page.locator(".ns-play")).to_have_attribute("data-going", "false")
    assert agree(page) >= 1500
    draw, last = random.Random(7), float(page.locator(".ns-slider").get_attribute("max"))
    for at in [0, last, *(draw.uniform(1, last - 800) for _ in range(5))]:
        scrub(page, at)
        assert abs(agree(page) - at) <= 20
        if 0 < at < last:
            page.locator(".ns-play").click()
            page.wait_for_function(
                "(at) => document.querySelector('.ns-slider').value > at + 60", arg=at
            )
            page.locator(".ns-play").click()
            assert at + 60 < agree(page) < at + 4 * STEP, "it did not begin again"
    press(page, "One step back")
    page.wait_for_function(
        "() => document.querySelector('.ns-slider').value % 4400 === 0 &&"
        " document.querySelector('.ns-play').dataset.going === 'false'"
    )
    assert agree(page) % STEP == 0, "a step is played to its end"


PLAYED = """async (events) => {
    const { Player } = await import("/player.js");
    const [player, yes] = [new Player(), () => true];
    player.add(events);
    const passed = (ms, ready = yes) => {
      const before = player.at;
      player.advance(ms, ready);
      return player.at - before;
    };
    player.hold(200);
    player.play();
    const found = { usual: passed(100) };
    player.speed = 1;
    found.faster = passed(100);
    player.hold();
    found.held = passed(100);
    player.play();
    found.went_on = passed(100);
    player.hold(4400 - 100);
    player.play();
    passed(10_000, () => false);
    found.not_ready = player.at;
    player.rounds = false;
    found.true_speed = passed(1000 * (events.findLast(({ kind }) => kind === "step").time), yes);
    return found;
}"""


def test_a_speed_acts_at_once_and_no_step_begins_before_its_drawing_is_there(scripts):
    trace = Trace.load(SPECULATIVE)
    found = scripts.evaluate(PLAYED, [event.to_dict() for event in trace])
    whole = trace.metrics.num_spec_steps * STEP
    assert found == {
        "usual": pytest.approx(0.23 * 440),
        "faster": pytest.approx(440),
        "held": 0,
        "went_on": pytest.approx(440),
        "not_ready": STEP,
        "true_speed": pytest.approx(whole - STEP),
    }


def test_a_column_opens_both_distributions_and_arrow_keys_lead_from_one_to_the_next(page):
    step = next(s for s in steps(Trace.load(SPECULATIVE)) if s.rejected and s.rejected.index)
    scrub(page, (step.number + 1) * STEP)
    expect(page.locator(".ns-drawing svg > title")).to_have_text(f"Step {step.number + 1}")
    columns, panel = page.locator(".ns-column"), page.locator(".ns-both")
    expect(panel).to_be_hidden()
    columns.first.focus()
    for n, name in enumerate(names(step, 4)):
        focused = page.locator(":focus")
        expect(focused).to_have_attribute("aria-label", name)
        expect(panel).to_be_visible()
        draft, verdict = step.drafts[n], step.verdict(n)
        own = panel.locator("[data-mark=own] > span")
        expect(own.nth(2)).to_have_text(rounded(draft.draft_prob, 3))
        expect(own.nth(3)).to_have_text(rounded(draft.target_prob, 3))
        shaded = panel.locator(".ns-both-p b").count()
        assert (shaded > 0) == (verdict.kind == EventKind.REJECTED)
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    page.locator(":focus").blur()
    columns.nth(step.rejected.index).hover()
    expect(panel).to_contain_text("max(0, p − q)")
    page.mouse.move(0, 0)
    expect(panel).to_be_hidden()
    columns.first.focus()
    page.keyboard.press("Enter")
    token = page.locator(f"#tokens [data-step='{step.number}'][data-index='0']").first
    expect(token).to_have_class("ns-token ns-pinned")
    expect(page.locator(".ns-column.ns-looked")).to_have_attribute("data-index", "0")


def outcome(page: Page) -> list[str]:
    """The text that the step gives, and the tokens below its columns."""
    gains = page.locator(".ns-drawing [data-part=gain] text:first-of-type")
    shown = page.locator(".ns-drawing [data-part=after]").text_content()
    return [shown, *gains.all_text_contents()]


def test_another_u_is_judged_by_the_step_s_own_numbers_and_let_go_it_returns(page):
    run(page, "Once upon a time there was", max_tokens=40, seed=5, k=4)
    step = next(s for s in steps(trace(page)) if s.rejected and s.rejected.accept_prob > 0.05)
    scrub(page, (step.number + 1) * STEP)
    expect(page.locator(".ns-drawing svg > title")).to_have_text(f"Step {step.number + 1}")
    before, at, rejected = outcome(page), step.rejected.index, step.rejected
    bar = page.locator(f".ns-u[data-index='{at}']")
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] * rejected.uniform, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * rejected.accept_prob / 2, box["y"] + 5, steps=4)
    accepted = at + 1
    while accepted < len(step.drafts):  # the later draws were made, too
        verdict = step.verdict(accepted)
        if verdict.uniform >= min(1, verdict.target_prob / verdict.draft_prob):
            break
        accepted += 1
    expect(page.locator(".ns-caption")).to_contain_text("would be accepted")
    expect(page.locator(".ns-caption")).to_contain_text(f"{accepted + 1} token")
    said = page.locator(".ns-drawing .ns-if text").all_text_contents()
    assert [text for text in said if text.endswith("✓")] == [
        f"{visible(draft.text, LONGEST)} ✓" for draft in step.drafts[:accepted]
    ]
    added = "".join(draft.text for draft in step.drafts[:accepted])
    assert added in page.locator(".ns-drawing [data-part=after]").text_content()
    page.mouse.up()
    expect(page.locator(".ns-drawing .ns-if")).to_have_count(0)
    expect(page.locator(".ns-drawing .ns-otherwise")).to_have_count(0)
    assert outcome(page) == before
    page.locator(".ns-column").nth(at).focus()
    for _ in range(10):
        page.keyboard.press("Shift+ArrowDown")
    expect(page.locator(".ns-caption")).to_contain_text("What if u were 0.000?")
    page.keyboard.press("Escape")
    expect(page.locator(".ns-caption")).not_to_contain_text("What if")
    assert outcome(page) == before
    run(page, "Once upon a time there was", max_tokens=12, temperature=0)
    scrub(page, STEP)
    expect(page.locator(".ns-drawing svg > title")).to_have_text("Step 1")
    expect(page.locator(".ns-drawing [data-part=legend]")).to_contain_text("no draw")
    expect(page.locator(".ns-u")).to_have_count(0)
    page.locator("[data-phase='2']").click()
    expect(page.locator(".ns-caption")).to_contain_text("there is no u to drag")


def test_offline_no_other_step_is_drawn_and_the_right_one_is_once_online(page):
    run(page, "Once upon a time there was an old man who", max_tokens=200, k=2)
    amount, draw = trace(page).metrics.num_spec_steps, random.Random(3)
    for _ in range(5):
        step = draw.randrange(amount)
        scrub(page, step * STEP + 1)
        agree(page)
        page.context.set_offline(True)
        far = draw.randrange(amount)
        scrub(page, far * STEP + draw.choice(ENDS))
        expect(page.locator(".ns-clock")).to_contain_text(f"step {far + 1} of")
        agree(page)
        if not page.locator(".ns-drawing svg").count():
            expect(page.locator(".ns-caption")).to_contain_text("There is no connection")
        page.context.set_offline(False)
        expect(page.locator(".ns-drawing svg > title")).to_have_text(f"Step {far + 1}")
        expect(page.locator(".ns-caption")).not_to_contain_text("connection")
        agree(page)


def test_in_lecture_mode_the_moment_after_the_last_is_the_race_and_it_is_in_sight(open_page):
    page = open_page("?lecture=1", width=1024, height=768)
    page.locator(".ns-race[data-state=done]").wait_for()
    ended(page)
    result = page.locator(".ns-result b")
    page.locator("body").press("PageUp")
    expect(page.locator(".ns-phases")).to_be_in_viewport(ratio=1)
    for _ in range(2):
        page.locator("body").press("PageDown")
    expect(result).to_be_in_viewport(ratio=1)
    below = result.evaluate(
        "(b) => document.querySelector('.ns-player').getBoundingClientRect().top"
        " - b.getBoundingClientRect().bottom"
    )
    assert below > 0, "the replay bar does not cover it"
    expect(page.locator("[data-phase='5']")).to_have_attribute("aria-pressed", "true")
    page.locator("body").press("PageUp")
    expect(page.locator("[data-phase='4']")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".ns-phases")).to_be_in_viewport(ratio=1)


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
