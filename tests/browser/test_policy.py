"""A real browser obeys the page's content security policy, and finds the page under any name.

In every test `open_page` sees to it that nothing breaks the policy and that nothing is fetched from elsewhere."""

from urllib.parse import urlsplit

from tests.browser.steps import run

PLANTED = """() => new Promise((resolve) => {
    document.addEventListener("securitypolicyviolation", ({ violatedDirective }) => resolve(violatedDirective));
    document.body.insertAdjacentHTML("beforeend", "<img src='none' onerror='window.planted = true'>");
})"""


def test_under_a_name_that_no_one_configured_the_page_works_asks_only_there_and_markup_in_it_runs_no_script(server, chromium):
    page = chromium.new_page()
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    name = f"lan.test:{urlsplit(server.url).port}"
    page.goto(f"http://{name}/")
    page.wait_for_selector("#tokens [data-step]")
    run(page, "Once upon a time there was a fox who", max_tokens=4)
    assert asked - {""} == {name}
    assert page.evaluate(PLANTED).startswith("script-src")
    assert page.evaluate("() => window.planted") is None
    page.close()
