"""What keeps the page smooth, counted, and long and bumpy runs, of which nothing is lost."""

from itertools import pairwise

from playwright.sync_api import expect

from tests.browser.steps import (
    another_run,
    as_soon_as,
    ended,
    link,
    linked,
    open_drawer,
    run,
    see_chart,
    set_number,
    shown_run,
    text,
    trace,
)

TOUCHED = """() => {
    window.touched = new Set();
    new MutationObserver((changes) => {
        for (const { target } of changes) {
            const node = target instanceof Element ? target : target.parentElement;
            const paragraph = node.closest(".ns-paragraph");
            if (paragraph) window.touched.add([...document.querySelectorAll("#tokens .ns-paragraph")].indexOf(paragraph));
        }
    }).observe(document.querySelector("#tokens"), { subtree: true, childList: true, attributes: true, characterData: true });
}"""


def test_only_links_ask_the_server_for_settings_and_a_paragraph_that_is_over_is_touched_no_more(open_page):
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/queue/join" in request.url else None)
    page.reload()
    page.wait_for_selector("#tokens [data-step]")
    ended(page)
    page.evaluate(TOUCHED)
    prompt = "The first line.\nThe second line.\nOnce upon a time"
    run(page, prompt, max_tokens=20, seed=5)
    paragraphs = page.locator("#tokens .ns-paragraph").evaluate_all("(all) => all.map((one) => one.textContent)")
    assert [one for one in paragraphs if one][:2] == ["The first line.\n", "The second line.\n"]
    assert all("\n" not in one.rstrip("\n") for one in paragraphs[:-1])
    assert "".join(page.locator("#tokens [data-kind=prompt]").all_text_contents()) == prompt
    assert text(page)
    # From the whole of the prompt on: its own paragraphs were made in the same turn.
    page.evaluate("() => window.touched.clear()")
    page.locator("[data-act=back]").click()
    page.wait_for_function("() => window.touched.size > 0")
    assert page.evaluate("() => Math.min(...window.touched)") >= 2

    before = len(asked)
    assert before == 1, "but the run, nothing"
    page.goto(page.url.split("?")[0] + "?max_tokens=33")
    open_drawer(page)
    page.wait_for_function("() => document.querySelector('#max-tokens input')?.value === '33'")
    assert len(asked) == before + 1


COUNT_FRAMES = """
    const ask = window.requestAnimationFrame;
    window.asked = { all: 0, trackers: 0 };
    window.requestAnimationFrame = (callback) => {
        asked.all += 1;
        asked.trackers += new Error().stack.split("\\n").slice(1, 4).join().includes("statustracker");  // the caller
        return ask.call(window, callback);
    };
"""
"""Before any of the page's scripts, which keep what they find."""


def test_a_page_on_which_nothing_moves_asks_for_no_frames(server, chromium):
    with chromium.new_context(reduced_motion="reduce") as context:
        page = context.new_page()
        page.add_init_script(COUNT_FRAMES)
        page.goto(server.url)
        ended(page)
        quiet = """async (tries) => {  // a second without any; the last ones may come late
            do {
                asked.all = 0;
                await new Promise((done) => setTimeout(done, 1000));
            } while (asked.all && (tries -= 1));
            return asked.all;
        }"""
        assert page.evaluate(quiet, 30) == 0
        page.evaluate("asked.trackers = 0")
        run(page, "Once upon a time", max_tokens=12)
        assert page.evaluate("asked.trackers") > 0, "what counts the seconds of a run still does"


TURNS = """
    const idle = window.requestIdleCallback.bind(window);
    window.turn = 0;
    window.requestIdleCallback = (act, ...rest) => idle((left) => { window.turn += 1; act(left); }, ...rest);
"""
DRAWN = """
    window.drawn = [];
    for (const name of ["newPlot", "react"]) {
        const draw = Plotly[name];
        Plotly[name] = (place, data, ...rest) => {
            window.drawn.push([window.turn, data.length, document.contains(place)]);
            return draw(place, data, ...rest);
        };
    }
"""


def test_the_first_chart_does_not_wait_for_what_plotly_does_once_and_for_all(open_page):
    page = open_page(locale="en")  # a context of its own
    page.add_init_script(TURNS)
    script = "text/javascript"
    page.route("**/plotly-cartesian*", lambda route: route.fulfill(body=f"{route.fetch().text()};{DRAWN}", content_type=script))
    page.reload()
    see_chart(page, "chart-acceptance")
    see_chart(page, "chart-timing")
    turns, traces, seen = zip(*page.evaluate("window.drawn"), strict=True)
    assert (traces[0], seen[0], all(seen[1:])) == (0, False, True)
    assert len(turns) > 2
    assert len(set(turns)) == len(turns), "one chart in a turn"


PROMPT = "Once upon a time there was an old man who"

FRAME_MS = 8  # as assets/js/stage.js has it
# Each look at the clock takes a millisecond more: what is drawn in a frame does not depend on the machine then.
WATCH_FRAMES = """
    const now = performance.now.bind(performance), stage = document.querySelector(".ns-stage");
    let looks = 0;
    performance.now = () => now() + ++looks;
    window.frames = [];
    new MutationObserver((changes) => window.frames.push([stage.dataset.run, Number(stage.dataset.cursor), changes.length]))
        .observe(stage, { subtree: true, childList: true, attributes: true });
"""


def test_a_long_run_keeps_the_page_smooth_and_a_hidden_a_paused_and_a_scrolled_page_lose_nothing(open_page):
    page = open_page(link(prompt=PROMPT, max_tokens=240, temperature=1, seed=2, ignore_eos=True))
    linked(page, PROMPT)
    page.evaluate(WATCH_FRAMES)
    as_soon_as(
        page,
        "stage.dataset.run !== 'recorded' && stage.querySelectorAll('#rounds .ns-round').length > 15",
        "window.rows = stage.querySelectorAll('#rounds .ns-round').length; stage.querySelector('#rounds').scrollTop = 0",
    )
    run(page, PROMPT)
    assert text(page) == trace(page).text
    shown = shown_run(page)
    frames = [(cursor, changes) for name, cursor, changes in page.evaluate("window.frames") if name == shown]
    assert max(after - before for (before, _), (after, _) in pairwise(frames)) <= FRAME_MS
    assert max(changes for _, changes in frames) < 8 * FRAME_MS  # whatever the length of the run
    assert page.locator("#rounds .ns-round").count() > page.evaluate("window.rows") + 5
    assert page.locator("#rounds").evaluate("(box) => box.scrollTop") == 0, "a reader who scrolled away keeps the place"

    page.locator("#run").click()
    another_run(page, shown)
    page.get_by_role("tab", name="Explore").click()
    expect(page.locator("#tokens")).to_be_hidden()
    page.locator(".ns-stage[data-state=done]").wait_for(state="attached")
    page.get_by_role("tab", name="Run").click()
    ended(page)
    assert text(page) == trace(page).text, "a panel that was hidden during the run has missed nothing"

    set_number(page, "k", 0)
    shown = shown_run(page)
    as_soon_as(
        page,
        f"stage.dataset.run !== '{shown}' && stage.querySelector('[aria-label=Pause]')",
        "stage.querySelector('[aria-label=Pause]').click(); window.held = stage.dataset.cursor",
    )
    page.locator("#run").click()
    another_run(page, shown)
    page.locator(".ns-stage[data-state=done]").wait_for()
    assert page.locator(".ns-stage").get_attribute("data-cursor") == page.evaluate("window.held")
    page.get_by_role("button", name="To the end", exact=True).click()
    ended(page)
    assert text(page) == trace(page).text
