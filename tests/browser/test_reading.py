"""Reading a run: legend, pointing, the keyboard, the inspector."""

from playwright.sync_api import expect

from tests.browser.steps import TIP, ended


def focused(page) -> dict[str, str]:
    return page.evaluate("({ ...document.activeElement.dataset })")


def test_pointing_at_a_token_shows_its_numbers_in_both_views(page):
    ended(page)
    token = page.locator("#tokens [data-kind=rejected]").first
    token.hover()
    tip = page.locator(TIP)
    expect(tip).to_be_visible()
    for words in ("rejected", "draft probability", "target probability", "acceptance probability", "draw"):
        expect(tip).to_contain_text(words)
    expect(page.locator("#rounds .ns-linked")).to_have_count(1)


def test_a_click_explains_the_token(page):
    ended(page)
    token = page.locator("#tokens [data-kind=resampled]").nth(1)
    token.click()
    expect(page.locator("#inspector h3")).to_contain_text("resampled")
    expect(page.locator("#inspector h3")).to_have_attribute("data-kind", "resampled")
    expect(page.locator(".ns-pinned")).to_have_count(2)
    expect(page.locator("#distributions tbody tr").first).to_be_visible()


def test_arrow_keys_move_between_tokens_and_enter_explains(page):
    ended(page)
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


def test_one_token_of_each_view_is_in_the_tab_order(page):
    ended(page)
    for box in ("#tokens", "#rounds"):
        expect(page.locator(f"{box} [tabindex='0']")).to_have_count(1)


def test_the_run_can_be_started_with_the_keyboard_alone(page):
    ended(page)
    page.locator("#prompt textarea").focus()
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
        if reached[-1] == "run":
            break
    assert reached[-1] == "run"
    page.keyboard.press("Enter")
    expect(page.locator(".ns-badge")).not_to_have_text("recorded")
