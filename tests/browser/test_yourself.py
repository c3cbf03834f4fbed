"""Draft it yourself: a visitor writes ten words, the target judges them, and a link carries beginning, draws and result."""

import re

from playwright.sync_api import expect

from tests.browser.steps import as_soon_as, scrolls_sideways, toast

WORDS = ["in", "a", "forest", "with", "his", "mother", "and", "he", "was", "happy"]


def begin(page, text: str = "") -> None:
    if text:
        page.get_by_label("The story begins").fill(text)
    page.locator(".ns-your-start [type=submit]").click()
    expect(page.locator("[name=word]")).to_be_focused()


def write(page, word: str, sure: int, number: int) -> None:
    """By keyboard, as on a phone: the word, the slider, Enter; Enter once more if the draw went against it."""
    page.locator("[name=word]").fill(word)
    page.locator("[name=sure]").fill(str(sure))
    page.locator("[name=word]").press("Enter")
    against = page.locator(".ns-your-verdict button")
    row = page.locator(f".ns-your-words tbody tr:nth-child({number + 1})")
    row.or_(against).first.wait_for()
    if against.is_visible():
        assert 0 < sure < 100
        expect(page.locator(".ns-your-verdict")).to_contain_text(f"The draw went against your word “{word}”")
        expect(row).to_have_count(0)
        expect(against).to_be_focused()
        page.keyboard.press("Enter")
    expect(row).to_be_visible()


def alphas(page, column: str) -> list[float]:
    return [float(cell) for cell in page.locator(f".ns-your-words td[data-name='{column}']").all_inner_texts()]


def test_ten_words_are_judged_and_come_to_an_alpha_that_a_link_carries(page):
    page.get_by_role("tab", name="Learn").click()
    page.locator("[data-room=yourself] > summary").click()
    begin(page, "Once upon a time there was a hen <b>who</b> lived")
    for number, word in enumerate(WORDS):
        write(page, word, 10 * number, number)
    story = page.locator(".ns-your-text")
    expect(story).to_contain_text("Once upon a time there was a hen <b>who</b> lived")
    kinds = story.locator(".ns-token").evaluate_all("(tokens) => tokens.map((token) => token.dataset.kind)")
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
    expect(share).to_have_attribute("data-link", re.compile("^http"))
    link = share.get_attribute("data-link")
    first_dice = page.locator(".ns-your-words tbody tr").first.inner_text()
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator(".ns-your-linked")).to_contain_text(f"reached α = {told[0]:.2f}")
    expect(page.get_by_label("The story begins")).to_have_value("Once upon a time there was a hen <b>who</b> lived")
    begin(page)
    write(page, WORDS[0], 0, 0)
    assert page.locator(".ns-your-words tbody tr").first.inner_text() == first_dice  # the same draws reject the same word
    page.get_by_role("button", name="Start over").click()
    begin(page)
    write(page, WORDS[0], 0, 0)
    assert page.locator(".ns-your-words tbody tr").first.inner_text() == first_dice
    page.get_by_role("button", name="Start over").click()
    page.get_by_label("The story begins").fill("There was a king")
    expect(page.locator(".ns-your-linked")).to_be_hidden()
    page.locator("[data-room=yourself] > summary").click()
    page.wait_for_function("() => !/room|text|dice|alpha/.test(location.search)")


def test_what_cannot_be_a_word_is_reported_the_game_goes_on_and_a_word_written_in_the_moment_of_a_verdict_is_judged_too(
    open_page,
):
    page = open_page("?room=yourself", shown=".ns-your-start", width=390, height=844)
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
    next_word = "const form = document.querySelector('.ns-your-word'); form.elements.word.value = 'old'; form.requestSubmit();"
    as_soon_as(page, "document.querySelectorAll('.ns-your-words tbody tr').length === 1", next_word)
    write(page, "very", 100, 0)
    expect(page.locator(".ns-your-words tbody tr")).to_have_count(2)
