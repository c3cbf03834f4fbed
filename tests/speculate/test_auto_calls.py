""" "auto" where one call drafts several tokens: what is drafted is what pays, and a seed gives the same windows everywhere."""

import pytest

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.costs import CostTable, LearnedCosts
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.speculate.window import MAX_AUTO_WINDOW, AutoWindow
from tests.infer.test_draft_window import OneByOne, executed
from tests.speculate.toys import ToyModel, check_lossless

COSTS = CostTable(0.08, (1.0, 1.35, 1.4, 1.52, 1.61, 1.67, 1.74, 1.81, 1.85), 0.06)


def lengths_of_calls(window: AutoWindow, confidence: float, num_kept: int, steps: int) -> list[int]:
    """Of each step's first call, where so many drafts are kept."""
    found = []
    for _ in range(steps):
        limit, drafted = window.max_drafts(), 0
        found.append(window.next_call())
        while drafted < limit:
            drafted += 1
            if not window.should_continue(confidence):
                break
        window.learn(min(num_kept, drafted), min(num_kept + 1, drafted))
    return found


def test_the_length_of_a_call_follows_what_is_kept() -> None:
    assert lengths_of_calls(AutoWindow(COSTS), 0.9, MAX_AUTO_WINDOW, 60)[-1] >= 8
    assert lengths_of_calls(AutoWindow(COSTS), 0.9, 1, 60)[-1] <= 3


def test_drafts_that_are_paid_for_are_verified_further_than_others_would_be() -> None:
    """A call's drafts cost nothing more, so that a doubtful one ends the window only where verifying costs too much."""
    drafted = []
    for costs in (COSTS, CostTable(COSTS.draft, COSTS.verify)):
        window, count = AutoWindow(costs), 1
        window.max_drafts()
        while window.should_continue(0.05):
            count += 1
        drafted.append(count)
    assert drafted[0] > drafted[1]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_calls_are_as_long_as_was_decided_and_the_run_is_that_of_a_model_without_them(
    monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    made: list[int] = []
    original = LlamaLanguageModel.draft_window

    def watched(self, query, rows, k, *given):
        made.append(k)
        return original(self, query, rows, k, *given)

    monkeypatch.setattr(LlamaLanguageModel, "draft_window", watched)
    monkeypatch.setattr(LearnedCosts, "learn", lambda *_: None)  # seconds differ between the two
    params = SamplingParams(temperature=temperature, max_tokens=36, seed=4, ignore_eos=True)
    runs = []
    for kind in (LlamaLanguageModel, OneByOne):
        pair = ModelPair(executed(0), executed(0, kind), measured_costs=COSTS)  # the target drafts for itself: all is kept
        result = SpeculativeDecoder(pair).generate([1, 2, 3], params, num_draft_tokens="auto", drafter="model", detail="probs")
        runs.append((result.token_ids, [e.num_draft for e in result.trace if e.kind == EventKind.STEP]))
    assert runs[0] == runs[1]
    assert max(made) >= 8


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_a_call_drafted_after_a_window_s_end_is_not_verified(temperature: float) -> None:
    widths: list[int] = []

    class Watched(LlamaLanguageModel):
        def forward(self, token_ids, *given, **named):
            widths.append(token_ids.shape[1])
            return super().forward(token_ids, *given, **named)

    decoder = SpeculativeDecoder(ModelPair(executed(0, Watched), executed(1), measured_costs=COSTS))
    params = SamplingParams(temperature=temperature, max_tokens=24, seed=4, ignore_eos=True)
    for window in ({"num_draft_tokens": "auto"}, {"num_draft_tokens": 6, "draft_confidence": 0.02}, {"num_draft_tokens": 6}):
        widths.clear()
        result = decoder.generate([1, 2, 3], params, drafter="model", detail="none", **window)
        drafted = [event.num_draft for event in result.trace if event.kind == EventKind.STEP]
        assert len(set(drafted)) > 1
        assert widths[-len(drafted) + 1 :] == [1 + count for count in drafted[1:]]


@pytest.mark.parametrize("strategy", ["speculative_sampling", "block_verification"])
def test_windows_of_calls_are_lossless(strategy: str) -> None:
    pair = ModelPair(ToyModel(3, 1), ToyModel(3, 2), measured_costs=CostTable(0.01, (1.0, 1.2), 0.01))
    check_lossless(pair, SamplingParams(max_tokens=3), "auto", verify_strategy=strategy)


def test_a_row_that_draws_token_by_token_takes_none_for_paid() -> None:
    """Under top-k the host looks at every draft, so that none is there before it is wanted."""
    params, runs = SamplingParams(top_k=5, max_tokens=36, seed=4, ignore_eos=True), []
    for costs in (COSTS, CostTable(COSTS.draft, COSTS.verify)):
        pair = ModelPair(executed(0), executed(1), measured_costs=costs)
        result = SpeculativeDecoder(pair).generate([1, 2, 3], params, num_draft_tokens="auto", drafter="model")
        runs.append([e.num_draft for e in result.trace if e.kind == EventKind.STEP])
    assert runs[0] == runs[1]


def test_with_windows_of_other_lengths_calls_keep_to_the_lengths_that_have_graphs() -> None:
    """A call is as long as the batch's longest wants it, and leaves the others some way into their next one."""
    window = AutoWindow(COSTS)
    window.max_drafts()
    length = window.next_call()
    for drafted in range(1, MAX_AUTO_WINDOW):
        if not window.should_continue(0.99):
            break
        assert window.next_call() in (2, 3, 5, 8)
        assert window.next_call() >= length - drafted % length
