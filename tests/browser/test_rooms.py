"""The rooms below the lessons: the doctor, why two texts differ, and drafting by oneself."""

from playwright.sync_api import expect

from naive_speculate.tools.doctor import diagnose, estimated, read
from tests import engine_samples as samples
from tests.browser.steps import as_soon_as, script, scrolls_sideways, toast
from ui.assets import folder

FOUND = "#doctor .ns-findings"


def paste(page, text: str) -> None:
    """As by the clipboard, which a page cannot be asked to read."""
    page.locator("#doctor textarea").fill(text)


def test_it_examines_what_is_pasted_has_examples_and_says_what_cannot_be_read_or_is_not_answered(
    page,
):
    page.get_by_role("tab", name="Learn").click()
    room = page.locator("[data-room=doctor]")
    room.locator("summary").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#doctor textarea")).to_be_visible()
    page.wait_for_url("**room=doctor**")

    paste(page, samples.LLAMACPP_SERVER_TRACE)
    page.get_by_role("textbox", name="Draft cost").fill("0.6B / 8B")
    page.keyboard.press("Enter")
    found = diagnose(read(samples.LLAMACPP_SERVER_TRACE), estimated("0.6B", "8B"))
    expect(page.locator(f"{FOUND} h3")).to_contain_text("llama.cpp")
    expect(page.locator(f"{FOUND}-best")).to_contain_text(f"Best k: {found.best_k} ")
    expect(page.locator(FOUND)).to_contain_text(f"{found.alpha:.3f}")
    expect(page.locator(FOUND)).to_be_focused()
    drawn = {}
    for name in ("places", "windows"):
        page.locator(f"#doctor [data-chart={name}] .main-svg").first.wait_for()
        drawn[name] = page.locator(f"#doctor [data-chart={name}]").evaluate(
            "({ data }) => data.map(({ y }) => [...y])"
        )
        assert len(drawn[name]) == 3
    assert drawn["places"][0] == list(found.conditional)
    limits = drawn["windows"][0]
    assert limits == [window.break_even_draft_cost for window in found.windows[: len(limits)]]
    page.get_by_text("Full report as text").click()
    expect(page.locator("#doctor pre")).to_contain_text("pays if a draft costs less than")

    for engine in ("vLLM", "llama.cpp", "SGLang"):
        page.locator(f"#doctor [data-example='{engine}']").click()
        expect(page.locator(f"{FOUND} h3")).to_contain_text(engine)
        expect(page.locator("#doctor textarea")).not_to_have_value("")
    expect(page.locator(FOUND)).to_be_visible()
    page.get_by_role("textbox", name="Draft cost").fill("cheap")
    page.locator("#doctor [type=submit]").click()
    toast(page, "“Draft cost” must be a number")
    expect(page.locator(FOUND)).to_be_hidden()
    expect(page.locator("#doctor [type=submit]")).to_be_enabled()

    page.reload()
    status, go = page.locator("#doctor .ns-room-status"), page.locator("#doctor [type=submit]")
    page.route("**/component_server/**", lambda route: route.abort())
    page.locator("#doctor [data-example=vLLM]").click()
    expect(status).to_have_text("No answer. Try again.")
    expect(page.locator("#doctor textarea")).to_have_value("")
    page.route("**/queue/join*", lambda route: route.abort())
    paste(page, samples.VLLM_LOG)
    go.click()
    expect(go).to_be_enabled()
    expect(status).to_have_text("No answer. Try again.")
    page.unroute_all()
    go.click()
    expect(page.locator(f"{FOUND} h3")).to_contain_text("vLLM")


DIFFERENCE = "#differ .ns-findings"
PARTED = script("parted")


def test_a_race_whose_lanes_parted_asks_why_and_bad_texts_are_refused(open_page):
    page = open_page(reduced_motion="reduce")
    page.evaluate(PARTED, folder())
    page.locator(".ns-result").get_by_role("button", name="Why?").click()
    expect(page.locator(f"{DIFFERENCE} h3")).to_have_text("Unexplained")
    expect(page.locator(DIFFERENCE)).to_contain_text("After the same 3 tokens")
    expect(page.locator("#differ [name=b]")).to_have_value(
        " there was a fox who\n had"
    )  # four tokens from where they part, as decoded
    expect(page.locator("#differ [name=chat]")).not_to_be_checked()

    page.get_by_role("tab", name="Explore").click()
    page.get_by_role("link", name="Find out why").click()
    page.locator("#differ [name=a]").fill("🦊" * 600)
    page.locator("#differ [type=submit]").click()
    toast(page, "at most 320 tokens")
    expect(page.locator(DIFFERENCE)).to_be_hidden()
    expect(page.locator("#differ [type=submit]")).to_be_enabled()
    page.locator("#differ").get_by_role("button", name="These two texts of my run").click()
    expect(page.locator("#differ [name=a]")).not_to_have_value("🦊" * 600)
    expect(page.locator(f"{DIFFERENCE} h3")).to_have_text("Unexplained")
    page.locator("#differ").get_by_role("button", name="Example: two samples").click()
    expect(page.locator("#differ [name=b]")).to_have_value("Paris is the capital of France.")
    expect(page.locator("#differ [name=greedy]")).not_to_be_checked()
    expect(page.locator(f"{DIFFERENCE} h3")).not_to_have_text("Unexplained")


WORDS = ["in", "a", "forest", "with", "his", "mother", "and", "he", "was", "happy"]


def begin(page, text: str = "") -> None:
    if text:
        page.get_by_label("The story begins").fill(text)
    page.locator(".ns-your-start [type=submit]").click()
    expect(page.locator("[name=word]")).to_be_focused()


