"""User-supplied drafts, and drafts that are drawn or the most probable tokens: q is stated, and
the output is the target's."""

import pytest

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.speculate.request import GivenDraft
from naive_speculate.tools.proofs.toys import pair_with_head
from tests.speculate.toys import LOSSLESS, ToyModel, check_lossless, toys

PROMPT = [1, 2]


@pytest.fixture(scope="module")
def pair():
    return ModelPair(ToyModel(4, 3), ToyModel(4, 4, temper=1.5))


def given(tokens, prob, **more):
    return {"given_draft": GivenDraft(tokens, prob), "num_draft_tokens": 3, "drafter": None, **more}


@pytest.mark.parametrize(
    ("tokens", "prob", "strategy"),  # every length and probability under both
    [
        ([1], 0.35, LOSSLESS[0]),
        ([1], 1.0, LOSSLESS[1]),
        ([2, 1], 0.0, LOSSLESS[0]),
        ([2, 1], 0.35, LOSSLESS[1]),
        ([2, 2, 1], 0.0, LOSSLESS[1]),
        ([2, 2, 1], 1.0, LOSSLESS[0]),
    ],
)
def test_whatever_is_written_and_however_sure_the_output_is_the_targets(strategy, tokens, prob):
    params = SamplingParams(max_tokens=3, temperature=0.9)
    check_lossless(
        toys(3, 3, 4, zeros=False), params, **given(tokens, prob, verify_strategy=strategy)
    )


def test_q_is_the_mixture_and_the_rest_of_the_word_follows_for_certain(pair):
    decoder, prob, tokens = SpeculativeDecoder(pair), 0.4, [2, 3, 1]
    params = SamplingParams(max_tokens=8, temperature=1.0, ignore_eos=True)
    own = next(
        e for e in decoder.stream(PROMPT, params, num_draft_tokens=1) if e.kind == "proposed"
    )
    q_draft = {entry.token_id: entry.prob for entry in own.draft_top}
    mixture = {
        token: (1 - prob) * q_draft.get(token, 0.0) + prob * (token == tokens[0])
        for token in range(4)
    }
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
        trace = small_decoder.generate(
            "Once upon a time there was a", params, **given(word, 1.0, num_draft_tokens=16)
        ).trace
        assert trace.started.settings["drafter"] == "given"
        assert "".join(event.text for event in trace if event.kind == "proposed") == word


def test_what_cannot_be_drafted_is_refused(pair):
    decoder, params = SpeculativeDecoder(pair), SamplingParams(max_tokens=2)
    for tokens, prob, more, words in (
        ([], 0.5, {}, "^given_draft is empty"),
        ([9], 0.5, {}, "^given_draft holds 9"),
        (
            [1],
            0.5,
            {"given_draft": ([1], 0.5)},
            "^given_draft must be None or a GivenDraft, got \\(",
        ),
        ([1], 0.5, {"given_draft": 0}, "^given_draft must be None or a GivenDraft, got 0"),
        (
            [1],
            0.5,
            {"num_draft_tokens": "auto"},
            "^given_draft needs num_draft_tokens from 1 to 64, got 'auto'",
        ),
        (
            [1],
            0.5,
            {"num_draft_tokens": 0},
            "^given_draft needs num_draft_tokens from 1 to 64, got 0",
        ),
        ([1], 0.5, {"drafter": "nonsense"}, "^drafter must be one of"),
        (" word", 0.5, {}, "no tokenizer"),
        ([1], 0.5, {"verify_strategy": "greedy_match"}, "needs a temperature"),
        ([1], 1.5, {}, "^given_draft.prob must be from 0 to 1, got 1.5"),
        ([1], float("nan"), {}, "^given_draft.prob must be from 0 to 1, got nan"),
        (None, 0.5, {}, "^given_draft.draft must be text or token ids, at most 200, got None"),
        (3, 0.5, {}, "^given_draft.draft must be text or token ids, at most 200, got 3"),
        ([1] * 201, 0.5, {}, "^given_draft.draft must be text or token ids, at most 200, got"),
    ):
        with pytest.raises(ValueError, match=words):
            pytest.fail(
                f"{tokens}, {prob}, {more}:"
                f" {decoder.generate(PROMPT, params, **given(tokens, prob, **more))}"
            )
    with pytest.raises(ValueError, match="no draft model"):
        SpeculativeDecoder(ModelPair(pair.target)).generate(
            PROMPT, params, given_draft=GivenDraft([1], 0.5)
        )


