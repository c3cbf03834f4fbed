"""One quantity, one number: the parts of the page agree with one another, with the trace, and on
a foreign run."""

import re
from pathlib import Path

from playwright.sync_api import Page, expect
from transformers import AutoModelForCausalLM, AutoTokenizer

from naive_speculate import EventKind, Trace, watch
from tests.browser.steps import ended, open_trace, run, scrolls_sideways, see_chart, text, trace
from ui.run.engines import RULES
from ui.run.figures import Figures
from ui.run.recorded import SPECULATIVE

DIALOG = "dialog.ns-others"


def open_others(page) -> None:
    """With the keyboard."""
    button = page.get_by_role("button", name="Other strategies")
    page.locator("#chart-lengths").scroll_into_view_if_needed()
    for node in (button, button.locator("..")):
        expect(node).to_have_css("opacity", "1")  # also to who is not over the chart
    button.focus()
    expect(button).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator(f"{DIALOG} h2")).to_be_focused()
    expect(page.locator(DIALOG)).to_be_visible()


def test_the_rules_of_other_engines_stand_next_to_the_acceptance_chart(page):
    ended(page)
    recorded = Trace.load(SPECULATIVE)
    last = max(n for n, event in enumerate(recorded) if event.kind == "step")
    engines = Figures().of(recorded.events, last)["engines"]
    card = page.locator(".ns-chart:has(#chart-acceptance) + .ns-engines")
    expect(card.locator("figcaption span")).to_have_text(engines["sentence"])
    paces = [f"{row['pace']:.2f}" for row in engines["rows"].values()]
    expect(card.locator("td:last-child")).to_have_text(paces)
    expect(card.locator("[data-own] em")).to_be_visible()
    expect(card.locator("em")).to_have_count(len(RULES))
    assert card.locator("em").filter(visible=True).count() == 1


def _an_old_trace_recorded_none(page: Page, tmp_path: Path) -> None:
    page.unroute_all()
    page.set_viewport_size({"width": 1440, "height": 900})
    page.reload()
    ended(page)
    open_others(page)
    rounds = page.locator(f"{DIALOG} .ns-others-round")
    expect(rounds).to_have_count(sum(event.kind == "step" for event in Trace.load(SPECULATIVE)))
    page.locator(f"{DIALOG} .ns-others-only input").uncheck()
    cut = rounds.evaluate_all(
        "(all) => all.filter((one) => one.scrollWidth > one.clientWidth).length"
    )
    assert cut == 0, "rounds whose last drafts are out of sight"
    page.locator(f"{DIALOG} [data-close]").click()
    old = Trace.load(SPECULATIVE)
    for event in old:
        event.others = event.typical_distances = None
        event.draft_top = event.target_top = event.residual_top = None
    open_trace(page, old, tmp_path / "old.jsonl")
    open_others(page)
    expect(page.locator(DIALOG)).to_contain_text(re.compile("Not recorded"))
    page.locator(f"{DIALOG} [data-close]").click()
    page.locator("#tokens [data-kind=accepted]").first.click()
    expect(page.locator("#distributions figcaption")).to_contain_text("recorded no distributions")
    expect(page.locator("#distributions .ns-odds")).to_be_hidden()
    expect(page.locator("#distributions .ns-pictures")).to_be_hidden()


