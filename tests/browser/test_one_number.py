"""One quantity, one number: what the parts of the page say of a run, compared with one another and with its trace."""

import re

from playwright.sync_api import Page, expect

from naive_speculate import EventKind, Trace
from tests.browser.steps import ended, see_chart, trace
from tests.browser.test_others import DIALOG, open_others
from tests.browser.test_roll import opened
from ui.run.recorded import SPECULATIVE

TILE = ".ns-tiles > div:nth-child({}) dd"


def tile(page: Page, number: int) -> tuple[str, str]:
    """A tile's figure and its note."""
    node = page.locator(TILE.format(number))
    return node.locator("b").text_content(), node.locator("span").text_content()


def test_of_a_run_whose_last_step_is_cut_off_every_part_of_the_page_says_the_same(page, tmp_path):
    ended(page)
    found = Trace.load(SPECULATIVE)
    last = max(event.step for event in found if event.kind == "step" and event.num_accepted > 1)
    accepted = [event for event in found if event.step == last and event.kind == "accepted"]
    after = [event for event in found if event.step == last and event.kind in ("resampled", "bonus")]
    found.events = [event for event in found if event.step is None or event.step <= last]
    cut = [accepted[-1], *after]
    for event in cut:  # as where a stop string is found before them
        event.kind, event.reason = EventKind.DISCARDED, "stop"
    opened(page, found, tmp_path / "cut.jsonl")
    metrics = found.metrics
    kinds = [str(event.kind) for event in found]
    counts = {kind: kinds.count(kind) for kind in ("accepted", "rejected", "discarded")}
    fates = f"accepted {counts['accepted']}, rejected {counts['rejected']} and discarded {counts['discarded']} (with "
    expect(page.locator(".ns-sentence")).to_contain_text(fates)
    share, note = tile(page, 1)
    assert note.startswith(fates)
    judged = metrics.num_accepted_draft_tokens + metrics.num_rejected_draft_tokens
    assert f"α = {metrics.alpha:.2f} of the {judged} judged" in note
    expect(page.locator("#chart-acceptance")).to_have_attribute("aria-label", re.compile(rf" draft tokens accepted: {share}$"))
    pace, note = tile(page, 2)
    assert pace == f"{metrics.mean_acceptance_length:.2f}"
    assert f"with {len(cut)} tokens after the end of the text" in note
    expect(page.locator("#chart-lengths")).to_have_attribute("aria-label", re.compile(rf"\. {pace} tokens per target pass"))
    open_others(page)
    own = page.locator(f"{DIALOG} .ns-others-sums tr", has_text="this run").locator("td").first
    expect(own).to_have_text(f"{metrics.num_accepted_draft_tokens} of {metrics.num_draft_tokens} {pace} tokens per target pass")
    page.locator(f"{DIALOG} [data-close]").click()


def test_what_was_measured_after_the_run_is_called_so_wherever_it_stands_and_sliders_need_no_server(page):
    ended(page)  # the recorded run, which has a measurement
    found = trace(page)
    measured, metrics = found[-1].speedup, found.metrics
    assert f"{measured.tokens_per_round:.2f}" != f"{metrics.mean_acceptance_length:.2f}"
    rate, note = tile(page, 3)
    assert (rate, note) == (f"{metrics.tokens_per_second:.0f}", "this run, including prompt processing")
    speedup, note = tile(page, 4)
    assert speedup == f"{measured.value:.2f}× ({measured.low:.2f} to {measured.high:.2f})"
    assert note.startswith("Measured again, without the prompt: ")
    assert measured.machine in note
    pace = f"{measured.tokens_per_round:.2f} tokens per target pass"
    assert f"{measured.rate:.0f} with drafts ({pace})" in note
    board = page.locator("#waterfall")
    expect(board.locator("figcaption")).to_contain_text(f"Where did the measurement's {pace} go?")
    expect(board.locator("figcaption")).to_contain_text(f"Measured: {measured.value:.2f}×")
    alpha = found.expected_acceptance.alpha
    expect(board.locator("label", has=page.locator("[data-value=alpha]")).locator("output")).to_have_text(f"{alpha:.2f}")
    expect(page.locator("#chart-speedup")).to_have_attribute("aria-label", re.compile(f"Exact α = {alpha:.2f};"))
    best = re.search(r"Best would be k = \d+: [\d.]+×", page.locator("#chart-speedup").get_attribute("aria-label"))[0]
    expect(board.locator(".ns-what-if > p")).to_contain_text(best)
    cost = re.search(r"as long as ([\d.]+) plain", board.locator("figcaption").inner_text())[1]
    divided = f"{measured.tokens_per_round:.2f} ÷ {cost} = {measured.tokens_per_round / float(cost):.2f}×"
    expect(board.locator("figcaption")).to_contain_text(divided)  # who divides what is shown finds what is said
    see_chart(page, "chart-speedup")
    expect(page.locator("#charts figure:has(#chart-speedup) figcaption")).to_contain_text(best)

    see_chart(page, "chart-waterfall")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    board.locator("[data-machine=laptop]").click()
    board.locator("[data-value=alpha]").fill("0.4")
    expect(board.locator("figcaption")).to_contain_text("slower than without drafts")
    expect(board.locator("[data-machine=laptop]")).to_have_attribute("aria-pressed", "false")
    board.locator("[data-machine=here]").click()
    expect(board.locator("figcaption")).to_contain_text("Measured")
    assert asked == []
