"""What is measured after a run: the waterfall's formulas, the speedup that a trace keeps, what a
guide did to acceptance."""

import json
import re
from dataclasses import asdict
from itertools import product

import pytest
from playwright.sync_api import Page, expect

from naive_speculate import Trace
from naive_speculate.events.event import OUTPUT_KINDS
from naive_speculate.speculate.theory import break_even_alpha, expected_tokens, speedup
from tests.browser.steps import (
    TIP,
    as_soon_as,
    ended,
    link,
    linked,
    open_drawer,
    open_file,
    open_trace,
    run,
    script,
    see_chart,
    set_number,
    shown_run,
    start,
    text,
    toast,
    trace,
)
from tests.browser.test_charts import MEASURED
from tests.ui.drawn import drawn
from ui.charts.waterfall import ALPHA, PRESETS, values
from ui.run.controls import GUIDES
from ui.run.settings import TITLES

PROMPT = "Once upon a time there was a fox who"
SPEEDUP = "#stats .ns-tiles > div:nth-child(4)"
FIGURE = r"^\d+\.\d\d× \(\d+\.\d\d to \d+\.\d\d\)$"
COMPUTE = script("compute")


@pytest.fixture(scope="module")
def computed(scripts: Page):
    """What the scripts make of the presets, of a measured run, and of a laptop whose sliders
    were moved."""
    return scripts.evaluate(
        COMPUTE, [values(), asdict(MEASURED), [["k", 8], ["alpha", 0.5], ["draftCost", 0.3]]]
    )


def parts_of(
    tokens: float, k: float, draft_cost: float, check: float, measured: float | None = None
) -> list[float]:
    """Tokens per step; what checking, drafting and the rest take from them; the speedup that is
    left."""
    checked, drafted = tokens / check, tokens / (check + k * draft_cost)
    speedup = drafted if measured is None else measured
    return [tokens, checked - tokens, drafted - checked, speedup - drafted, speedup]


def test_the_browser_computes_what_the_library_does(computed):
    cases = list(product([0, 0.3, 0.75, 1], [1, 4, 9], [(0.1, 1), (0.4, 2.5)]))
    for (alpha, k, (draft_cost, check)), (tokens, parts, even, gain) in zip(
        cases, computed["grid"], strict=True
    ):
        assert tokens == pytest.approx(expected_tokens(alpha, k))
        assert gain == pytest.approx(speedup(alpha, k, draft_cost, check))
        assert parts == pytest.approx(parts_of(2.5, k, draft_cost, check))
        assert even == pytest.approx(break_even_alpha(k, draft_cost, check), abs=1e-6)


def test_a_measured_run_s_bars_lead_from_tokens_to_its_speedup_with_its_own_tokens_and_drafts(
    computed,
):
    figure = drawn(computed["figures"]["here"])
    bars = figure.data[0]
    assert list(bars.y) == pytest.approx(parts_of(3.1, 3.6, 0.08, 1.36, 1.6))
    for before, after in zip(
        range(3), range(1, 4), strict=True
    ):  # each begins where the one before it ends
        at = bars.base[before] + bars.y[before]
        assert bars.base[after] == pytest.approx(at)
    said = (
        "Measured after the run, over 60 tokens: a step gives 3.10 tokens and takes as long as 1.65"
        " plain passes"
    )
    assert said in figure.layout.meta
    four, between, five = computed["mean"]
    assert between == pytest.approx((four + five) / 2), "a mean number of draft tokens"
    assert "3.60 draft tokens per step pay off" in computed["advice"]["here"]
    assert "5 draft tokens per step pay off" in computed["advice"]["laptop"]
    here, laptop = computed["asked"]
    assert here == "Where did the measurement's 3.10 tokens per target pass go?", (
        "the run has others"
    )
    assert (
        laptop == f"Where did {expected_tokens(ALPHA, PRESETS[1].k):.2f} tokens per target pass go?"
    )


