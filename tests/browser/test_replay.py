"""The recorded run on arrival, replaying, saving and opening traces; pictures and data to take
away."""

import json
import re
import statistics
from pathlib import Path
from xml.etree import ElementTree

from playwright.sync_api import Browser, Page, expect

from naive_speculate import Trace
from tests.browser.steps import (
    another_run,
    ended,
    go_to,
    open_file,
    open_trace,
    press,
    save_as,
    saved,
    see_chart,
    shown_run,
    text,
    toast,
    trace,
    visible_tokens,
)
from ui.run.recorded import SPECULATIVE

SLIDER = ".ns-slider"
SLOW_FRAMES = """() => {
    const [now, frame] =
      [performance.now.bind(performance), window.requestAnimationFrame.bind(window)];
    let looks = 0;
    performance.now = () => now() + 3 * looks++;
    window.requestAnimationFrame = (draw) => frame((time) => { looks = 0; draw(time); });
}"""
"""Each look at the clock in a frame takes three milliseconds more, so that it shows few events,
as on a slow machine."""
DROP = """(text) => {
    const data = new DataTransfer();
    data.items.add(new File([text], "dropped.jsonl"));
    document.querySelector(".ns-stage")
      .dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
}"""
FILLED = """() => [...document.querySelectorAll("#rounds .ns-bar")].map((bar) => {
    const wide = (element) => element.getBoundingClientRect().width;
    return [...bar.children].reduce((sum, part) => sum + wide(part), 0) / wide(bar);
})"""


def rounds(page: Page) -> int:
    return page.locator("#rounds .ns-round.ns-done:not([hidden])").count()


def _plays_by_itself(page: Page) -> None:
    press(page, "To the end")
    ended(page)
    whole = int(page.locator(SLIDER).input_value())
    page.locator(".ns-speed").select_option("rounds:1")
    press(page, "Play")
    page.wait_for_function(
        "(whole) => Number(document.querySelector('.ns-slider').value) < whole / 2", arg=whole
    )
    page.wait_for_function("() => Number(document.querySelector('.ns-slider').value) > 2")
    pause = page.locator(".ns-play[data-going=true]")
    ground, sign = pause.evaluate(
        "(button) => [getComputedStyle(button).backgroundColor, getComputedStyle(button).color]"
    )
    pause.hover()
    assert pause.evaluate("(button) => button.matches(':hover')"), (
        "the sign is seen where the pointer is"
    )
    light = [sum(map(float, re.findall(r"[\d.]+", color)[:3])) for color in (ground, sign)]
    assert abs(light[0] - light[1]) > (300 if max(light) > 3 else 1.2)
    pause.click()
    at = page.locator(SLIDER).input_value()
    page.locator(".ns-speed").select_option("1")
    assert page.locator(SLIDER).input_value() == at
    press(page, "Play")
    ended(page)
    assert int(page.locator(SLIDER).input_value()) == whole
    expect(page.locator(".ns-play[data-going=false]")).to_be_visible()


