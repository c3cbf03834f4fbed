"""Reading a run: pointing, the inspector, the keyboard, stop strings, warnings, clean text, and
that all of it is in sight."""

from io import BytesIO

import pytest
from PIL import Image, ImageStat
from playwright.sync_api import Page, expect

from naive_speculate import Trace
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.tools.show.palette import STYLES
from tests.browser.steps import (
    TIP,
    becomes,
    ended,
    go_to,
    open_drawer,
    open_trace,
    press,
    run,
    script,
    set_number,
    shown_run,
    text,
    trace,
)
from tests.ui.handmade import step_of, token
from ui.run.recorded import SPECULATIVE

PROMPT = "Once upon a time there was a hen"
AHEAD = script("ahead")


def headline(page: Page):
    return page.locator("#why .inspector-headline")


def choose(page: Page, rule: str) -> None:
    open_drawer(page)
    page.locator("#strategy input").click()
    page.get_by_role("option", name=rule).click()


def _says_which_stop_string_ended_it(page: Page) -> None:
    page.keyboard.press("Escape")
    run(page, PROMPT, max_tokens=30, seed=3, k=4)
    expect(page.locator(".ns-ending")).to_have_text("Ended at the limit of 30 tokens.")
    whole, at = trace(page), 0
    for event in whole:  # a stop string that begins within a drafted word
        stop = (event.text or "")[3:]
        if event.kind == "accepted" and stop and whole.text.find(stop) == at + 3:
            break
        at += len(event.text or "") if event.kind in ("accepted", "resampled", "bonus") else 0
    open_drawer(page)
    page.get_by_label("Stop strings").fill(stop)
    run(page, PROMPT)
    cut = trace(page)
    assert whole.text.startswith(cut.text)
    assert stop not in cut.text
    assert text(page) == cut.text
    expect(page.locator(".ns-ending")).to_have_text(
        f"Ended by the stop string “{stop}”, which is not part of the text."
    )
    assert page.locator(".ns-clean span").last.text_content() == cut.text  # shown with how it ended
    page.get_by_label("Stop strings").fill("")


def _says_what_it_is_no_sample_of(page: Page) -> None:
    expect(page.locator(".ns-warning")).to_be_hidden()
    choose(page, "Typical acceptance")
    run(page, PROMPT, max_tokens=12)
    expect(page.locator(".ns-warning")).to_contain_text("Not the target's distribution")
    choose(page, "Greedy match")
    run(page, PROMPT)
    expect(page.locator(".ns-warning")).to_contain_text(
        "Not the target's distribution at temperature 0.7"
    )
    set_number(page, "temperature", 0)
    run(page, PROMPT)
    expect(page.locator(".ns-warning")).to_be_hidden()
    run(page, PROMPT, k=0)
    expect(page.locator(".ns-legend [data-kind=bonus]")).to_contain_text("from the target")
    page.locator("#tokens [data-kind=bonus]").last.click()
    expect(headline(page)).to_contain_text("from the target")


