"""A window that a head drafts in one call is the one that it drafts token by token, with torch."""

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams
from naive_speculate.infer.head.checkpoint import load_head
from naive_speculate.infer.head.model import DraftHead
from naive_speculate.speculate.decoder import SpeculativeDecoder
from tests.heads import head_config, head_tensors, save_head
from tests.infer.test_draft_window import executed, outputs, without_times

PROMPTS = [[1, 2, 3], [7, 8, 9, 10, 11, 3], [5]]


def pair_with(folder, **how) -> ModelPair:
    """A target, whose head drafts windows in one call where its heads are wide enough and it knows all tokens."""
    config = head_config(head_dim=16, num_attention_heads=2, num_key_value_heads=1)
    save_head(folder, "speculators", config, head_tensors(config, **how), eagle_aux_hidden_state_layer_ids=[0, 1, 1])
    target = executed(0)
    return ModelPair(target, head=load_head(folder, target, target.device, torch.float32, "onnx"))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> tuple[ModelPair, ModelPair]:
    folder = tmp_path_factory.mktemp("head")
    fast = pair_with(folder, known=None)
    slow = load_head(folder, fast.target, fast.target.device, torch.float32, "torch")
    assert fast.head.drafts_windows
    assert not slow.drafts_windows
    return fast, ModelPair(fast.target, head=slow)


@pytest.fixture
def made(monkeypatch) -> list[int]:
    """How many tokens each call has drafted."""
    lengths: list[int] = []
    original = DraftHead.draft_window

    def watched(*given):
        found = original(*given)
        lengths.append(found[0].shape[1])
        return found

    monkeypatch.setattr(DraftHead, "draft_window", watched)
    return lengths


@pytest.mark.parametrize("prompts", [PROMPTS, PROMPTS[:1], [[4, 4, 4], [6, 1, 3]]], ids=["three", "one", "alike"])
@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(
    "window", [{"num_draft_tokens": 4}, {"num_draft_tokens": "auto"}, {"num_draft_tokens": 7, "draft_confidence": 0.1}]
)
def test_the_same_seed_gives_the_same_run_either_way(pairs, made, prompts, temperature, window):
    params = [SamplingParams(temperature=temperature, max_tokens=n, seed=n) for n in (20, 9, 14)][: len(prompts)]
    fast, slow = (without_times(outputs(pair, prompts, params, detail="probs", drafter="head", **window)) for pair in pairs)
    assert made
    for (tokens, events), (other_tokens, other_events) in zip(fast, slow, strict=True):
        assert tokens == other_tokens
        for event, other in zip(events, other_events, strict=True):
            assert event.keys() == other.keys()
            for name, value in event.items():
                assert value == (pytest.approx(other[name], abs=1e-4) if isinstance(value, float) else other[name]), name


def test_one_call_makes_a_window_and_long_ones_take_several(pairs, made):
    decoder = SpeculativeDecoder(pairs[0])
    decoder.generate([1, 2, 3], SamplingParams(temperature=0.7, seed=1), num_draft_tokens=5, drafter="head")
    assert set(made) == {5}
    made.clear()
    wide = decoder.generate([1, 2, 3], SamplingParams(temperature=0, max_tokens=60), num_draft_tokens=20, drafter="head")
    assert set(made) == {16}
    assert max(event.num_draft or 0 for event in wide.trace) == 20
    made.clear()
    decoder.generate([1, 2, 3], SamplingParams(top_p=0.9, seed=1), num_draft_tokens=4, drafter="head")  # needs the host
    assert not made


def test_a_head_that_knows_fewer_tokens_drafts_one_by_one(tmp_path, made):
    pair = pair_with(tmp_path, known=60)
    assert not pair.head.drafts_windows
    result = SpeculativeDecoder(pair).generate([1, 2, 3], SamplingParams(max_tokens=12, seed=1), drafter="head")
    assert result.metrics.num_draft_tokens > 0
    assert not made