def write(page, word: str, sure: int, number: int) -> None:
    """By keyboard, as on a phone: the word, the slider, Enter; Enter once more if the draw went
    against it."""
    page.locator("[name=word]").fill(word)
    page.locator("[name=sure]").fill(str(sure))
    page.locator("[name=word]").press("Enter")
    against = page.locator(".ns-your-verdict button:visible")
    row = page.locator(f".ns-your-words tbody tr:nth-child({number + 1})")
    row.or_(against).first.wait_for()
    if against.is_visible():
        assert 0 < sure < 100
        expect(page.locator(".ns-your-verdict")).to_contain_text(
            f"The draw went against your word “{word}”"
        )
        expect(row).to_have_count(0)
        expect(against).to_be_focused()
        page.keyboard.press("Enter")
    expect(row).to_be_visible()


def alphas(page, column: str) -> list[float]:
    return [
        float(cell)
        for cell in page.locator(f".ns-your-words td[data-name='{column}']").all_inner_texts()
    ]


def test_ten_words_are_judged_and_come_to_an_alpha_that_a_link_carries(page):
    page.get_by_role("tab", name="Learn").click()
    page.locator("[data-room=yourself] > summary").click()
    begin(page, "Once upon a time there was a hen <b>who</b> lived")
    for number, word in enumerate(WORDS):
        write(page, word, 10 * number, number)
    story = page.locator(".ns-your-text")
    expect(story).to_contain_text("Once upon a time there was a hen <b>who</b> lived")
    kinds = story.locator(".ns-token").evaluate_all(
        "(tokens) => tokens.map((token) => token.dataset.kind)"
    )
    assert sum(kind in ("resampled", "bonus") for kind in kinds) == len(WORDS)
    mine, theirs = alphas(page, "Your α"), alphas(page, "Draft’s α")
    assert mine[0] == theirs[0]  # at 0% the draft model drafts alone
    assert mine != theirs
    assert all(0 <= alpha <= 1 for alpha in (*mine, *theirs))
    end = page.locator(".ns-your-end")
    expect(end).to_be_focused()
    expect(page.locator(".ns-your-word")).to_be_hidden()
    told = [float(bar) for bar in end.locator("dd").all_inner_texts()]
    assert abs(told[0] - sum(mine) / len(WORDS)) < 0.011
    assert abs(told[1] - sum(theirs) / len(WORDS)) < 0.011
    expect(end).to_contain_text("tokens per target pass")

    share = page.locator("#yourself [data-act=share]")
    share.click()
    page.wait_for_url("**alpha=**")
    link = page.url
    first_dice = page.locator(".ns-your-words tbody tr").first.inner_text()
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator(".ns-your-linked")).to_contain_text(f"reached α = {told[0]:.2f}")
    expect(page.get_by_label("The story begins")).to_have_value(
        "Once upon a time there was a hen <b>who</b> lived"
    )
    begin(page)
    write(page, WORDS[0], 0, 0)
    assert (
        page.locator(".ns-your-words tbody tr").first.inner_text() == first_dice
    )  # the same draws reject the same word
    page.get_by_role("button", name="Start over").click()
    begin(page)
    write(page, WORDS[0], 0, 0)
    assert page.locator(".ns-your-words tbody tr").first.inner_text() == first_dice
    page.get_by_role("button", name="Start over").click()
    page.get_by_label("The story begins").fill("There was a king")
    expect(page.locator(".ns-your-linked")).to_be_hidden()
    page.locator("[data-room=yourself] > summary").click()
    page.wait_for_function("() => !/room|text|dice|alpha/.test(location.search)")


def test_what_is_no_word_is_reported_and_a_word_written_in_the_moment_of_a_verdict_is_judged_too(
    open_page,
):
    page = open_page("?room=yourself", shown=".ns-your-start", width=390, height=844)
    expect(
        page.locator(".ns-your-start")
    ).to_be_in_viewport()  # the lessons above it are drawn later, and do not scroll
    begin(page)
    page.locator("[name=word]").fill("two words")
    page.locator("[name=word]").press("Enter")
    toast(page, "please write one word")
    expect(page.locator(".ns-your-word [type=submit]")).to_be_enabled()
    page.route("**/queue/join*", lambda route: route.abort())
    page.locator("[name=word]").press("Enter")
    expect(page.locator("#yourself .ns-room-status")).to_have_text("No answer. Try again.")
    expect(page.locator(".ns-your-word [type=submit]")).to_be_enabled()
    page.unroute_all()
    page.get_by_label("Always draft mine").check()
    expect(page.locator(".ns-your-word output")).to_have_text("100%")
    page.locator("[name=word]").fill("hippopotamus")
    page.locator("[name=word]").press("Enter")
    expect(page.locator(".ns-your-words td[data-name=Drafted]")).to_have_text("hippopotamus")
    expect(page.locator(".ns-your-verdict")).to_contain_text("Your word was used")
    assert not scrolls_sideways(page)
    page.get_by_role("button", name="Start over").click()
    expect(page.get_by_label("The story begins")).to_be_focused()

    begin(page, "The fox looked at the")
    page.get_by_label("Always draft mine").uncheck()
    next_word = (
        "const form = document.querySelector('.ns-your-word'); form.elements.word.value = 'old';"
        " form.requestSubmit();"
    )
    as_soon_as(page, "document.querySelectorAll('.ns-your-words tbody tr').length === 1", next_word)
    write(page, "very", 100, 0)
    expect(page.locator(".ns-your-words tbody tr")).to_have_count(2)
