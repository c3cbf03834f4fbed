"""The adaptive window: drafts while it pays, and learns what that means."""

import pytest

from naive_speculate.costs import CostTable
from naive_speculate.speculate.window import MAX_AUTO_WINDOW, AutoWindow, CopyOrAskWindow


def play(window: AutoWindow, confidence: float, kept: bool, steps: int) -> list[int]:
    """Window sizes of a run whose drafts all have this confidence and fate."""
    sizes = []
    for _ in range(steps):
        limit, drafted = window.max_drafts(), 0
        while drafted < limit:
            drafted += 1
            if not window.should_continue(confidence):
                break
        sizes.append(drafted)
        accepted = drafted if kept else 0
        window.learn(accepted, min(accepted + 1, drafted))
    return sizes


def test_drafts_that_are_refused_make_it_stop_but_for_probes():
    sizes = play(AutoWindow(CostTable(0.3, (1.0, 1.1))), 0.9, False, 80)
    assert sum(sizes[-20:]) <= 4
    assert sum(sizes[-20:]) > 0


def test_verification_costs_go_on_as_they_grew_after_the_first_draft():
    costs = CostTable(0.1, (1.0, 1.1, 1.3))
    assert [costs.verify_cost(k) for k in (0, 2, 4)] == pytest.approx([1.0, 1.3, 1.7])
    assert CostTable(0.1, (1.0, 1.2, 1.3, 1.3)).verify_cost(5) == pytest.approx(1.4)  # no cost is flat but by chance
    assert CostTable(0.1, (1.0, 1.1)).verify_cost(3) == pytest.approx(1.3)
    assert CostTable(0.1, (1.0, 2.0, 1.1, 1.2)).verify_cost(16) == 1.2  # a longer one never costs less
    assert CostTable(0.1).verify_cost(5) == 1.0
    assert costs.to_dict() == {"draft": 0.1, "verify": [1.0, 1.1, 1.3]}


def test_copies_and_a_head_s_drafts_have_windows_that_learn_apart():
    """Drafts of a head that are always rejected stop the head, and not the copies, which cost no draft forward."""
    costs = CostTable(0.1, (1.0, 1.1, 1.2, 1.3))
    window = CopyOrAskWindow(AutoWindow(costs, copies=True), AutoWindow(costs))
    for _ in range(30):
        if window.max_drafts() and window.ask_limit:
            window.use(copies=False)
            window.should_continue(0.9)
            window.learn(0, 1)
    limits = [(window.max_drafts(), window.copy_limit, window.ask_limit)[1:] for _ in range(4)]
    assert {copies for copies, _ in limits} == {MAX_AUTO_WINDOW}
    assert 0 in {asked for _, asked in limits}  # but for a probe
    window.use(copies=True)
    assert window.should_continue(1.0)
