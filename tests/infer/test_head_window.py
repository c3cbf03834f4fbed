"""A window that a head drafts in one call is the one that it drafts token by token, with torch."""

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from naive_speculate import ModelPair, SamplingParams
from naive_speculate.costs import CostTable
from naive_speculate.infer.head.checkpoint import load_head
from naive_speculate.infer.head.model import DraftHead
from naive_speculate.sampling.words import WordList
from naive_speculate.speculate.decoder import SpeculativeDecoder
from tests.heads import head_config, head_tensors, save_head
from tests.infer.test_draft_window import check_alike, executed, outputs, without_times
from tests.tiny import save_model, tiny_llama

COSTS = CostTable(0.02, (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6), 0.1)
PROMPTS = [[1, 2, 3], [7, 8, 9, 10, 11, 3], [5]]


def pair_with(folder, known=None, layers=1, adds=False, normed_layers=False, **how) -> ModelPair:
    """A target, whose head drafts windows in one call where its heads are wide enough and it has all tokens."""
    config = head_config(head_dim=16, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=layers)
    tensors = head_tensors(config, known=known, adds=adds, normed_layers=normed_layers)
    save_head(folder, "speculators", config, tensors, eagle_aux_hidden_state_layer_ids=[0, 1, 1], **how)
    save_model(tiny_llama(1, seed=0), folder / "words")
    target, tokenizer = executed(0), PreTrainedTokenizerFast.from_pretrained(folder / "words")
    return ModelPair(target, None, tokenizer, head=load_head(folder, target, target.device, torch.float32, "onnx"))


def fast_and_slow(folder, **how) -> tuple[ModelPair, ModelPair]:
    """A pair whose head drafts windows in one call, and the same pair with the head in torch, token by token."""
    fast = pair_with(folder, **how)
    slow = load_head(folder, fast.target, fast.target.device, torch.float32, "torch")
    assert fast.head.drafts_windows
    assert not slow.drafts_windows
    return fast, ModelPair(fast.target, None, fast.tokenizer, head=slow)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> tuple[ModelPair, ModelPair]:
    return fast_and_slow(tmp_path_factory.mktemp("head"))


@pytest.fixture
def begun(monkeypatch) -> list[list[int]]:
    """Where each row's last known state was, for each call that drafted."""
    places: list[list[int]] = []
    original = DraftHead.draft_window

    def watched(*given):
        places.append(list(given[4]))
        return original(*given)

    monkeypatch.setattr(DraftHead, "draft_window", watched)
    return places


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


def check_both(pairs, prompts, params, **options) -> None:
    """Both pairs write the same, in the same steps with the same probabilities."""
    check_alike(*(outputs(pair, prompts, params, detail="probs", drafter="head", **options) for pair in pairs), tolerance=1e-4)


WINDOWS = [{"num_draft_tokens": 4}, {"num_draft_tokens": "auto"}, {"num_draft_tokens": 7, "draft_confidence": 0.1}]


@pytest.mark.parametrize(
    ("prompts", "temperature", "window"),  # every two of them together
    [
        (prompts, temperature, WINDOWS[(one + other) % 3])
        for one, prompts in enumerate((PROMPTS, PROMPTS[:1], [[4, 4, 4], [6, 1, 3]]))
        for other, temperature in enumerate((0.0, 0.6, 1.0))
    ],
)
def test_the_same_seed_gives_the_same_run_either_way(pairs, made, prompts, temperature, window):
    params = [SamplingParams(temperature=temperature, max_tokens=n, seed=n) for n in (14, 7, 10)][: len(prompts)]
    check_both(pairs, prompts, params, **window)
    assert made


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_of_which_other_numbers_were_kept_draft_in_one_call_too(pairs, begun, monkeypatch, temperature):
    """Each row begins with the states of what it kept, padded; its drafts take the padding's place."""
    read: list[int] = []
    original = DraftHead.forward
    monkeypatch.setattr(DraftHead, "forward", lambda *given: read.append(1) or original(*given))
    params = [SamplingParams(temperature=temperature, max_tokens=30, seed=n, ignore_eos=True) for n in range(3)]
    outputs(pairs[0], PROMPTS, params, drafter="head", num_draft_tokens=3)
    assert any(len(set(last)) > 1 for last in begun)
    assert len(read) == 1  # the prompts; no draft was made alone
    check_both(pairs, PROMPTS, params, num_draft_tokens=3)


