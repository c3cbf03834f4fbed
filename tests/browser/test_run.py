"""Run and Stop: a prompt goes in, tokens of every kind come out, and they are the library's."""

import re
from collections import Counter

from playwright.sync_api import expect

from naive_speculate import SamplingParams
from naive_speculate.events.event import OUTPUT_KINDS
from tests.browser.steps import (
    as_soon_as,
    ended,
    open_drawer,
    run,
    set_number,
    shown_run,
    start,
    text,
    toast,
    trace,
    visible_tokens,
)

PROMPT = "Once upon a time there was a fox who"
KINDS = ("accepted", "rejected", "discarded", "resampled", "bonus")
SHOWN = "[...document.querySelectorAll('#tokens [data-step]')]"


def test_what_cannot_be_run_is_refused_by_name_and_a_prompt_becomes_the_library_s_tokens_and_only_text(page, small_decoder):
    before, tokens = shown_run(page), visible_tokens(page)
    page.locator("#prompt textarea").fill("   ")
    page.locator("#run").click()
    toast(page, "prompt is empty")
    for value, words in (("", "max_tokens must be a whole number"), (12.7, "max_tokens must be a whole number, got 12.7")):
        set_number(page, "max-tokens", value)
        page.locator("#run").click()
        toast(page, words)
    assert (shown_run(page), visible_tokens(page)) == (before, tokens)

    run(page, PROMPT, max_tokens=24, seed=3, k=2)
    for kind in KINDS:
        token = page.locator(f"#tokens [data-kind={kind}]").first
        token.wait_for(state="attached")
        for name in ("data-step", "data-index", "data-token-id"):
            assert int(token.get_attribute(name)) >= 0
    result = small_decoder.generate(PROMPT, SamplingParams(temperature=0.7, max_tokens=24, seed=3), num_draft_tokens=2)
    shown = page.evaluate(f"{SHOWN}.map(({{ dataset }}) => [dataset.kind, Number(dataset.tokenId)])")
    assert [token_id for kind, token_id in shown if kind in OUTPUT_KINDS] == result.token_ids
    saved = trace(page)
    assert text(page) == saved.text == result.text
    assert Counter(kind for kind, _ in shown if kind in KINDS) == Counter(e.kind.value for e in saved if e.kind.value in KINDS)
    assert page.locator("#rounds .ns-round").count() == saved.metrics.num_spec_steps
    expect(page.locator("#stats")).to_contain_text(f"{saved.metrics.draft_acceptance_rate:.0%}")
    expect(page.locator("#stats")).to_contain_text(f"{saved.metrics.mean_acceptance_length:.2f}")
    for name in ("prompt", "run", "tokens", "rounds", "stats"):
        expect(page.locator(f"#{name}")).to_be_visible()
    for name in ("stop", "inspector"):  # there while something is decoded, and once a token is chosen
        expect(page.locator(f"#{name}")).to_be_hidden()

    set_number(page, "max-tokens", 4)
    page.keyboard.press("Shift+Tab")
    expect(page.locator("#max-tokens input")).to_have_css("outline-style", "solid")  # the field shows that it has the focus
    hostile = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>\u202eevil\u200b ${window.hit=1} {{hit}}"
    run(page, hostile)
    assert "".join(page.locator("#tokens [data-kind=prompt]").all_text_contents()) == hostile
    assert page.evaluate("window.hit") is None
    assert page.locator("#tokens img, #tokens script").count() == 0


def test_a_second_run_takes_the_place_of_the_first_and_stop_ends_the_decoding_itself(page):
    open_drawer(page)
    page.get_by_label("Ignore the end token").check()  # else the model may end the text before Stop does
    as_soon_as(page, "document.querySelector('#stop').checkVisibility()", "window.couldStop = true")
    start(page, PROMPT, max_tokens=900, k=0)
    page.wait_for_function("window.couldStop")  # however soon the run is over
    run(page, "The hen said", max_tokens=12, seed=5)
    assert trace(page).started.prompt == "The hen said"
    assert "".join(page.locator("#tokens [data-kind=prompt]").all_text_contents()) == "The hen said"
    assert visible_tokens(page) > 0
    assert page.evaluate(f"[...new Set({SHOWN}.map(e => e.dataset.kind))]") == ["bonus"], "plain decoding, since k = 0"
    expect(page.locator("#stats")).to_contain_text("Plain decoding")
    as_soon_as(page, f"stage.dataset.run !== '{shown_run(page)}'", "document.querySelector('#stop').click()")
    start(page, PROMPT, max_tokens=900)
    ended(page)
    saved = trace(page)
    assert saved.finished.finish_reason == "cancelled"
    expect(page.locator(".ns-said[role=status]")).to_have_text(re.compile(r"^Run stopped: \d+ tokens in \d+ steps"))
    assert len(saved.token_ids) < 900
