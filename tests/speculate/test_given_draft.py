"""User-supplied drafts with a probability: the mixture that they are drawn from is stated, and rejection turns it into p."""

import pytest

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.speculate.request import GivenDraft
from tests.speculate.toys import ToyModel, check_lossless

PROMPT = [1, 2]
SAMPLED = ("speculative_sampling", "block_verification")


@pytest.fixture(scope="module")
def pair():
    return ModelPair(ToyModel(4, 3), ToyModel(4, 4, temper=1.5))


def given(tokens, prob, **more):
    return {"given_draft": GivenDraft(tokens, prob), "num_draft_tokens": 3, "drafter": None, **more}


@pytest.mark.parametrize(
    ("tokens", "prob", "strategy"),  # every length and probability under both
    [
        ([1], 0.35, SAMPLED[0]),
        ([1], 1.0, SAMPLED[1]),
        ([2, 3], 0.0, SAMPLED[0]),
        ([2, 3], 0.35, SAMPLED[1]),
        ([3, 3, 1], 0.0, SAMPLED[1]),
        ([3, 3, 1], 1.0, SAMPLED[0]),
    ],
)
def test_whatever_is_written_and_however_sure_the_output_is_the_targets(pair, strategy, tokens, prob):
    check_lossless(pair, SamplingParams(max_tokens=3, temperature=0.9), **given(tokens, prob, verify_strategy=strategy))


def test_q_is_the_mixture_and_the_rest_of_the_word_follows_for_certain(pair):
    decoder, prob, tokens = SpeculativeDecoder(pair), 0.4, [2, 3, 1]
    params = SamplingParams(max_tokens=8, temperature=1.0, ignore_eos=True)
    own = next(e for e in decoder.stream(PROMPT, params, num_draft_tokens=1) if e.kind == "proposed")
    q_draft = {entry.token_id: entry.prob for entry in own.draft_top}
    mixture = {token: (1 - prob) * q_draft.get(token, 0.0) + prob * (token == tokens[0]) for token in range(4)}
    drafted = {}
    for seed in range(20):
        seeded = SamplingParams(max_tokens=8, temperature=1.0, ignore_eos=True, seed=seed)
        trace = decoder.generate(PROMPT, seeded, **given(tokens, prob)).trace
        proposed = [event for event in trace if event.kind == "proposed"]
        assert {event.step for event in proposed} == {0}  # what follows is decoded plainly
        first = proposed[0]
        assert first.draft_prob == pytest.approx(mixture[first.token_id])
        stated = {entry.token_id: entry.prob for entry in first.draft_top}
        assert {token: stated.get(token, 0.0) for token in mixture} == pytest.approx(mixture)
        if first.token_id == tokens[0]:
            assert [event.token_id for event in proposed] == tokens
            assert [event.draft_prob for event in proposed[1:]] == [1, 1]
        else:
            assert len(proposed) == 1
        drafted[first.token_id] = drafted.get(first.token_id, 0) + 1
    assert drafted[tokens[0]] > 20 * 0.4
    assert len(drafted) > 1


def test_a_word_is_tokens_that_continue_the_text(small_decoder):
    params = SamplingParams(max_tokens=16, temperature=0.8, seed=1)
    for word in (" hippopotamus", "\n"):
        trace = small_decoder.generate("Once upon a time there was a", params, **given(word, 1.0, num_draft_tokens=16)).trace
        assert trace.started.settings["drafter"] == "given"
        assert "".join(event.text for event in trace if event.kind == "proposed") == word


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (given([], 0.5), "^given_draft is empty"),
        (given([9], 0.5), "^given_draft holds 9"),
        (given([1], 0.5, given_draft=([1], 0.5)), "^given_draft must be None or a GivenDraft, got \\("),
        (given([1], 0.5, given_draft=0), "^given_draft must be None or a GivenDraft, got 0"),
        (given([1], 0.5, num_draft_tokens="auto"), "^given_draft needs num_draft_tokens from 1 to 64, got 'auto'"),
        (given([1], 0.5, num_draft_tokens=0), "^given_draft needs num_draft_tokens from 1 to 64, got 0"),
        (given([1], 0.5, drafter="nonsense"), "^drafter must be one of"),
        (given(" word", 0.5), "no tokenizer"),
        (given([1], 0.5, verify_strategy="greedy_match"), "needs a temperature"),
    ],
)
def test_what_cannot_be_drafted_is_refused(pair, options, words):
    with pytest.raises(ValueError, match=words):
        SpeculativeDecoder(pair).generate(PROMPT, SamplingParams(max_tokens=2), **options)
    alone = SpeculativeDecoder(ModelPair(pair.target))
    with pytest.raises(ValueError, match="no draft model"):
        alone.generate(PROMPT, SamplingParams(max_tokens=2), given_draft=GivenDraft([1], 0.5))


@pytest.mark.parametrize(
    ("draft", "prob", "words"),
    [
        ([1], 1.5, "^given_draft.prob must be from 0 to 1, got 1.5"),
        ([1], float("nan"), "^given_draft.prob must be from 0 to 1, got nan"),
        (None, 0.5, "^given_draft.draft must be text or token ids, at most 200, got None"),
        (3, 0.5, "^given_draft.draft must be text or token ids, at most 200, got 3"),
        ([1] * 201, 0.5, "^given_draft.draft must be text or token ids, at most 200, got"),
    ],
)
def test_a_draft_of_another_form_is_refused(draft, prob, words):
    with pytest.raises(ValueError, match=words):
        GivenDraft(draft, prob)