def _numbers_and_charts_follow(page: Page, recorded: Trace) -> None:
    third = [n for n, event in enumerate(recorded) if event.kind == "step"][2]
    part = Trace(recorded[n] for n in range(third + 1))
    go_to(page, third + 1)
    expect(page.locator("#stats")).to_contain_text(f"{len(part.token_ids)} tokens in 3 passes")
    kept = next(n for n in range(third, len(recorded)) if recorded[n].kind == "accepted")
    go_to(page, kept + 1)  # its step has not ended, so that its tokens do not count yet
    upto = Trace(recorded[n] for n in range(kept + 1))
    expect(page.locator(".ns-clean")).to_have_text(
        f"{recorded.started.prompt}{upto.text}"
    )  # reported after the numbers
    ends = [n for n in range(kept) if recorded[n].kind == "step"]
    tokens = len(Trace(recorded[n] for n in range(ends[-1])).token_ids)
    expect(page.locator("#stats")).to_contain_text(f"{tokens} tokens in {len(ends)} passes")
    assert len(upto.token_ids) > tokens
    go_to(page, third + 1)
    see_chart(page, "chart-acceptance")
    page.wait_for_function(
        "() => document.querySelector('#chart-acceptance').data?.[0]?.x.length <= 3"
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(SLOW_FRAMES)
    press(page, "To the start")
    expect(page.locator("#stats")).to_contain_text("Processing the prompt")
    see_chart(page, "chart-acceptance")
    page.wait_for_function("() => document.querySelector('#chart-acceptance').data?.length === 0")
    press(page, "To the end")
    expect(page.locator("#stats")).to_contain_text("In this recorded run")
    assert asked == []


def test_a_recorded_run_moves_by_steps_and_plays_and_numbers_and_charts_follow_without_the_server(
    page,
):
    recorded = Trace.load(SPECULATIVE)
    ended(page)
    assert shown_run(page) == "recorded"
    assert text(page) == recorded.text
    expect(page.locator("#stats")).to_contain_text("In this recorded run")
    expect(page.locator(".ns-badge")).to_have_text("recorded")
    last, clock = rounds(page), page.locator(".ns-clock")
    for name, shown in (("back", last - 2), ("forward", last)):  # two presses before the next frame
        page.locator(f"[data-act={name}]").evaluate(
            "(button) => { button.click(); button.click(); }"
        )
        expect(clock).to_contain_text(f"step {shown} of {last}")
    press(page, "One step back")
    expect(clock).to_contain_text(f"step {last - 1} of {last}")
    press(page, "To the start")
    page.locator(".ns-stage[data-cursor='1']").wait_for()
    expect(clock).to_contain_text(f"step 1 of {last}")
    assert visible_tokens(page) == 0
    press(page, "One step forward")
    press(page, "One step forward")
    expect(clock).to_contain_text(f"step 2 of {last}")
    assert rounds(page) == 2
    upto = [n for n, event in enumerate(recorded) if event.kind == "step"][1]
    assert text(page) == Trace(recorded[n] for n in range(upto + 1)).text
    press(page, "To the end")
    ended(page)
    assert text(page) == recorded.text
    judged = next(n for n, event in enumerate(recorded) if event.kind in ("accepted", "rejected"))
    go_to(page, judged)  # a token is drafted before it is judged
    assert page.locator("#tokens [data-kind=proposed]:not([hidden])").count() == judged - 1
    go_to(page, judged + 1)
    assert (
        page.locator(f"#tokens [data-kind={recorded[judged].kind.value}]:not([hidden])").count()
        == 1
    )
    _plays_by_itself(page)
    _numbers_and_charts_follow(page, recorded)


def _hostile_words_stay_words(page: Page, chromium: Browser, tmp_path: Path) -> None:
    evil = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>"
    lines = []
    for event in list(Trace.load(SPECULATIVE))[:60]:
        fields = event.to_dict()
        for name in ("text", "token", "prompt", "device", "message"):
            fields[name] = evil
        fields["prompt_texts"] = [evil] * len(fields.get("prompt_token_ids", []))
        fields["settings"] = {"verify_strategy": evil, "drafter": evil, "num_draft_tokens": evil}
        for name in ("draft_top", "target_top", "residual_top"):
            for entry in fields.get(name, []):
                entry["text"] = evil
        lines.append(json.dumps(fields))
    lines.append(json.dumps({"kind": "finished", "finish_reason": "error", "message": evil}))
    path = tmp_path / f"{'x' * 40}.jsonl"
    path.write_text("\n".join(lines))
    open_file(page, path)
    page.locator("#tokens [data-step]").first.click()
    expect(page.locator("#inspector h3")).to_contain_text("<img")
    expect(page.locator("#distributions tbody th").first).to_contain_text("<img")
    expect(page.locator("#stats")).to_contain_text("It ended in an error")
    assert page.evaluate("window.hit") is None
    assert (
        page.locator(
            "#tokens img, #rounds img, #inspector img, #stats img, .ns-race img, .ns-machine img"
        ).count()
        == 0
    )
    # and in what is saved of it
    for name, file in (
        ("A page that replays by itself (HTML)", "replay.html"),
        ("Coloured text (HTML)", "text.html"),
    ):
        alone = chromium.new_page()
        alone.goto(save_as(page, name, tmp_path / file).as_uri())
        expect(alone.get_by_text("onerror").first).to_be_attached()
        assert alone.locator("img").count() == 0
        assert alone.evaluate("window.hit") is None
        alone.close()


DRAWN_IN_CAPITALS = """() => {
    const chips = [...document.querySelectorAll(".ns-drawing [data-part=draft] text")];
    const words = chips.map((chip) => chip.textContent).join("");
    return /[A-Z]/.test(words) && words === words.toUpperCase();
}"""
"""The step that is drawn has drafts in capital letters; which step it is changes all the time."""


def test_a_saved_trace_opens_again_is_dropped_on_the_page_or_refused_and_hostile_words_stay_words(
    page, chromium, tmp_path
):
    saved = trace(page)
    assert saved.to_jsonl() == Trace.load(SPECULATIVE).to_jsonl()
    shown = text(page)
    open_trace(page, saved, tmp_path / "mine.jsonl")
    assert text(page) == shown
    expect(page.locator(".ns-title")).to_contain_text("mine.jsonl")
    before = shown_run(page)
    page.evaluate(DROP, saved.to_jsonl())
    another_run(page, before)
    expect(page.locator(".ns-title")).to_contain_text("dropped.jsonl")

    lines = [json.loads(line) for line in saved.to_jsonl().splitlines()]
    slow = next(event for event in lines if event["kind"] == "step" and event["step"] == 3)
    slow["verify_seconds"] *= 100
    for event in lines:  # the same steps with other words
        event["text"] = event.get("text", "").upper()
    (tmp_path / "slow.jsonl").write_text("\n".join(map(json.dumps, lines)))
    open_file(page, tmp_path / "slow.jsonl")
    page.wait_for_function(DRAWN_IN_CAPITALS)
    filled = page.evaluate(FILLED)
    assert len(filled) == len([event for event in lines if event["kind"] == "step"])
    assert 0.99 < filled[3] < 1.01
    # Twice the usual step is full width, which grows in steps of 1.2: one slow step does not
    # flatten the others' bars.
    assert 0.5 / 1.2 - 0.01 < statistics.median(filled) < 0.51

    before, shown = shown_run(page), text(page)
    (tmp_path / "broken.jsonl").write_text('{"kind":"started","schema_version":1}\n{"kind":')
    page.locator(".ns-file").set_input_files(tmp_path / "broken.jsonl")
    toast(page, "trace line 2: not JSON")
    assert (shown_run(page), text(page)) == (before, shown)
    _hostile_words_stay_words(page, chromium, tmp_path)


ROUNDS_SHOWN = """
    window.rounds = [];
    new MutationObserver(() => {
        const shown = document.querySelector(".ns-clock")?.textContent.match(/step (\\d+) of/);
        if (shown) window.rounds.push(Number(shown[1]));
    }).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""Before any script of the page: the rounds that its clock has shown so far. None of them waits
for a test."""


def a_saved_run_replays_alone(page, chromium, recorded, tmp_path):
    """Without any network."""
    passes = recorded.metrics.num_spec_steps
    file = save_as(page, "A page that replays by itself (HTML)", tmp_path / "replay.html")
    context = chromium.new_context(offline=True, reduced_motion="no-preference")
    alone, asked, problems = context.new_page(), list[str](), list[str]()
    alone.on("request", lambda request: asked.append(request.url))
    alone.on("pageerror", lambda error: problems.append(str(error)))
    alone.add_init_script(ROUNDS_SHOWN)
    alone.goto(file.as_uri())
    alone.wait_for_function("() => rounds[0] < 2 && rounds.at(-1) >= 2")  # it plays by itself
    alone.get_by_role("button", name="To the end", exact=True).click()
    expect(alone.locator(".ns-clock")).to_contain_text(f"step {passes} of {passes}")
    assert text(alone) == recorded.text
    expect(alone.locator("#stats")).to_contain_text(
        f"{len(recorded.token_ids)} tokens in {passes} passes"
    )
    alone.locator("#tokens [data-kind=rejected]").first.click()
    expect(alone.locator(".inspector-why")).to_contain_text("draft gave")
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    assert problems == []
    context.close()


def test_charts_and_coloured_text_can_be_saved_and_a_run_replays_in_a_file_without_any_network(
    page, chromium, tmp_path
):
    charts = page.locator("#charts .ns-chart")
    count = charts.count()
    assert count >= 5
    assert page.locator(".ns-pictures button").count() >= 2 * count
    chart = charts.filter(has=page.locator("#chart-positions"))
    chart.hover()
    png = saved(
        page,
        chart.get_by_role("button", name=re.compile("^Save this chart as PNG")),
        tmp_path / "chart.png",
    )
    assert png.read_bytes().startswith(b"\x89PNG")
    svg = saved(
        page,
        chart.get_by_role("button", name=re.compile("^Save this chart as SVG")),
        tmp_path / "chart.svg",
    )
    words = "".join(ElementTree.parse(svg).getroot().itertext())
    title = chart.locator("figcaption").evaluate("(node) => node.firstElementChild.textContent")
    assert title in words
    assert "var(--" not in svg.read_text()

    page.get_by_role("button", name="To the start").click()
    page.locator(".ns-take summary").click()
    expect(
        page.get_by_role("button", name="This step, for a slide (SVG)")
    ).to_be_disabled()  # there is none yet
    page.get_by_role("button", name="To the end", exact=True).click()
    recorded = Trace.load(SPECULATIVE)
    drawing = ElementTree.parse(
        save_as(page, "Coloured text (SVG)", tmp_path / "text.svg")
    ).getroot()
    drawn = "".join(node.text or "" for node in drawing.iter("{http://www.w3.org/2000/svg}text"))
    shown = page.evaluate(
        "[...document.querySelectorAll('#tokens .ns-token')].map(n => n.textContent).join('')"
    )
    assert re.sub(r"\s", "", drawn) == re.sub(r"\s", "", shown)
    assert (
        recorded._repr_html_()
        in save_as(page, "Coloured text (HTML)", tmp_path / "text.html").read_text()
    )

    a_saved_run_replays_alone(page, chromium, recorded, tmp_path)
