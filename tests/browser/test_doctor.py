"""The doctor below the lessons examines pasted logs and reports those that it cannot read."""

import re

from playwright.sync_api import expect

from naive_speculate.doctor import diagnose, estimated, read
from tests import engine_samples as samples
from tests.browser.steps import scrolls_sideways, toast

FOUND = ".ns-findings"


def paste(page, text: str) -> None:
    """As by the clipboard, which a page cannot be asked to read."""
    page.locator("#doctor textarea").fill(text)


def test_it_opens_from_the_learn_tab_and_examines_what_is_pasted(page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
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
    for name, traces in (("places", 3), ("windows", 3)):
        page.locator(f"#doctor [data-chart={name}] .main-svg").first.wait_for()
        drawn = page.locator(f"#doctor [data-chart={name}]").evaluate("(place) => place.data.map((trace) => [...trace.y])")
        assert len(drawn) == traces
        assert all(isinstance(value, (int, float)) for values in drawn for value in values)
    bars = page.locator("#doctor [data-chart=places]").evaluate("(place) => [...place.data[0].y]")
    assert bars == list(found.conditional)
    limits = page.locator("#doctor [data-chart=windows]").evaluate("(place) => [...place.data[0].y]")
    assert limits == [window.break_even_draft_cost for window in found.windows[: len(limits)]]
    page.get_by_text("Full report as text").click()
    expect(page.locator("#doctor pre")).to_contain_text("pays if a draft costs less than")

    server = re.match(r"https?://[^/]+/", page.url)[0]
    assert all(url.startswith(server) for url in asked if url.startswith("http"))  # nothing is fetched from elsewhere


def test_every_engine_has_an_example_to_click(page):
    page.goto(page.url + "?room=doctor")
    for engine in ("vLLM", "llama.cpp", "SGLang"):
        page.locator(f"#doctor [data-example='{engine}']").click()
        expect(page.locator(f"{FOUND} h3")).to_contain_text(engine)
        expect(page.locator("#doctor textarea")).not_to_have_value("")


def test_without_an_answer_it_says_so_and_can_be_asked_again(page):
    page.goto(page.url + "?room=doctor")
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


def test_what_cannot_be_read_is_told_and_what_was_found_before_is_gone(page):
    page.goto(page.url + "?room=doctor")
    page.locator("#doctor [data-example=vLLM]").click()
    expect(page.locator(FOUND)).to_be_visible()
    for log, cost, words in (
        ("hello <b>there</b>", "", "none of the supported formats"),
        (samples.VLLM_LOG, "cheap", "“Draft cost” must be a number"),
        (samples.VLLM_LOG, "0", "“Draft cost” must be positive"),
        ("x" * 100_001, "", "may have at most 100,000 characters"),
        ("n_drafted = " + "9" * 400 + "\nn_accept = 5\nn_predict = 10\n", "", "impossible|larger than any"),
    ):
        paste(page, log)
        page.get_by_role("textbox", name="Draft cost").fill(cost)
        page.locator("#doctor [type=submit]").click()
        toast(page, words)
        expect(page.locator(FOUND)).to_be_hidden()
        expect(page.locator("#doctor [type=submit]")).to_be_enabled()


def test_on_a_phone_nothing_is_cut_and_the_link_leads_to_it(open_page):
    page = open_page(width=390, height=844)
    page.goto(page.url + "?room=doctor")
    page.locator("#doctor [data-example=vLLM]").click()
    page.locator("#doctor [data-chart=windows]").scroll_into_view_if_needed()  # charts are drawn when they come into sight
    page.locator("#doctor [data-chart=windows] .main-svg").first.wait_for()
    assert not scrolls_sideways(page)
    page.get_by_role("tab", name="Run").click()
    page.wait_for_function("() => !location.search.includes('room=')")
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator(FOUND)).to_be_visible()
