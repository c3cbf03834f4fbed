"""Where drafts come from: the menu, what a draft was copied from, the layers that a head reads,
tokens not shared, trees."""

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from naive_speculate import EventKind, SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.speculate.draft import DRAFTERS
from tests.browser.steps import TIP, open_drawer, open_trace, run, toast, trace
from ui.run.recorded import SPECULATIVE
from ui.run.strategies import OF_TREE, markup

PROMPT = "Once upon a time there was a little fox who lived"


def _shows_what_it_copies(page: Page, small_decoder: SpeculativeDecoder, tmp_path: Path) -> None:
    repeating = "apples, pears, plums, apples, pears, plums, apples,"
    # so that there is something to copy
    again = sorted(set(small_decoder.admission.encode(repeating)))
    params = SamplingParams(max_tokens=24, temperature=0, allowed_token_ids=again)
    copying = small_decoder.generate(repeating, params, drafter="suffix", num_draft_tokens=4).trace
    open_trace(page, copying, tmp_path / "copied.jsonl")
    expect(page.locator(".ns-drafter")).to_contain_text(DRAFTERS["suffix"].about)

    events = list(copying)
    drafted = {(e.step, e.index): e for e in events if e.kind == "proposed"}
    accepted = next(
        e
        for e in events
        if e.kind == "accepted" and drafted[e.step, e.index].copied_from is not None
    )
    step = [e for e in drafted.values() if e.step == accepted.step]
    started = events[0]
    texts = [
        *started.prompt_texts,
        *(e.text for e in events if e.kind in ("accepted", "resampled", "bonus")),
    ]
    page.locator(
        f"#tokens [data-kind=accepted][data-step='{accepted.step}'][data-index='{accepted.index}']"
    ).click()
    sources = page.locator("#tokens .ns-source")
    page.mouse.move(0, 0)
    expect(sources).to_have_text([texts[e.copied_from] for e in step])
    expect(page.locator(".inspector-why")).not_to_be_empty()


def _shows_layers_and_unknown_tokens(page: Page, tmp_path: Path) -> None:
    events = list(Trace.load(SPECULATIVE))
    started = events[0]
    started.settings |= {"drafter": "head"}
    started.head_layers, started.target_layers = [2, 6, 9], 12
    open_trace(page, Trace(events), tmp_path / "head.jsonl")
    expect(page.locator(".ns-drafter")).to_contain_text("after 2, 6 and 9 of its 12 layers")
    expect(page.locator(".ns-layer-read")).to_have_count(3)
    expect(page.locator(".ns-layer")).to_have_count(13 - 3)

    started.settings |= {"drafter": "model"}
    started.head_layers = started.target_layers = None
    started.vocabularies = {"shared": 30, "target": 90, "draft": 40}
    unknown = next(event for event in events if event.kind == "resampled")
    unknown.unknown_to_draft = True
    open_trace(page, Trace(events), tmp_path / "family.jsonl")
    expect(page.locator(".ns-drafter")).to_contain_text("knows 33%")
    marked = page.locator("#tokens [data-unknown]")
    expect(marked).to_have_text(unknown.text)
    assert "∉" in marked.evaluate("(node) => getComputedStyle(node, '::after').content")
    marked.hover()
    expect(page.locator(TIP)).to_contain_text("unknown to the draft")


def _shows_a_tree(page: Page) -> None:
    open_drawer(page)
    field = page.locator("#tree textarea, #tree input").first
    field.fill("9x9x9")
    page.locator("#run").click()
    toast(page, "tree may have 16 nodes, got '9x9x9'")
    field.fill("3x2")
    run(page, PROMPT, max_tokens=16, seed=2)
    events = trace(page)
    assert events.settings["tree"] == "3x2"
    steps = [event for event in events if event.kind == EventKind.STEP]
    assert OF_TREE in markup(events)
    page.locator(f"#tokens [data-step='{steps[0].step}']:not([data-kind=prompt])").first.click()
    nodes = page.locator(".ns-drawing :is([data-part=draft], [data-part=node])")
    expect(nodes).to_have_count(len(steps[0].tree))
    accepted = page.locator(".ns-drawing [data-part=gain][data-kind=accepted]")
    expect(accepted).to_have_count(steps[0].num_accepted)
    nodes = [node for step in steps for node in step.tree or ()]
    rejected = sum(node.kind == "rejected" for node in nodes)
    said = (
        f"proposed {len(nodes)} draft tokens; the target model accepted \\d+, rejected {rejected}"
        " and discarded \\d+"
    )
    expect(page.locator("#stats")).to_contain_text(re.compile(said))


def test_each_drafter_says_what_it_is_and_copies_layers_unknown_tokens_and_trees_are_shown(
    page, small_decoder, tmp_path
):
    if Trace.load(SPECULATIVE).settings["drafter"] == "model":
        # of a draft model with the same tokens there is nothing to see
        expect(page.locator(".ns-drafter")).to_be_hidden()
    open_drawer(page)
    menu = page.locator("#drafter")
    for drafter in DRAFTERS.values():
        if drafter.role in ("target", "draft"):
            expect(menu).to_contain_text(drafter.about)
        else:  # which this server's pair has not
            expect(menu).not_to_contain_text(drafter.title)
    strategy, options = page.locator("#strategy input"), page.locator("#strategy .options")
    strategy.focus()
    expect(options).to_be_visible()
    page.keyboard.press("Tab")
    expect(options).to_be_hidden()  # a list of choices closes when the keyboard leaves it
    strategy.click()
    page.get_by_role("option", name="Greedy match").click()
    expect(strategy).to_have_value("Greedy match")
    menu.get_by_label(DRAFTERS["prompt_lookup"].title).check()
    run(page, "Xyzzy", max_tokens=1, seed=1)
    expect(page.locator("#stats")).to_contain_text(
        "Prompt lookup proposed nothing: the target model wrote 1 token"
    )
    _shows_what_it_copies(page, small_decoder, tmp_path)
    _shows_layers_and_unknown_tokens(page, tmp_path)
    _shows_a_tree(page)