def test_the_inspector_is_never_ahead_of_playback_and_a_run_says_how_it_ended(
    page,
):
    page.evaluate(AHEAD)
    page.locator("#tokens del").last.click()
    recorded = Trace.load(SPECULATIVE)
    judged = next(n for n, event in enumerate(recorded) if event.kind == "rejected")
    go_to(page, judged)
    expect(headline(page)).not_to_have_attribute("data-kind", "rejected")
    go_to(page, judged + 1)
    expect(headline(page)).to_have_attribute("data-kind", "rejected")
    expect(page.locator(".ns-why")).to_have_attribute("data-event", str(judged))
    expect(page.locator("#why .inspector-details")).to_contain_text(
        f"{recorded[judged].uniform:.6g}"
    )
    bar = page.locator("#why .ns-die-bar")
    green = bar.evaluate("(bar) => bar.querySelector('.ns-die-keep').offsetWidth / bar.offsetWidth")
    needle = bar.evaluate(
        "(bar) => (bar.querySelector('.ns-die-needle').offsetLeft + 2) / bar.offsetWidth"
    )
    assert abs(green - recorded[judged].accept_prob) < 0.02
    assert abs(needle - recorded[judged].uniform) < 0.02
    press(page, "To the end")
    ended(page)
    page.locator("#tokens del").last.click()
    chosen = int(page.locator(".ns-why").get_attribute("data-event"))
    expect(page.locator("#why .inspector-details")).to_contain_text(
        f"{recorded[chosen].uniform:.6g}"
    )
    go_to(page, chosen)
    expect(headline(page)).to_have_attribute("data-kind", "proposed")
    expect(page.locator("#why .inspector-why")).to_contain_text("has not judged it yet")
    expect(page.locator("#why .inspector-details")).not_to_contain_text("target probability")
    press(page, "To the start")
    expect(page.locator(".inspector-hint")).to_be_visible()
    expect(page.locator(".ns-why")).to_be_hidden()
    run(page, PROMPT, max_tokens=12, k=3, seed=2)
    expect(page.locator(".ns-why")).to_have_attribute("data-run", shown_run(page))
    expect(page.locator("#why .ns-why")).to_have_class("ns-why")
    assert page.evaluate("window.ahead") == []
    _says_which_stop_string_ended_it(page)
    _says_what_it_is_no_sample_of(page)


IN_SIGHT = """(places) => places.every((place) => {
    const { top, bottom, height } = document.querySelector(place).getBoundingClientRect();
    return height > 0 && top >= 0 && bottom <= innerHeight;
})"""


WHOLE_LABELS = """(dials) => [...dials.querySelectorAll("[data-testid=block-info]")].every(
  (label) => {
    const right = (node) => node.getBoundingClientRect().right;
    return right(label) <= right(label.parentElement.querySelector("input"));
})"""


def in_sight(page: Page, *places: str) -> bool:
    """Whether these places lie within what is seen."""
    return becomes(page, IN_SIGHT, list(places))


def what_matters_is_in_sight(page: Page) -> None:
    """Prompt, settings, machine and player, and the player where it was, on a screen of this
    size."""
    page.evaluate("scrollTo(0, 0)")
    assert in_sight(
        page, "#prompt", "#run", "#k input", "#temperature input", ".ns-drawing", ".ns-player"
    )
    page.locator("#tokens del").first.click()
    assert in_sight(page, "#tokens .ns-pinned", ".ns-die", ".inspector-why p")
    press(page, "To the end")
    before = page.locator(".ns-player").bounding_box()
    press(page, "To the start")
    expect(page.locator(".inspector-hint")).to_be_visible()
    assert page.locator(".ns-player").bounding_box() == before
    press(page, "To the end")
    expect(page.locator(".ns-why")).to_be_visible()
    page.keyboard.press("Escape")


def a_phone_shows_it_too(page: Page) -> None:
    """On a phone, which scrolls by itself, and whose settings and inspector open over the text."""
    page.set_viewport_size({"width": 390, "height": 844})
    run(page, PROMPT)
    assert in_sight(page, ".ns-drawing", ".ns-player", "#run", ".ns-settings-open"), (
        "a phone scrolls by itself"
    )
    expect(page.locator("#inspector")).to_be_hidden()
    expect(page.locator("#k input").first).to_be_hidden()
    page.locator(".ns-settings-open").click()
    assert in_sight(page, "#k input", "#temperature input")
    page.locator(".ns-settings-open").click()
    page.locator("#tokens del").first.click()
    assert in_sight(page, ".ns-die", ".inspector-why p")
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator("#inspector")).to_be_hidden()


