"""Run and Stop: a prompt goes in, and the library's tokens come out, smoothly; of long and bumpy
runs nothing is lost."""

import re
from collections import Counter
from itertools import pairwise

from playwright.sync_api import expect

from naive_speculate import SamplingParams
from naive_speculate.events.event import OUTPUT_KINDS
from tests.browser.steps import (
    another_run,
    as_soon_as,
    ended,
    link,
    linked,
    open_drawer,
    run,
    script,
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
SHOWN = "[...document.querySelectorAll('#tokens [data-step]')]"


def what_cannot_be_run_is_refused_by_name(page):
    """At its field, and the run that is shown stays."""
    before, tokens = shown_run(page), visible_tokens(page)
    page.locator("#prompt textarea").fill("   ")
    page.locator("#run").click()
    toast(page, "prompt is empty")
    for value, words in (
        ("", "Max tokens must be a whole number"),
        (12.7, "Max tokens must be a whole number, got 12.7"),
    ):
        set_number(page, "max-tokens", value)
        page.locator("#run").click()
        toast(page, words)
        field = page.locator("#max-tokens")
        expect(field).to_contain_text(words)
        expect(field.locator("input")).to_be_focused()
        set_number(page, "max-tokens", 8)
        expect(field.locator("[aria-invalid]")).to_have_count(0)
        expect(page.get_by_test_id("toast-body")).to_have_count(0)
    assert (shown_run(page), visible_tokens(page)) == (before, tokens)


def test_what_cannot_be_run_is_refused_by_name_and_a_prompt_becomes_the_library_s_tokens(
    page, small_decoder
):
    what_cannot_be_run_is_refused_by_name(page)
    run(page, PROMPT, max_tokens=24, seed=3, k=2)
    for kind in KINDS:
        token = page.locator(f"#tokens [data-kind={kind}]").first
        token.wait_for(state="attached")
        for name in ("data-step", "data-index", "data-token-id"):
            assert int(token.get_attribute(name)) >= 0
    result = small_decoder.generate(
        PROMPT, SamplingParams(temperature=0.7, max_tokens=24, seed=3), num_draft_tokens=2
    )
    shown = page.evaluate(
        f"{SHOWN}.map(({{ dataset }}) => [dataset.kind, Number(dataset.tokenId)])"
    )
    assert [token_id for kind, token_id in shown if kind in OUTPUT_KINDS] == result.token_ids
    saved = trace(page)
    assert text(page) == saved.text == result.text
    assert Counter(kind for kind, _ in shown if kind in KINDS) == Counter(
        e.kind.value for e in saved if e.kind.value in KINDS
    )
    assert page.locator("#rounds .ns-round").count() == saved.metrics.num_spec_steps
    expect(page.locator("#stats")).to_contain_text(f"{saved.metrics.draft_acceptance_rate:.0%}")
    expect(page.locator("#stats")).to_contain_text(f"{saved.metrics.mean_acceptance_length:.2f}")
    for name in ("prompt", "run", "tokens", "rounds", "stats"):
        expect(page.locator(f"#{name}")).to_be_visible()
    for name in (
        "stop",
        "inspector",
    ):  # there while something is decoded, and once a token is chosen
        expect(page.locator(f"#{name}")).to_be_hidden()

    set_number(page, "max-tokens", 4)
    page.keyboard.press("Shift+Tab")
    expect(page.locator("#max-tokens input")).to_have_css(
        "outline-style", "solid"
    )  # the field shows that it has the focus
    hostile = (
        "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>\u202eevil\u200b"
        " ${window.hit=1} {{hit}}"
    )
    run(page, hostile)
    assert "".join(page.locator("#tokens [data-kind=prompt]").all_text_contents()) == hostile
    assert page.evaluate("window.hit") is None
    assert page.locator("#tokens img, #tokens script").count() == 0


def test_a_second_run_takes_the_place_of_the_first_and_stop_ends_the_decoding_itself(page):
    open_drawer(page)
    page.get_by_label(
        "Ignore the end token"
    ).check()  # else the model may end the text before Stop does
    as_soon_as(page, "document.querySelector('#stop').checkVisibility()", "window.couldStop = true")
    start(page, PROMPT, max_tokens=900, k=0)
    page.wait_for_function("window.couldStop")  # however soon the run is over
    run(page, "The hen said", max_tokens=12, seed=5)
    assert trace(page).started.prompt == "The hen said"
    assert "".join(page.locator("#tokens [data-kind=prompt]").all_text_contents()) == "The hen said"
    assert visible_tokens(page) > 0
    assert page.evaluate(f"[...new Set({SHOWN}.map(e => e.dataset.kind))]") == ["bonus"], (
        "plain decoding, since k = 0"
    )
    expect(page.locator("#stats")).to_contain_text("Plain decoding")
    as_soon_as(
        page,
        f"stage.dataset.run !== '{shown_run(page)}'",
        "document.querySelector('#stop').click()",
    )
    start(page, PROMPT, max_tokens=900)
    ended(page)
    saved = trace(page)
    assert saved.finished.finish_reason == "cancelled"
    expect(page.locator(".ns-said[role=status]")).to_have_text(
        re.compile(r"^Run stopped: \d+ tokens in \d+ steps")
    )
    assert len(saved.token_ids) < 900


TOUCHED = script("touched")


ASKED = """() => performance.getEntriesByType("resource")
    .filter(({ name }) => name.includes("/queue/join")).length"""


def test_only_links_ask_the_server_for_settings_and_a_paragraph_that_is_over_is_touched_no_more(
    page,
):
    page.evaluate(TOUCHED)
    prompt = "The first line.\nThe second line.\nOnce upon a time"
    run(page, prompt, max_tokens=20, seed=5)
    paragraphs = page.locator("#tokens .ns-paragraph").evaluate_all(
        "(all) => all.map((one) => one.textContent)"
    )
    assert [one for one in paragraphs if one][:2] == ["The first line.\n", "The second line.\n"]
    assert all("\n" not in one.rstrip("\n") for one in paragraphs[:-1])
    assert "".join(page.locator("#tokens [data-kind=prompt]").all_text_contents()) == prompt
    assert text(page)
    # From the whole of the prompt on: its own paragraphs were made in the same turn.
    page.evaluate("() => window.touched.clear()")
    page.locator("[data-act=back]").click()
    page.wait_for_function("() => window.touched.size > 0")
    assert page.evaluate("() => Math.min(...window.touched)") >= 2

    assert page.evaluate(ASKED) == 1, "but the run, nothing"
    page.goto(page.url.split("?")[0] + "?max_tokens=33")
    open_drawer(page)
    page.wait_for_function("() => document.querySelector('#max-tokens input')?.value === '33'")
    assert page.evaluate(ASKED) == 1


COUNT_FRAMES = """
    const ask = window.requestAnimationFrame;
    window.asked = { all: 0, trackers: 0 };
    window.requestAnimationFrame = (callback) => {
        asked.all += 1;
        asked.trackers += new Error().stack.split("\\n").slice(1, 4).join()
          .includes("statustracker");  // the caller
        return ask.call(window, callback);
    };
"""
"""Before any of the page's scripts, which keep what they find."""


TURNS = """
    const idle = window.requestIdleCallback.bind(window);
    window.turn = 0;
    window.requestIdleCallback = (act, ...rest) => idle((left) => { window.turn += 1; act(left); },
      ...rest);
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


def test_a_page_on_which_nothing_moves_asks_for_no_frames_and_no_chart_waits_for_plotly_s_setup(
    server, chromium
):
    with chromium.new_context() as context:
        page = context.new_page()
        for script in (COUNT_FRAMES, TURNS):
            page.add_init_script(script)
        script = "text/javascript"
        page.route(
            "**/plotly-cartesian*",
            lambda route: route.fulfill(
                body=f"{route.fetch().text()};{DRAWN}", content_type=script
            ),
        )
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

        for chart in ("chart-acceptance", "chart-timing"):
            see_chart(page, chart)
        turns, traces, seen = zip(*page.evaluate("window.drawn"), strict=True)
        assert (traces[0], seen[0], all(seen[1:])) == (0, False, True)
        assert len(turns) > 2
        assert len(set(turns)) == len(turns), "one chart in a turn"


LONG_PROMPT = "Once upon a time there was an old man who"

FRAME_MS = 8  # as assets/js/stage.js has it
# Each look at the clock takes a millisecond, all else next to nothing: what a frame draws does not
# depend on the machine.
WATCH_FRAMES = script("watch_frames")


def test_a_long_run_keeps_the_page_smooth_and_a_hidden_a_paused_and_a_scrolled_page_lose_nothing(
    open_page,
):
    page = open_page(
        link(prompt=LONG_PROMPT, max_tokens=120, temperature=1, seed=2, ignore_eos=True)
    )
    linked(page, LONG_PROMPT)
    page.evaluate(WATCH_FRAMES)
    as_soon_as(
        page,
        "stage.dataset.run !== 'recorded' && stage.querySelectorAll('#rounds .ns-round').length"
        " > 15",
        "window.rows = stage.querySelectorAll('#rounds .ns-round').length;"
        " stage.querySelector('#rounds').scrollTop = 0",
    )
    run(page, LONG_PROMPT)
    assert text(page) == trace(page).text
    shown = shown_run(page)
    frames = [
        (cursor, changes)
        for name, cursor, changes in page.evaluate("window.frames")
        if name == shown
    ]
    assert max(after - before for (before, _), (after, _) in pairwise(frames)) <= 2 * FRAME_MS
    assert max(changes for _, changes in frames) < 8 * FRAME_MS  # whatever the length of the run
    page.evaluate("delete performance.now")
    assert page.locator("#rounds .ns-round").count() > page.evaluate("window.rows") + 5
    assert page.locator("#rounds").evaluate("(box) => box.scrollTop") == 0, (
        "a reader who scrolled away keeps the place"
    )

    page.locator("#run").click()
    another_run(page, shown)
    page.get_by_role("tab", name="Explore").click()
    expect(page.locator("#tokens")).to_be_hidden()
    page.locator(".ns-stage[data-state=done]").wait_for(state="attached")
    page.get_by_role("tab", name="Run").click()
    ended(page)
    assert text(page) == trace(page).text, (
        "a panel that was hidden during the run has missed nothing"
    )

    set_number(page, "k", 0)
    shown = shown_run(page)
    as_soon_as(
        page,
        f"stage.dataset.run !== '{shown}' && document.querySelector('.ns-play[data-going=true]')",
        "document.querySelector('.ns-play').click(); window.held = stage.dataset.cursor",
    )
    page.locator("#run").click()
    another_run(page, shown)
    page.locator(".ns-stage[data-state=done]").wait_for()
    assert page.locator(".ns-stage").get_attribute("data-cursor") == page.evaluate("window.held")
    page.get_by_role("button", name="To the end", exact=True).click()
    ended(page)
    assert text(page) == trace(page).text
