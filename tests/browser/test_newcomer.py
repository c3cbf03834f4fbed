"""What a new visitor presses, reads and checks by hand."""

import re

from playwright.sync_api import expect

from naive_speculate.events.trace import Trace
from tests.browser.steps import as_soon_as, ended, see_chart
from ui.run.recorded import SPECULATIVE

SLIDER = ".ns-slider"
PERCENTS = """async (pairs) => {
    const { percents } = await import("/format.js");
    return pairs.map(([a, b]) => percents(a, b));
}"""


def test_play_at_the_end_of_a_run_plays_it_again_from_the_start(page):
    ended(page)
    whole = page.locator(SLIDER).input_value()
    page.locator(".ns-speed").select_option("rounds:1")
    play = page.get_by_role("group", name="Replay").get_by_role("button", name="Play", exact=True)
    play.click()
    page.wait_for_function("(whole) => Number(document.querySelector('.ns-slider').value) < whole / 2", arg=int(whole))
    pause = page.get_by_role("group", name="Replay").get_by_role("button", name="Pause", exact=True)
    expect(pause).to_be_visible()
    ground, sign = pause.evaluate("(button) => [getComputedStyle(button).backgroundColor, getComputedStyle(button).color]")
    assert ground != sign
    assert pause.evaluate("(button) => button.matches(':hover')"), "the sign is seen where the pointer is"
    light = [sum(map(float, re.findall(r"[\d.]+", color)[:3])) for color in (ground, sign)]
    assert abs(light[0] - light[1]) > (300 if max(light) > 3 else 1.2)
    page.locator(".ns-speed").select_option("1")
    ended(page)
    assert page.locator(SLIDER).input_value() == whole


def test_the_opening_shows_the_p_and_q_that_it_speaks_of(page):
    third = "document.querySelector('.ns-opening').dataset.scene === '3'"
    as_soon_as(page, third, "document.querySelector('.ns-op-play').click(); window.held = true")  # here it stays
    page.wait_for_function("() => window.held")
    for width, height in ((1440, 900), (1024, 768), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        boxes = [guess.bounding_box() for guess in page.locator(".ns-opening li:has(.ns-op-pq)").all()]
        numbers = [shown.bounding_box() for shown in page.locator(".ns-op-pq i:last-child").all()]
        assert all(box["x"] + box["width"] >= shown["x"] + shown["width"] for box, shown in zip(boxes, numbers, strict=True))
    p, q = map(float, re.findall(r"[\d.]+\d", page.locator(".ns-opening [data-kind=rejected] .ns-op-pq").inner_text()))
    said = page.locator(".ns-opening figcaption [data-scene='3']").inner_text()
    assert f"p/q is {p / q:.2f}," in said, "who divides what is shown finds what is said"


def test_one_best_k_stands_on_the_page(page):
    ended(page)
    see_chart(page, "waterfall")
    see_chart(page, "chart-speedup")
    best = re.search(r"Best would be k = \d+: [\d.]+×", page.locator(".ns-what-if > p").inner_text())
    expect(page.locator("#charts figure:has(#chart-speedup) figcaption")).to_contain_text(best[0])
    tokens = f"{Trace.load(SPECULATIVE)[-1].speedup.tokens_per_round:.2f}"
    said = page.locator("#waterfall figcaption").inner_text()
    cost = re.search(r"as long as ([\d.]+) plain", said).group(1)
    assert f"{tokens} ÷ {cost} = {float(tokens) / float(cost):.2f}×" in said, "who divides what is shown finds what is said"


def test_two_shares_that_are_compared_are_told_apart(scripts):
    pairs = [[0.2, 0.8], [0.07, 0.072], [0.000743, 0.000392], [0.00000245, 0.00813], [1, 0.9997], [0.5, 0.5], [0, 0.25]]
    assert scripts.evaluate(PERCENTS, pairs) == [
        ["20%", "80%"],
        ["7.0%", "7.2%"],
        ["0.07%", "0.04%"],
        ["under 0.01%", "0.81%"],
        ["100%", "99.97%"],
        ["50%", "50%"],
        ["0%", "25%"],
    ]


def test_nothing_is_resampled_without_a_draw_and_a_token_of_plain_decoding_is_no_bonus(scripts):
    names = scripts.evaluate(
        """async () => {
            const { nameOf } = await import("/verdict_words.js");
            const replaced = [{}, { temperature: 0 }, { verify_strategy: "greedy_match" }];
            return [
                ...replaced.map((settings) => nameOf({ kind: "resampled", index: 1 }, settings)),
                ...[2, 0].map((index) => nameOf({ kind: "bonus", index }, {})),
            ];
        }"""
    )
    assert names == ["resampled", "replacement", "replacement", "bonus", "from the target"]