def test_other_machines_and_moved_sliders_are_calculated_from_the_machine_s_costs(computed):
    for preset in PRESETS:
        bars = drawn(computed["figures"][preset.key]).data[0]
        *found, other, total = parts_of(
            expected_tokens(ALPHA, preset.k), preset.k, preset.draft_cost, preset.check(preset.k)
        )
        assert other == 0
        assert list(bars.y) == pytest.approx([*found, total])
        best = max(range(17), key=lambda k: speedup(ALPHA, k, preset.draft_cost, preset.check(k)))
        assert f"Best would be k = {best}" in computed["advice"][preset.key]
    *found, _, total = parts_of(expected_tokens(0.5, 8), 8, 0.3, PRESETS[1].check(8))
    assert list(drawn(computed["moved"]).data[0].y) == pytest.approx([*found, total])
    assert "slower than without drafts" in drawn(computed["moved"]).layout.meta


def test_ended_runs_are_measured_and_raced_a_stopped_one_when_asked_and_a_trace_keeps_it(
    open_page, measuring, tmp_path
):
    page = open_page(
        link(prompt=PROMPT, max_tokens=32, temperature=0, ignore_eos=True), url=measuring
    )
    linked(page, PROMPT)
    run(page, PROMPT, k=3)
    figure = page.locator(f"{SPEEDUP} b")
    expect(figure).to_have_text(re.compile(FIGURE))
    expect(page.locator(".ns-result")).to_contain_text(
        re.compile(r"target passes instead of 32 · same text")
    )
    passes = page.locator(".ns-lane[data-lane=plain] .ns-track rect")
    expect(passes).to_have_count(32)  # the lane without drafts is the run that was measured
    saved = trace(page)
    assert saved.metrics.tokens_per_second
    found = saved[-1].speedup
    assert found.low <= found.value <= found.high
    assert found.machine
    see_chart(page, "chart-speedup")
    expect(page.locator("#chart-speedup")).to_contain_text("this run, measured")
    open_trace(page, saved, tmp_path / "kept.jsonl")
    expect(figure).to_have_text(f"{found.value:.2f}× ({found.low:.2f} to {found.high:.2f})")

    run(page, PROMPT, k=0)  # plain decoding is compared with itself
    expect(figure).to_have_text(re.compile(FIGURE))
    found = trace(page)[-1].speedup
    assert (found.num_draft_tokens, found.tokens_per_round, found.draft_cost) == (0, 1, None)
    assert found.low <= found.value <= found.high

    as_soon_as(
        page,
        f"stage.dataset.run !== '{shown_run(page)}'",
        "document.querySelector('#stop').click()",
    )
    start(page, PROMPT, max_tokens=900, k=4)
    ended(page)
    expect(page.locator(SPEEDUP)).to_contain_text("The run was stopped.")
    expect(figure).to_have_text("–")
    page.locator(f"{SPEEDUP} button").click()
    expect(figure).to_have_text(re.compile(FIGURE))
    expect(page.locator(f"{SPEEDUP} button")).to_be_hidden()


STORY = "Once upon a time there was a little fox who lived"
EFFECT = ".ns-guided"
TEXT = "#guided-text textarea"


def called(request) -> str:
    """The server's function that a request calls, or nothing."""
    return request.post_data_json["fn_name"] if "component_server" in request.url else ""


def guide_by(page, kind: str) -> None:
    page.locator("#guided input").click()
    page.get_by_role("option", name=TITLES.get(kind, "Nothing")).click()