def test_the_text_is_there_by_itself_and_all_that_matters_is_in_sight(page, tmp_path):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    recorded = Trace.load(SPECULATIVE)
    clean, whole = page.locator(".ns-clean"), recorded.started.prompt + recorded.text
    expect(clean).to_have_text(whole, use_inner_text=False)
    assert page.evaluate(
        "!!(document.querySelector('.ns-clean').compareDocumentPosition("
        "document.querySelector('#tokens')) & 4)"
    )
    assert (
        page.locator("#tokens del").count()
        == page.locator("#tokens [data-kind=rejected]").count()
        > 0
    )
    thrown = page.locator("#tokens [data-kind=discarded]")
    assert (
        thrown.count()
        == page.locator("#tokens [data-kind=discarded][aria-hidden=true]").count()
        > 0
    )
    assert page.locator("#tokens :not([data-kind=discarded])[aria-hidden]").count() == 0
    page.get_by_role("switch", name="Clean text").click()
    expect(page.locator("#tokens")).to_be_hidden()
    assert clean.bounding_box()["height"] > 100
    page.get_by_role("button", name="Copy text").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == whole
    page.get_by_role("switch", name="Clean text").click()

    for size in ({"width": 1440, "height": 900}, {"width": 1024, "height": 768}):
        page.set_viewport_size(size)
        what_matters_is_in_sight(page)
    page.set_viewport_size({"width": 720, "height": 450})  # 1440 at 200%
    page.evaluate("scrollTo(0, 0)")
    assert in_sight(page, "#prompt", "#run", "#k input", "#temperature input", "#more")
    assert page.locator(".ns-dials").evaluate(WHOLE_LABELS)
    a_phone_shows_it_too(page)

    page.set_viewport_size({"width": 1440, "height": 900})
    page.locator("#stats a[href='#term-acceptance-rate']").click()
    expect(page.locator("#term-acceptance-rate")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Glossary")).to_be_hidden()
    expect(page.locator("#models")).to_contain_text("million parameters")
    lines = ["def f():", "\n", " ", " ", " return", " 1"]
    code = step_of(*(token("bonus", piece, place) for place, piece in enumerate(lines)))
    for number, event in enumerate(code):
        event.step = number
    code[0].prompt, code[0].prompt_token_ids, code[0].prompt_texts = "", [], []
    open_trace(page, code, tmp_path / "code.jsonl")
    spaces = (
        "(all) => all.filter((node) => /^ +$/.test(node.textContent)).map((node) =>"
        " node.offsetWidth)"
    )
    assert all(page.locator("#tokens .ns-token").evaluate_all(spaces)), (
        "spaces that indent have a width"
    )
    assert page.locator("#tokens .ns-token").evaluate_all(spaces)


def focused(page) -> dict[str, str]:
    return page.evaluate("({ ...document.activeElement.dataset })")


SEEN = 12
"""Of 255: how far from its ground a shade is that eyes see."""


def shades(page: Page, box: str) -> tuple[bool, bool]:
    """Whether a shade lies at the upper and at the lower edge of a box, looked for where no
    words are."""
    place = page.locator(box).bounding_box()
    left, top, height = place["x"] + 4, place["y"], place["height"]
    clip = {"x": left, "y": top, "width": 4, "height": height}
    picture = Image.open(BytesIO(page.screenshot(clip=clip))).convert("L")
    middle = height / 2

    def light(low: float) -> float:
        return ImageStat.Stat(picture.crop((0, round(low), picture.width, round(low) + 4))).mean[0]

    ground = light(middle)
    return abs(light(3) - ground) > SEEN, abs(light(height - 7) - ground) > SEEN


def boxes_show_on_which_side_there_is_more(page: Page) -> None:
    for theme, width, height in (("light", 600, 700), ("dark", 390, 844)):
        page.emulate_media(color_scheme=theme)
        page.evaluate("(dark) => document.body.classList.toggle('dark', dark)", theme == "dark")
        page.set_viewport_size({"width": width, "height": height})
        for box in ("#tokens", ".ns-clean"):
            if box == ".ns-clean":
                page.locator("[data-act=clean]").click()
            page.locator(box).evaluate(
                "(box) => box.scrollIntoView({ block: 'center' })"
            )  # all of it, to the last pixel
            most = page.locator(box).evaluate("(box) => box.scrollHeight - box.clientHeight")
            assert most > 60
            for at, expected in (
                (0, (False, True)),
                (most / 2, (True, True)),
                (most, (True, False)),
            ):
                page.locator(box).evaluate("(box, at) => { box.scrollTop = at; }", at)
                assert shades(page, box) == expected, (theme, box, at)
        page.locator("[data-act=clean]").click()
    page.emulate_media(color_scheme="light")
    page.evaluate("document.body.classList.remove('dark')")
    page.set_viewport_size({"width": 1440, "height": 900})


SELECT = """name => {
    const box = document.querySelector(name), range = document.createRange();
    range.selectNodeContents(box);
    document.getSelection().removeAllRanges();
    document.getSelection().addRange(range);
}"""


def test_what_is_selected_in_the_coloured_text_is_copied_as_the_text_and_a_button_copies_all_tokens(
    page,
):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    recorded = Trace.load(SPECULATIVE)
    whole = recorded.started.prompt + recorded.text
    expect(page.locator(".ns-clean")).to_have_text(whole, use_inner_text=False)
    page.evaluate(SELECT, "#tokens")
    page.keyboard.press("ControlOrMeta+c")
    assert page.evaluate("navigator.clipboard.readText()") == whole
    page.get_by_role("button", name="Copy with marks").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    marked = page.evaluate("navigator.clipboard.readText()")
    tokens = [event for event in recorded if event.kind in STYLES and event.kind != "proposed"]
    for event in tokens:
        text = event.text if event.kind in OUTPUT_KINDS else event.text.replace("\n", "⏎")
        assert STYLES[event.kind].mark + text in marked
    assert marked.count(STYLES["rejected"].mark) == 1 + len(
        [event for event in tokens if event.kind == "rejected"]
    )


def keys_lead_through_tokens_and_to_a_run(page):
    """Arrow keys move between tokens; Tab reaches the button, which starts a run."""
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


def test_boxes_show_that_there_is_more_and_a_token_explains_itself_to_pointer_and_keyboard(
    page,
):
    boxes_show_on_which_side_there_is_more(page)
    expect(page.locator("#inspector")).to_be_hidden()
    page.locator("#tokens [data-kind=rejected]").first.hover()
    tip = page.locator(TIP)
    expect(tip).to_be_visible()
    for words in (
        "rejected",
        "draft probability",
        "target probability",
        "acceptance probability",
        "draw",
    ):
        expect(tip).to_contain_text(words)
    expect(page.locator("#rounds .ns-linked")).to_have_count(1)
    page.locator("#tokens [data-kind=resampled]").nth(1).click()
    expect(page.locator("#inspector h3")).to_contain_text("resampled")
    expect(tip).to_be_hidden()  # it would cover the explanation
    expect(page.locator("#inspector h3")).to_have_attribute("data-kind", "resampled")
    expect(page.locator(".ns-pinned")).to_have_count(2)
    expect(page.locator(".ns-machine .ns-looked")).to_have_count(1)
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

    keys_lead_through_tokens_and_to_a_run(page)


PROMPT_PARTS = """async (started) => {
    const { Flow, PlainText } = await import("/tokens.js");
    document.body.innerHTML = `<section><div id="tokens"></div>
      <div class="ns-clean"><span></span><span></span></div><button data-act="clean"></button>
      <button data-act="copy"></button><button data-act="copy-marks"></button></section>`;
    const root = document.querySelector("section");
    new Flow(root.querySelector("#tokens")).prompt(started);
    new PlainText(root).draw("An answer", started);
    const parts = [...root.querySelectorAll(".ns-token")];
    return [parts.filter(({ dataset }) => dataset.template === undefined).map((n) => n.textContent),
      root.querySelector(".ns-clean").textContent];
}"""


@pytest.mark.parametrize("word", ["system", "a", "assistant"])
def test_a_prompt_whose_words_are_in_its_chat_template_too_is_marked_where_it_stands(scripts, word):
    texts = ["<system>", "a", " system assistant\n", word, "\n", "<assistant>\n"]
    started = {"prompt": word, "prompt_token_ids": [*range(6)], "prompt_texts": texts}
    templated = started | {"prompt_words": [[3, 4]]}
    assert scripts.evaluate(PROMPT_PARTS, templated) == [[word], f"{word}\nAn answer"]
    plain = {"prompt": word, "prompt_token_ids": [0], "prompt_texts": [word]}
    assert scripts.evaluate(PROMPT_PARTS, plain) == [[word], f"{word}An answer"]
