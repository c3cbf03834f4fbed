"""Run and Stop: a prompt goes in, tokens of every kind come out, and they are the library's."""

from playwright.sync_api import expect

from naive_speculate import SamplingParams
from tests.browser.steps import (
    another_run,
    as_soon_as,
    ended,
    open_drawer,
    run,
    see_chart,
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


def test_a_prompt_becomes_tokens_of_every_kind_and_the_library_s_text(page, small_decoder):
    run(page, PROMPT, max_tokens=60, seed=3, k=2)
    for kind in KINDS:
        token = page.locator(f"#tokens [data-kind={kind}]").first
        token.wait_for(state="attached")
        for name in ("data-step", "data-index", "data-token-id"):
            assert int(token.get_attribute(name)) >= 0
    result = small_decoder.generate(PROMPT, SamplingParams(temperature=0.7, max_tokens=60, seed=3), num_draft_tokens=2)
    assert text(page) == result.text
    ids = page.evaluate(
        "[...document.querySelectorAll('#tokens [data-step]')]"
        ".filter(e => ['accepted', 'resampled', 'bonus'].includes(e.dataset.kind)).map(e => Number(e.dataset.tokenId))"
    )
    assert ids == result.token_ids


def test_every_element_of_the_first_view_is_there(page):
    for name in ("prompt", "run", "stop", "tokens", "rounds", "stats", "inspector"):
        expect(page.locator(f"#{name}")).to_be_visible()
    for name in ("acceptance", "positions", "lengths", "timing", "speedup"):
        see_chart(page, f"chart-{name}")


def test_what_the_page_shows_is_the_trace(page):
    run(page, PROMPT, max_tokens=40, seed=1, k=3)
    saved = trace(page)
    assert saved.text == text(page)
    shown = page.evaluate("[...document.querySelectorAll('#tokens [data-step]')].map(e => e.dataset.kind)")
    kinds = [event.kind.value for event in saved]
    for kind in KINDS:
        assert shown.count(kind) == kinds.count(kind)
    rows = page.locator("#rounds .ns-round").count()
    assert rows == saved.metrics.num_spec_steps
    rate = f"{saved.metrics.draft_acceptance_rate:.0%}"
    expect(page.locator("#stats")).to_contain_text(rate)
    expect(page.locator("#stats")).to_contain_text(f"{saved.metrics.mean_acceptance_length:.2f}")


def test_plain_decoding_shows_bonus_tokens_only(page):
    run(page, PROMPT, max_tokens=12, k=0)
    kinds = page.evaluate("[...new Set([...document.querySelectorAll('#tokens [data-step]')].map(e => e.dataset.kind))]")
    assert kinds == ["bonus"]
    expect(page.locator("#stats")).to_contain_text("Plain decoding")


def test_stop_ends_the_decoding_itself(page):
    open_drawer(page)
    page.get_by_label("Ignore the end token").check()  # else the model may end the text before Stop does
    as_soon_as(page, "stage.dataset.run !== 'recorded'", "document.querySelector('#stop').click()")
    another_run(page, start(page, PROMPT, max_tokens=900, k=0))
    ended(page)
    saved = trace(page)
    assert saved.finished.finish_reason == "cancelled"
    assert len(saved.token_ids) < 900


def test_a_second_run_takes_the_place_of_the_first(page):
    before = start(page, PROMPT, max_tokens=900)
    another_run(page, before)
    run(page, "The hen said", max_tokens=8, seed=5)
    assert trace(page).started.prompt == "The hen said"
    assert page.locator("#tokens [data-kind=prompt]").all_text_contents() != []
    assert visible_tokens(page) > 0


def test_an_empty_prompt_is_refused_and_the_old_run_stays(page):
    ended(page)
    before, tokens = shown_run(page), visible_tokens(page)
    page.locator("#prompt textarea").fill("   ")
    page.locator("#run").click()
    toast(page, "prompt is empty")
    assert (shown_run(page), visible_tokens(page)) == (before, tokens)
    run(page, PROMPT, max_tokens=6)
    assert text(page)


def test_a_prompt_that_is_too_long_is_told_how_much_fits_and_a_field_without_a_sensible_value_is_named(page):
    page.locator("#prompt textarea").fill("tale " * 3000)
    page.locator("#run").click()
    toast(page, r"prompt has \d+ tokens, \d+ more than the \d+")
    set_number(page, "max-tokens", "")
    page.locator("#run").click()
    toast(page, "max_tokens must be a whole number")


def test_markup_in_a_prompt_is_only_text(page):
    for prompt in (
        "<script>window.hit = 1</script> said the fox",
        "<img src=x onerror='window.hit = 1'> and the hen",
        "\u202eevil\u200b ${window.hit=1} {{hit}}",
    ):
        run(page, prompt, max_tokens=4)
        assert "".join(page.locator("#tokens [data-kind=prompt]").all_text_contents()) == prompt
        assert page.evaluate("window.hit") is None
        assert page.locator("#tokens img, #tokens script").count() == 0