def test_a_guide_is_chosen_by_example_its_schema_is_filled_in_and_a_bad_one_loses_nothing(page):
    expect(page.locator("#guided")).to_be_hidden()
    open_drawer(page)
    expect(page.locator("#guided")).to_be_visible()
    expect(page.locator("#guided-text")).to_be_hidden()
    for kind in GUIDES:
        guide_by(page, kind)
        expect(page.locator(TEXT)).to_have_value(GUIDES[kind])
    guide_by(page, "json")
    run(page, STORY, max_tokens=60)
    assert set(json.loads(text(page))) == {"animal", "name", "age"}
    expect(page.locator(EFFECT)).to_contain_text(
        re.compile(r"\d+ of \d+ tokens were forced: the guide allowed no other")
    )
    forced = [event for event in trace(page) if event.kind in OUTPUT_KINDS and event.forced]
    page.locator("#tokens [data-step]:not([hidden])").nth(forced[0].position).hover()
    expect(page.locator(TIP)).to_contain_text("forcedthe guide")
    before, shown = shown_run(page), text(page)
    guide_by(page, "regex")
    page.locator(TEXT).fill("([a-z")
    page.locator("#run").click()
    toast(page, "regex does not parse, got '\\(\\[a-z': .*unterminated character set")
    assert (shown_run(page), text(page)) == (before, shown)
    expect(page.locator(TEXT)).to_have_value("([a-z")
    guide_by(page, "json")
    expect(page.locator(TEXT)).to_have_value("([a-z")  # what the visitor wrote is not written over
    page.locator("#run").click()
    toast(page, "json does not parse")
    guide_by(page, "")
    expect(page.locator("#guided-text")).to_be_hidden()
    run(page, STORY, max_tokens=8)
    expect(page.locator(EFFECT)).to_be_hidden()


def test_a_guided_run_states_its_acceptance_and_keeps_its_guide_in_links_and_files(
    open_page, measuring, tmp_path
):
    page = open_page(url=measuring)
    ended(page)
    open_drawer(page)
    guide_by(page, "regex")
    expect(page.locator(TEXT)).to_have_value(GUIDES["regex"])
    calls: list[str] = []
    page.on("request", lambda request: calls.append(f"asked {called(request)}"))
    page.on("response", lambda response: calls.append(f"told {called(response.request)}"))
    run(page, STORY, max_tokens=60)
    assert re.fullmatch(GUIDES["regex"], text(page))
    expect(page.locator(EFFECT)).to_contain_text(
        re.compile(r"were accepted \(\d+ of \d+\); without the guide \d+% \(\d+ of \d+\)")
    )
    assert calls.index("told speedup") < calls.index("asked unguided"), "each needs quiet"
    assert trace(page).started.settings["guided_decoding"] == {"regex": GUIDES["regex"]}
    trace(page).save(tmp_path / "guided.jsonl")
    with page.expect_download() as download:
        page.get_by_text("Save as…").click()
        page.get_by_role("button", name="A page that replays by itself").click()
    download.value.save_as(tmp_path / "guided.html")
    page.locator("#share").click()
    page.wait_for_url("**guided=regex**")
    link = page.url
    set_number(page, "max-tokens", 61)

    page.goto("about:blank")
    page.goto(link)
    ended(page)
    open_drawer(page)
    expect(page.locator("#guided input")).to_have_value(TITLES["regex"])
    expect(page.locator(TEXT)).to_have_value(GUIDES["regex"])
    guide_by(page, "")
    open_file(page, tmp_path / "guided.jsonl")
    expect(page.locator("#guided input")).to_have_value(TITLES["regex"])
    expect(page.locator(TEXT)).to_have_value(GUIDES["regex"])
    expect(page.locator(EFFECT)).to_contain_text("were accepted")
    expect(page.locator(EFFECT)).not_to_contain_text("without the guide")  # it was not decoded here
    foreign = Trace.load(tmp_path / "guided.jsonl")
    foreign.started.settings["guided_decoding"] = {"choice": 1, "regex": None, "json": "{}"}
    open_trace(page, foreign, tmp_path / "foreign.jsonl")
    expect(page.locator(EFFECT)).to_contain_text("Guided by a JSON schema.")

    page.goto(f"file://{tmp_path / 'guided.html'}")
    page.get_by_role("button", name="To the end").click()
    expect(page.locator(EFFECT)).to_contain_text(GUIDES["regex"])