@pytest.mark.parametrize("prompts", [[[5], [9]], [[5], [9], [5, 6, 7, 8]]], ids=["one token each", "and a longer one"])
def test_rows_whose_cache_is_empty_begin_as_they_do_alone(pairs, begun, prompts):
    params = [SamplingParams(temperature=1.0, max_tokens=20, seed=n, ignore_eos=True) for n in range(len(prompts))]
    check_both(pairs, prompts, params, num_draft_tokens=4)
    assert any(len(set(last)) > 1 for last in begun)


@pytest.mark.parametrize(
    ("how", "temperature"),
    [
        ({"norm_before_residual": True}, 0.0),
        ({"layers": 3}, 0.8),
        ({"layers": 2, "adds": True}, 0.0),
        ({"norm_output": True, "normed_layers": True}, 0.8),
    ],
    ids=["residual is the normed state", "deep", "states are added to embeddings", "eagle 3.1"],
)
def test_heads_of_other_kinds(tmp_path, made, how, temperature):
    params = [SamplingParams(temperature=temperature, max_tokens=14, seed=n) for n in range(3)]
    check_both(fast_and_slow(tmp_path, **how), PROMPTS, params, num_draft_tokens=4)
    assert made


@pytest.mark.parametrize("stop", [0, 64])
def test_draws_after_a_stop_token_are_not_taken(pairs, made, stop):
    params = [SamplingParams(temperature=1.0, max_tokens=16, seed=stop + n, stop_token_ids=[stop]) for n in range(2)]
    check_both(pairs, PROMPTS[:2], params, num_draft_tokens=5)
    assert made


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_listed_words_are_taken_out_of_a_window(pairs, made, temperature):
    words = WordList([f"w{number}" for number in range(0, 97, 9)])
    params = [
        SamplingParams(temperature=temperature, max_tokens=n, seed=n, filter_words=words if n != 9 else None)
        for n in (20, 9, 14)
    ]
    check_both(pairs, PROMPTS, params, num_draft_tokens=4)
    assert made


def test_several_answers_to_one_prompt_go_on_from_its_states(pairs, begun):
    """The prompt is read once, and each answer continues with a copy of the head's cache of it."""
    params = SamplingParams(temperature=1.0, max_tokens=20, seed=3, n=3, ignore_eos=True)
    runs = []
    for pair in pairs:
        result = SpeculativeDecoder(pair).generate(PROMPTS[1], params, drafter="head", num_draft_tokens=4)
        runs.append([answer.token_ids for answer in result.outputs])
    assert runs[0] == runs[1]
    assert len(set(map(tuple, runs[0]))) == 3
    assert any(len(set(last)) > 1 for last in begun)


def test_auto_decides_the_length_of_calls_from_what_they_cost(pairs, made):
    """Rows of a batch have the windows that they have alone, whatever lengths the batch's calls have."""
    pair = ModelPair(pairs[0].target, None, head=pairs[0].head, measured_head_costs=COSTS)
    params = [SamplingParams(temperature=(0.0, 0.8, 0.8)[n], max_tokens=20, seed=n, ignore_eos=True) for n in range(3)]
    options = {"drafter": "head", "num_draft_tokens": "auto"}
    together = without_times(outputs(pair, PROMPTS, params, **options))
    alone = [without_times(outputs(pair, [prompt], [own], **options))[0] for prompt, own in zip(PROMPTS, params, strict=True)]
    assert [tokens for tokens, _ in together] == [tokens for tokens, _ in alone]
    assert set(made) <= {2, 3, 5, 8}
    assert len(set(made)) > 1


def test_one_call_makes_a_window_and_long_ones_take_several(pairs, made):
    decoder = SpeculativeDecoder(pairs[0])
    decoder.generate([1, 2, 3], SamplingParams(temperature=0.7, seed=1), num_draft_tokens=5, drafter="head")
    assert set(made) == {5}
    made.clear()
    wide = decoder.generate([1, 2, 3], SamplingParams(temperature=0, max_tokens=40), num_draft_tokens=20, drafter="head")
    assert set(made) == {16}
    assert max(event.num_draft or 0 for event in wide.trace) == 20
    made.clear()
    decoder.generate([1, 2, 3], SamplingParams(top_p=0.9, seed=1), num_draft_tokens=4, drafter="head")  # needs the host
    assert not made


def test_a_head_of_fewer_tokens_drafts_one_by_one(tmp_path, made):
    pair = pair_with(tmp_path, known=60)
    assert not pair.head.drafts_windows
    result = SpeculativeDecoder(pair).generate([1, 2, 3], SamplingParams(max_tokens=12, seed=1), drafter="head")
    assert result.metrics.num_draft_tokens > 0
    assert not made
