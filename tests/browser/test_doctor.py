"""The doctor below the lessons examines pasted logs and reports those that it cannot read."""

from playwright.sync_api import expect

from naive_speculate.doctor import diagnose, estimated, read
from tests import engine_samples as samples
from tests.browser.steps import toast

FOUND = "#doctor .ns-findings"


def paste(page, text: str) -> None:
    """As by the clipboard, which a page cannot be asked to read."""
    page.locator("#doctor textarea").fill(text)


def test_it_examines_what_is_pasted_has_examples_and_says_what_cannot_be_read_or_is_not_answered(page):
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

    for engine in ("vLLM", "llama.cpp", "SGLang"):
        page.locator(f"#doctor [data-example='{engine}']").click()
        expect(page.locator(f"{FOUND} h3")).to_contain_text(engine)
        expect(page.locator("#doctor textarea")).not_to_have_value("")
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
