"""What other strategies would have made of the shown run, opened from the chart of kept lengths."""

import re

from playwright.sync_api import expect

from naive_speculate import Trace
from tests.browser.steps import another_run, ended, run, scrolls_sideways, shown_run, trace
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


def test_the_strategies_stand_side_by_side_on_the_runs_own_drafts_and_an_old_trace_says_that_it_recorded_none(page, tmp_path):
    run(page, "There was once a king who", max_tokens=24, k=4, seed=5, temperature=1)
    steps = [event for event in trace(page) if event.kind == "step" and event.num_draft]
    open_others(page)
    rounds = page.locator(f"{DIALOG} .ns-others-round")
    expect(rounds).to_have_count(len(steps))
    expect(page.locator(f"{DIALOG} [role=status]")).to_contain_text("They differ in")  # and no more is read out
    expect(page.locator(f"{DIALOG} :is([role=status], [aria-live]) table")).to_have_count(0)
    for name in ("greedy_match", "block_verification", "typical_acceptance"):
        kept = rounds.locator(f"tr[data-strategy={name}]").evaluate_all("(rows) => rows.map((row) => +row.dataset.kept)")
        assert kept == [step.others[name] for step in steps]
    own = rounds.locator("tr.ns-others-own")
    assert own.evaluate_all("(rows) => rows.map((row) => +row.dataset.kept)") == [step.num_accepted for step in steps]
    first = rounds.first.locator("tr.ns-others-own td[data-verdict=accepted]")
    expect(first).to_have_count(steps[0].num_accepted)

    sums = page.locator(f"{DIALOG} .ns-others-sums tbody tr")
    tile = page.locator(".ns-tiles dd b").nth(1).inner_text()
    expect(sums.filter(has_text="this run").locator("td").first).to_contain_text(f"{tile} tokens per target pass")
    expected = {
        row.get_attribute("data-strategy"): float(row.locator("td").nth(1).inner_text().split()[0]) for row in sums.all()
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

    page.unroute_all()
    page.set_viewport_size({"width": 1440, "height": 900})
    page.reload()
    ended(page)
    open_others(page)
    rounds = page.locator(f"{DIALOG} .ns-others-round")
    expect(rounds).to_have_count(sum(event.kind == "step" for event in Trace.load(SPECULATIVE)))
    page.locator(f"{DIALOG} .ns-others-only input").uncheck()
    cut = rounds.evaluate_all("(all) => all.filter((one) => one.scrollWidth > one.clientWidth).length")
    assert cut == 0, "rounds whose last drafts are out of sight"
    page.locator(f"{DIALOG} [data-close]").click()
    old = Trace.load(SPECULATIVE)
    for event in old:
        event.others = event.typical_distances = None
        event.draft_top = event.target_top = event.residual_top = None
    old.save(tmp_path / "old.jsonl")
    before = shown_run(page)
    page.locator(".ns-file").set_input_files(tmp_path / "old.jsonl")
    another_run(page, before)
    ended(page)
    open_others(page)
    expect(page.locator(DIALOG)).to_contain_text(re.compile("Not recorded"))
    page.locator(f"{DIALOG} [data-close]").click()
    page.locator("#tokens [data-kind=accepted]").first.click()
    expect(page.locator("#distributions figcaption")).to_contain_text("recorded no distributions")
    expect(page.locator("#distributions .ns-odds")).to_be_hidden()
    expect(page.locator("#distributions .ns-pictures")).to_be_hidden()
