"""Reading a run: pointing, the inspector, the keyboard."""

from playwright.sync_api import expect

from tests.browser.steps import TIP, ended, shown_run


def focused(page) -> dict[str, str]:
    return page.evaluate("({ ...document.activeElement.dataset })")


def test_a_token_shows_its_numbers_to_who_points_explains_itself_to_who_clicks_and_the_keyboard_does_it_all(page):
    ended(page)
    expect(page.locator("#inspector")).to_be_hidden()
    page.locator("#tokens [data-kind=rejected]").first.hover()
    tip = page.locator(TIP)
    expect(tip).to_be_visible()
    for words in ("rejected", "draft probability", "target probability", "acceptance probability", "draw"):
        expect(tip).to_contain_text(words)
    expect(page.locator("#rounds .ns-linked")).to_have_count(1)
    page.locator("#tokens [data-kind=resampled]").nth(1).click()
    expect(page.locator("#inspector h3")).to_contain_text("resampled")
    expect(tip).to_be_hidden()  # it would cover the explanation
    expect(page.locator("#inspector h3")).to_have_attribute("data-kind", "resampled")
    expect(page.locator(".ns-pinned")).to_have_count(2)
    expect(page.locator(".ns-zoom .ns-looked")).to_contain_text("resampled")
    expect(page.locator("#distributions tbody tr").first).to_be_visible()
    box = page.locator("#inspector").bounding_box()
    assert box["x"] + box["width"] <= page.viewport_size["width"]
    assert box["y"] + 200 <= page.viewport_size["height"]
    page.keyboard.press("Escape")
    expect(page.locator("#inspector")).to_be_hidden()

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
