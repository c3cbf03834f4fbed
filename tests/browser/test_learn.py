"""The lessons in the browser: steps set the picture, links restore them, and what is live is
real and turns no controls."""

import re

from playwright.sync_api import Page, expect

from tests.browser.steps import drawn, scrolls_sideways, set_number
from ui.experiments.learn import LESSONS, read_labels, read_steps, titles

CONTROLS = (
    "[...document.querySelectorAll('#k input, #temperature input, #strategy input, #max-tokens"
    " input, #seed input')]"
)


def at(page: Page, lesson: int, step: int = 0) -> None:
    """This step is what is seen, and where the address leads."""
    learn = page.locator("section.ns-learn")
    expect(learn).to_have_attribute("data-lesson", str(lesson))
    expect(learn).to_have_attribute("data-step", str(step))
    expect(learn.locator(".ns-lesson-title")).to_have_text(read_steps(lesson)[step].title)
    expect(page).to_have_url(re.compile(f"lesson={lesson}" + (f"&step={step}$" if step else "$")))


def choose_lesson(page: Page, lesson: int) -> None:
    page.locator(f".ns-course [data-lesson='{lesson}']").click()
    expect(page.locator("section.ns-learn")).to_have_attribute("data-lesson", str(lesson))


PRESS = """(run) => {
    run.click();
    return run.disabled && !document.querySelector("#learn-stop").hidden;
}"""


def go_live(page: Page) -> None:
    """Run the lesson's experiment, and wait until it is over."""
    expect(page.locator("#learn-run")).to_be_enabled()
    assert page.locator("#learn-run").evaluate(PRESS), (
        "it can be stopped at once"
    )  # it may be over before the next look
    expect(page.locator("#learn-stop")).to_be_hidden()
    expect(page.locator(".ns-source")).to_contain_text("Live")


def test_a_link_restores_a_step_and_the_arrow_keys_lead_through_all_lessons(open_page):
    page = open_page("?lesson=3&step=2", shown=".ns-lesson-title")
    expect(page.get_by_role("tab", name="Learn")).to_have_attribute("aria-selected", "true")
    at(page, 3, 2)
    assert page.locator(".ns-picture .ns-lit").evaluate_all(
        "(parts) => parts.map((part) => part.dataset.part)"
    ) == ["p"]
    expect(page.locator(".ns-picture [data-part='die']").first).to_be_hidden()
    expect(page.locator(".ns-told")).to_have_attribute("aria-live", "polite")

    page.keyboard.press("ArrowRight")
    at(page, 3, 3)
    expect(page.locator(".ns-picture [data-part='die']").first).to_be_visible()
    expect(page.locator(".ns-answer")).to_be_hidden()  # nothing was answered
    page.keyboard.press("ArrowLeft")
    at(page, 3, 2)
    page.locator(".ns-choices button").first.click()
    at(page, 3, 3)
    expect(page.locator(".ns-answer")).to_contain_text("Yes, it is possible")
    expect(page.locator(".ns-answer")).to_contain_text("Sometimes")
    expect(page.locator(".ns-next")).to_be_focused()

    page.locator(".ns-dots button").first.click()
    at(page, 3)
    page.locator(".ns-choices button").last.click()
    expect(page.locator(".ns-answer")).to_have_text("The answer comes in step 6.")
    page.locator(".ns-dots button").nth(6).click()
    expect(page.locator(".ns-answer")).to_contain_text("The first question. ✗")
    page.get_by_role("button", name="Copy link", exact=True).locator("visible=true").click()
    expect(page.locator(".ns-lesson-link")).to_have_text(re.compile("Link copied|Not allowed here"))
    page.locator(".ns-dots button").last.click()
    page.locator(".ns-to-answers summary").click()
    expect(page.locator(".ns-to-answers")).to_contain_text("p ÷ q = 0.25")
    page.locator(".ns-dots button").first.click()
    at(page, 3)
    assert (
        page.locator(".ns-picture .ns-unseen").count() > 3
    )  # it opens with the question, not with its answer
    expect(page.locator(".ns-lp-text del")).to_have_css("text-decoration-line", "none")
    page.keyboard.press("ArrowLeft")
    at(page, 2, len(read_steps(2)) - 1)
    page.keyboard.press("ArrowRight")
    at(page, 3)

    for lesson, title in enumerate(titles(), start=1):
        choose_lesson(page, lesson)
        at(page, lesson)
        expect(page.locator(".ns-course [aria-current]")).to_have_text(title)
        if "chart" in read_labels(LESSONS[lesson - 1]):
            page.locator(f"[data-chart='{lesson}'] .main-svg").first.wait_for()
            drawn(page, 1)
    for width, height in ((1024, 768), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        for lesson in (3, 7):
            choose_lesson(page, lesson)
            assert not scrolls_sideways(page)


def test_a_link_leads_through_the_lessons_of_20_minutes_and_past_the_others(open_page):
    page = open_page("?lesson=4&step=99&path=1", shown=".ns-lesson-title")
    expect(page).to_have_url(re.compile("path=1"))
    page.locator(".ns-next").click()
    expect(page.locator("section.ns-learn")).to_have_attribute("data-lesson", "6")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("section.ns-learn")).to_have_attribute("data-lesson", "4")
    choose_lesson(page, 5)  # not on the path, so the path is left
    expect(page).to_have_url(re.compile(r"\?(?!.*path)"))
    page.locator(".ns-path a").click()
    expect(page.locator("section.ns-learn")).to_have_attribute("data-lesson", "1")
    expect(page).to_have_url(re.compile("path=1"))
    choose_lesson(page, 8)
    page.locator(".ns-dots button").last.click()
    expect(page.locator(".ns-next")).to_be_disabled()