def test_the_strategies_are_compared_on_the_run_s_drafts_and_an_old_trace_says_it_has_none(
    page, tmp_path
):
    run(page, "There was once a king who", max_tokens=24, k=4, seed=5, temperature=1)
    steps = [event for event in trace(page) if event.kind == "step" and event.num_draft]
    open_others(page)
    rounds = page.locator(f"{DIALOG} .ns-others-round")
    expect(rounds).to_have_count(len(steps))
    expect(page.locator(f"{DIALOG} [role=status]")).to_contain_text(
        "They differ in"
    )  # and no more is read out
    expect(page.locator(f"{DIALOG} :is([role=status], [aria-live]) table")).to_have_count(0)
    for name in ("greedy_match", "block_verification", "typical_acceptance"):
        kept = rounds.locator(f"tr[data-strategy={name}]").evaluate_all(
            "(rows) => rows.map((row) => +row.dataset.kept)"
        )
        assert kept == [step.others[name] for step in steps]
    own = rounds.locator("tr.ns-others-own")
    assert own.evaluate_all("(rows) => rows.map((row) => +row.dataset.kept)") == [
        step.num_accepted for step in steps
    ]
    first = rounds.first.locator("tr.ns-others-own td[data-verdict=accepted]")
    expect(first).to_have_count(steps[0].num_accepted)

    sums = page.locator(f"{DIALOG} .ns-others-sums tbody tr")
    tile = page.locator(".ns-tiles dd b").nth(1).inner_text()
    expect(sums.filter(has_text="this run").locator("td").first).to_contain_text(
        f"{tile} tokens per target pass"
    )
    expected = {
        row.get_attribute("data-strategy"): float(row.locator("td").nth(1).inner_text().split()[0])
        for row in sums.all()
    }
    assert expected["block_verification"] >= expected["speculative_sampling"]

    parting = sum(len({*step.others.values(), step.num_accepted}) > 1 for step in steps)
    page.get_by_label("Only steps where they differ").check()
    expect(rounds.filter(visible=True)).to_have_count(parting)
    page.keyboard.press("Escape")
    expect(page.locator(DIALOG)).to_be_hidden()

    page.set_viewport_size({"width": 390, "height": 844})
    open_others(page)
    expect(rounds).to_have_count(len(steps))
    expect(rounds.filter(visible=True)).to_have_count(len(steps))  # the box comes unchecked
    assert not scrolls_sideways(page)
    wide = page.locator(DIALOG).evaluate("(dialog) => dialog.scrollWidth - dialog.clientWidth")
    assert wide <= 0
    page.locator(f"{DIALOG} [data-close]").click()
    page.route("**/component_server/**", lambda route: route.abort())
    open_others(page)
    expect(page.locator(DIALOG)).to_contain_text("does not answer. Try again.")
    page.locator(f"{DIALOG} [data-close]").click()
    _an_old_trace_recorded_none(page, tmp_path)


def tile(page: Page, number: int) -> tuple[str, str]:
    """A tile's figure and its note."""
    node = page.locator(f".ns-tiles > div:nth-child({number}) dd")
    return node.locator("b").text_content(), node.locator("span").text_content()


VALUES = "(place) => place.data.flatMap((trace) => [...(trace.x || []), ...(trace.y || [])])"


