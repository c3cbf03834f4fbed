"""What keeps the page smooth, counted: requests of a visit, paragraphs that a token touches, shapes that charts are made of."""

from naive_speculate import Trace
from naive_speculate.events import Event, EventKind
from tests.browser.steps import ended, open_drawer, run, see_chart, text

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


def rounds(amount: int) -> Trace:
    """A run of so many rounds with two drafts, of which one is kept."""
    events = [Event(EventKind.STARTED, 0.0, settings={"num_draft_tokens": 2})]
    for step in range(amount):
        time = 0.01 * (step + 1)
        events += [Event(EventKind.PROPOSED, time, step=step, index=index, token_id=1, text=" a") for index in range(2)]
        events.append(Event(EventKind.ACCEPTED, time, step=step, index=0, position=2 * step, token_id=1, text=" a"))
        events.append(Event(EventKind.REJECTED, time, step=step, index=1, token_id=1, text=" a"))
        events.append(Event(EventKind.RESAMPLED, time, step=step, index=1, position=2 * step + 1, token_id=1, text=" b"))
        took = {"draft_seconds": 0.002, "verify_seconds": 0.006, "total_seconds": 0.009}
        events.append(Event(EventKind.STEP, time, step=step, num_draft=2, num_accepted=1, **took))
    return Trace([*events, Event(EventKind.FINISHED, 0.01 * amount, finish_reason="length")])


def figures(scripts, trace: Trace) -> dict:
    return scripts.evaluate(
        """async (events) => {
            const [{ CHARTS }, { Sums }] = await Promise.all([import("/charts.js"), import("/summary.js")]);
            const sums = new Sums();
            for (const event of events) sums.add(event);
            const run = sums.at(events.length, sums.rounds.length);
            return Object.fromEntries(Object.entries(CHARTS).map(([name, chart]) => [name, chart(run)]));
        }""",
        [event.to_dict() for event in trace],
    )


def test_a_chart_of_many_rounds_is_an_outline_and_says_the_same_numbers(scripts):
    few, many = figures(scripts, rounds(12)), figures(scripts, rounds(300))
    for name, traces in (("chart-acceptance", 1), ("chart-timing", 3)):
        for figure, kind, amount in ((few[name], "bar", 12), (many[name], "scatter", 300)):
            shown = figure["data"][:traces]
            assert [trace["type"] for trace in shown] == [kind] * traces
            assert all(len(trace["x"]) == len(trace["y"]) == amount for trace in shown)
    assert many["chart-acceptance"]["data"][0]["y"] == [0.5] * 300
    heights = [trace["y"][7] for trace in many["chart-timing"]["data"]]
    assert [round(height, 6) for height in heights] == [2, 6, 1]
    assert all(not trace.get("marker") for trace in many["chart-timing"]["data"])


def test_charts_that_follow_a_run_are_laid_out_once(scripts):
    for figure in figures(scripts, rounds(20)).values():
        assert [figure["layout"][axis]["automargin"] for axis in ("xaxis", "yaxis")] == [False, False]
        assert min(figure["layout"]["margin"].values()) > 0


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
    page.route("**/plotly-cartesian*", lambda route: route.fulfill(body=f"{route.fetch().text()};{DRAWN}"))
    page.reload()
    see_chart(page, "chart-acceptance")
    see_chart(page, "chart-timing")
    (turn, traces, seen), *charts = page.evaluate("window.drawn")
    assert (traces, seen) == (0, False)
    turns = [turn, *(turn for turn, _, _ in charts)]
    assert len(turns) > 2
    assert len(set(turns)) == len(turns), "one chart in a turn"
    assert all(seen for _, _, seen in charts)