BARS = """([chart, condition]) => {
    if (!chart.querySelector(".main-svg")) return false;
    const shown = chart.data[0].y.filter((y) => y !== null).length;
    const marks = [...chart.querySelectorAll(".annotation text")].map((text) => text.textContent)
      .join("");
    return condition === "open" ? shown === 1 && /^[?]{2,}$/.test(marks)
      : shown > 2 && marks === "";
}"""


def bars(page: Page, lesson: int, condition: str) -> None:
    """Of a lesson's chart: `open`, a single bar and question marks at all other places, or
    `measured`, bars and no marks."""
    chart = page.locator(f"[data-chart='{lesson}'] .ns-plot")
    page.wait_for_function(BARS, arg=[chart.element_handle(), condition])


def test_what_is_live_is_another_each_time_can_be_stopped_and_leaves_the_controls_alone(page):
    page.locator("#prompt textarea").fill("")
    set_number(page, "k", 3)
    page.get_by_role("tab", name="Learn").click()
    at(page, 1)
    page.keyboard.press("ArrowRight")
    at(page, 1, 1)  # the tab still has the focus
    page.keyboard.press("PageDown")
    at(page, 1, 2)
    choose_lesson(page, 2)
    page.locator("#learn-run").click()
    expect(page.get_by_test_id("toast-body").first).to_contain_text("prompt is empty")
    expect(page.locator("#learn-run")).to_be_enabled()
    page.get_by_role("tab", name="Run").click()
    page.locator("#prompt textarea").fill("Once upon a time")
    before = page.evaluate(f"{CONTROLS}.map((field) => field.value)")
    page.get_by_role("tab", name="Learn").click()
    go_live(page)
    expect(page.locator("#learn-status")).to_contain_text("tokens in")

    choose_lesson(page, 3)
    guess = page.locator(".ns-picture .ns-lp-text del")
    seen = [guess.inner_text()]
    for _ in range(2):
        go_live(page)
        seen.append(guess.inner_text())
    assert len(set(seen)) == 3
    ratio = page.locator(".ns-picture .ns-die-edge").text_content()
    assert 0.3 <= float(re.findall(r"[\d.]+", ratio)[0]) <= 0.7

    choose_lesson(page, 4)
    page.locator("#learn-run").click()
    expect(page.locator("#learn-status")).to_contain_text("drawn")
    page.locator("#learn-stop").click()
    expect(page.locator("#learn-status")).to_contain_text("Stopped")

    page.locator("#learn-run").click()
    page.get_by_role("tab", name="Run").click()
    expect(page).to_have_url(re.compile("^(?!.*lesson)"))
    assert page.evaluate(f"{CONTROLS}.map((field) => field.value)") == before
    page.get_by_role("tab", name="Learn").click()
    at(page, 4)
    expect(page.locator("#learn-run")).to_be_enabled()  # what is left is stopped

    for lesson in (6, 9):
        choose_lesson(page, lesson)
        bars(page, lesson, "open")
    choose_lesson(page, 1)
    go_live(page)
    # beyond a lesson there is its last step
    page.goto(page.url.split("?")[0] + "?lesson=9&step=99")
    at(page, 9, len(read_steps(9)) - 1)
    bars(page, 9, "measured")
    choose_lesson(page, 6)
    page.locator(".ns-dots button").last.click()
    bars(page, 6, "measured")