def a_run_of_transformers_is_explained(page, small_pair, tmp_path):
    """Its tokens have the numbers of its events, and its charts have values."""
    target, draft = map(AutoModelForCausalLM.from_pretrained, small_pair)
    draft.generation_config.update(
        num_assistant_tokens=4,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    options = {
        "tokenizer": AutoTokenizer.from_pretrained(small_pair[0]),
        "seed": 3,
        "max_new_tokens": 24,
    }
    ways = {
        ("accepted", "rejected"): {"do_sample": True, "temperature": 1.0, "top_k": 0},
        ("accepted",): {"do_sample": False},
    }
    for kinds, way in ways.items():
        trace = watch(target, draft, "Once upon a time", **options, **way)
        open_trace(page, trace, tmp_path / "transformers.jsonl")
        assert text(page) == trace.text
        expect(page.locator(".ns-title")).to_contain_text(trace.started.settings["engine"])
        for kind in kinds:
            number, event = next((n, event) for n, event in enumerate(trace) if event.kind == kind)
            page.locator(
                f"#tokens [data-step='{event.step}'][data-index='{event.index}'][data-kind={kind}]"
            ).click()
            expect(page.locator(".ns-why")).to_have_attribute("data-event", str(number))
            expect(page.locator("#distributions tbody tr").first).to_be_visible()
            for value in (event.target_prob, event.draft_prob, event.uniform):
                if value is not None:
                    expect(page.locator("#why .inspector-details")).to_contain_text(f"{value:.6g}")
        for chart in ("chart-acceptance", "chart-positions", "chart-lengths", "chart-timing"):
            see_chart(page, chart)
            page.wait_for_function(
                f"(chart) => ({VALUES})(document.getElementById(chart)).length", arg=chart
            )  # of this run
            values = page.locator(f"#{chart}").evaluate(VALUES)
            assert all(isinstance(value, (int, float)) for value in values), (chart, values)
        words = page.locator("body").inner_text()
        assert not [missing for missing in ("NaN", "undefined", "Infinity") if missing in words]


def test_every_part_says_the_same_of_a_run_that_is_cut_off_and_shows_one_of_transformers(
    page, small_pair, tmp_path
):
    found = Trace.load(SPECULATIVE)
    last = max(event.step for event in found if event.kind == "step" and event.num_accepted > 1)
    accepted = [event for event in found if event.step == last and event.kind == "accepted"]
    after = [
        event for event in found if event.step == last and event.kind in ("resampled", "bonus")
    ]
    found.events = [event for event in found if event.step is None or event.step <= last]
    cut = [accepted[-1], *after]
    for event in cut:  # as where a stop string is found before them
        event.kind, event.reason = EventKind.DISCARDED, "stop"
    open_trace(page, found, tmp_path / "cut.jsonl")
    metrics = found.metrics
    kinds = [str(event.kind) for event in found]
    counts = {kind: kinds.count(kind) for kind in ("accepted", "rejected", "discarded")}
    fates = (
        f"accepted {counts['accepted']}, rejected {counts['rejected']} and discarded"
        f" {counts['discarded']} (with "
    )
    expect(page.locator(".ns-sentence")).to_contain_text(fates)
    share, note = tile(page, 1)
    assert note.startswith(fates)
    assert f"α = {metrics.alpha:.2f} of {metrics.num_judged} judged positions" in note
    expect(page.locator("#chart-acceptance")).to_have_attribute(
        "aria-label", re.compile(rf" draft tokens accepted: {share}$")
    )
    pace, note = tile(page, 2)
    assert pace == f"{metrics.mean_acceptance_length:.2f}"
    assert f"with {len(cut)} tokens after the end of the text" in note
    expect(page.locator("#chart-lengths")).to_have_attribute(
        "aria-label", re.compile(rf"\. {pace} tokens per target pass")
    )
    open_others(page)
    own = page.locator(f"{DIALOG} .ns-others-sums tr", has_text="this run").locator("td").first
    expect(own).to_have_text(
        f"{metrics.num_accepted_draft_tokens} of {metrics.num_draft_tokens} {pace} tokens per"
        " target pass"
    )
    page.locator(f"{DIALOG} [data-close]").click()

    a_run_of_transformers_is_explained(page, small_pair, tmp_path)


def test_what_was_measured_after_the_run_is_called_so_wherever_it_stands_and_sliders_need_no_server(
    page,
):
    found = trace(page)
    measured, metrics = found[-1].speedup, found.metrics
    assert f"{measured.tokens_per_round:.2f}" != f"{metrics.mean_acceptance_length:.2f}"
    rate, note = tile(page, 3)
    assert (rate, note) == (
        f"{metrics.tokens_per_second:.0f}",
        "this run, including prompt processing",
    )
    speedup, note = tile(page, 4)
    assert speedup == f"{measured.value:.2f}× ({measured.low:.2f} to {measured.high:.2f})"
    assert note.startswith("Measured again, without the prompt: ")
    assert measured.machine in note
    pace = f"{measured.tokens_per_round:.2f} tokens per target pass"
    assert f"{measured.rate:.0f} with drafts ({pace})" in note
    board = page.locator("#waterfall")
    expect(board.locator("figcaption")).to_contain_text(f"Where did the measurement's {pace} go?")
    expect(board.locator("figcaption")).to_contain_text(f"Measured: {measured.value:.2f}×")
    alpha = found.expected_acceptance.alpha
    expect(
        board.locator("label", has=page.locator("[data-value=alpha]")).locator("output")
    ).to_have_text(f"{alpha:.2f}")
    expect(page.locator("#chart-speedup")).to_have_attribute(
        "aria-label", re.compile(f"Exact α = {alpha:.2f};")
    )
    best = re.search(
        r"Best would be k = \d+: [\d.]+×",
        page.locator("#chart-speedup").get_attribute("aria-label"),
    )[0]
    expect(board.locator(".ns-what-if > p")).to_contain_text(best)
    cost = re.search(r"as long as ([\d.]+) plain", board.locator("figcaption").inner_text())[1]
    divided = (
        f"{measured.tokens_per_round:.2f} ÷ {cost} = {measured.tokens_per_round / float(cost):.2f}×"
    )
    expect(board.locator("figcaption")).to_contain_text(
        divided
    )  # who divides what is shown finds what is said
    see_chart(page, "chart-speedup")
    expect(page.locator("#charts figure:has(#chart-speedup) figcaption")).to_contain_text(best)

    see_chart(page, "chart-waterfall")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    board.locator("[data-machine=laptop]").click()
    cost = (
        board.locator("label", has=page.locator("[data-value=draftCost]"))
        .locator("output")
        .text_content()
    )
    expect(board.locator("details li").nth(1)).to_contain_text(f"drafting a token {cost} passes")
    board.locator("[data-value=alpha]").fill("0.4")
    expect(board.locator("figcaption")).to_contain_text("slower than without drafts")
    expect(board.locator("[data-machine=laptop]")).to_have_attribute("aria-pressed", "false")
    board.locator("[data-machine=here]").click()
    expect(board.locator("figcaption")).to_contain_text("Measured")
    assert asked == []
