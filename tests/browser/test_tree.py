"""Token trees on the page: their field, the enlarged step's drawing, and figures that count every node."""

import re

from playwright.sync_api import expect

from naive_speculate import EventKind
from tests.browser.steps import ended, open_drawer, run, toast, trace
from ui.run.strategies import OF_TREE, markup

PROMPT = "Once upon a time there was a little fox who lived"


def test_a_tree_is_asked_for_drawn_and_counted(page):
    ended(page)
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
    branches = page.locator(".ns-branch")
    expect(branches).to_have_count(len(steps[0].tree))
    expect(page.locator(".ns-zoom-drafted")).to_have_text(f"One step: {len(steps[0].tree)} draft tokens, then")
    expect(page.locator(".ns-branch[data-kind=accepted]")).to_have_count(steps[0].num_accepted)
    children = sum(node.parent == 0 for node in steps[0].tree)
    expect(branches.first.locator(".ns-branch")).to_have_count(children)
    nodes = [node for step in steps for node in step.tree or ()]
    rejected = sum(node.kind == "rejected" for node in nodes)
    said = f"proposed {len(nodes)} draft tokens; the target model accepted \\d+, rejected {rejected} and discarded \\d+"
    expect(page.locator("#stats")).to_contain_text(re.compile(said))