# Drafts that are drawn, or the draft model's most probable tokens: both exact acceptance rates are
# stated


PARAMS = {
    "plain": SamplingParams(max_tokens=3),
    "warped": SamplingParams(
        max_tokens=3, temperature=1.6, top_k=2, presence_penalty=0.7, ignore_eos=True
    ),
}


@pytest.mark.parametrize(
    ("drafter", "strategy", "name"),  # every two of them together
    [
        ("model", LOSSLESS[0], "plain"),
        ("model", LOSSLESS[1], "warped"),
        ("head", LOSSLESS[0], "warped"),
        ("head", LOSSLESS[1], "plain"),
    ],
)
def test_argmax_drafts_leave_the_output_distribution_as_it_is(drafter, strategy, name):
    pair = pair_with_head(3, 3) if drafter == "head" else toys()
    check_lossless(
        pair, PARAMS[name], draft_sampling="argmax", drafter=drafter, verify_strategy=strategy
    )


def drafts(decoder, draft_sampling, **options):
    params = SamplingParams(max_tokens=10, temperature=0.8, seed=4, ignore_eos=True)
    trace = decoder.generate(
        "Once upon a time", params, draft_sampling=draft_sampling, **options
    ).trace
    return [event for event in trace if event.kind == EventKind.PROPOSED]


@pytest.mark.parametrize("drafter", ["model", "head"])
def test_both_acceptance_rates_are_those_of_the_two_distributions(
    small_decoder, bundled_decoder, drafter
):
    decoder = small_decoder if drafter == "model" else bundled_decoder
    for window in ({"num_draft_tokens": "auto"}, {"num_draft_tokens": 4}):
        found = drafts(decoder, "argmax", drafter=drafter, **window)
        assert all(
            event.draft_prob == 1 and event.draft_top[0].token_id == event.token_id
            for event in found
        )
        assert all(
            event.argmax_accept == event.target_prob == event.expected_accept for event in found
        )
    found = drafts(decoder, "sampled", drafter=drafter, num_draft_tokens=4)
    assert [event.sampled_accept for event in found] == pytest.approx(
        [event.expected_accept for event in found], abs=1e-6
    )
    best = [event for event in found if event.token_id == event.draft_top[0].token_id]
    assert best
    assert [event.argmax_accept for event in best] == pytest.approx(
        [event.target_prob for event in best], abs=1e-6
    )


def test_the_figures_say_which_would_have_been_better():
    """Where draft and target are one, drawing is always accepted; the argmax of a flat draft
    seldom is."""
    target = ToyModel(5, 3)
    for draft_sampling in ("sampled", "argmax"):
        decoder = SpeculativeDecoder(ModelPair(target, target))
        params = SamplingParams(max_tokens=36, temperature=2.0, seed=1, ignore_eos=True)
        trace = decoder.generate(
            [1, 2], params, num_draft_tokens=2, draft_sampling=draft_sampling
        ).trace
        rates, metrics = trace.draft_sampling_rates, trace.metrics
        assert metrics.sampled_acceptance_per_position == pytest.approx([1, 1])
        assert all(0.2 < rate < 0.9 for rate in metrics.argmax_acceptance_per_position)
        assert (rates.sampled, rates.better) == (pytest.approx(1), "sampled")
        assert str(rates).endswith("sampled drafts are better here")


def test_where_nothing_is_drawn_there_is_no_choice(tiny_decoder):
    greedy = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    found = [
        tiny_decoder.generate([1, 2, 3], greedy, draft_sampling=way)
        for way in ("sampled", "argmax")
    ]
    assert found[0].token_ids == found[1].token_ids
    assert found[1].trace.draft_sampling_rates is None
    copied = tiny_decoder.generate(
        [4, 5, 4, 5, 4, 5, 4],
        SamplingParams(max_tokens=12, seed=1),
        drafter="suffix",
        draft_sampling="argmax",
    )
    assert copied.trace.metrics.argmax_acceptance_per_position == []
