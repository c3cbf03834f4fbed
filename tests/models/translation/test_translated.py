"""A draft model with another tokenizer: lossless, whatever the two share; its history says what
the target's says."""

import copy
import threading
from dataclasses import replace
from functools import cache
from itertools import cycle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder, VerifyStrategy
from naive_speculate.events import OUTPUT_KINDS, TOKEN_KINDS, FinishReason
from naive_speculate.infer.costs import CostTable
from naive_speculate.models.translation.drafter import TranslatedDrafter, TranslatedHistory
from naive_speculate.models.translation.tokens import translation_between
from naive_speculate.serving import LocalEngine
from naive_speculate.speculate.request import Request
from tests.models.llama.llamas import made
from tests.speculate.rows import admitted, same_alone, same_as_plain
from tests.speculate.toys import LOSSLESS, ToyModel, check_lossless
from tests.tiny import noised
from tests.tokenizers_of_tests import (
    CODE,
    KINDS,
    ODD,
    PROSE,
    byte_level,
    legacy,
    letters,
    llama,
    shuffled,
    unigram,
)

COSTS = CostTable(0.05, (1.0, 1.05))
TOKENIZERS = {
    "byte-level, unigram": (byte_level(), unigram()),
    "unigram, byte-level": (unigram(), byte_level()),
    "legacy, byte-level": (legacy(), byte_level()),
    "byte-level, legacy": (byte_level(), legacy()),
    "byte-level, byte-level": (byte_level(), byte_level("code", 380, eos="<|stop|>")),
}
PROMPTS = ["Once upon a time", "naïve 日本語🎉 the", "x"]
STEPS = [
    SamplingParams(max_tokens=10, seed=3, ignore_eos=True),
    SamplingParams(max_tokens=8, temperature=0, ignore_eos=True),
]


class Toy(ToyModel):
    """One that ends where its tokenizer says, and refuses tokens that it does not know."""

    def __init__(self, tokenizer, seed):
        super().__init__(len(tokenizer), seed, zeros=False, temper=2.0)
        self.eos = tokenizer.eos_token_id

    @property
    def eos_token_id(self):
        return self.eos

    def forward(self, query_token_ids, kv_cache):
        assert 0 <= query_token_ids.min() <= query_token_ids.max() < self.vocab_size
        return super().forward(query_token_ids, kv_cache)


def toys(name):
    target, draft = TOKENIZERS[name]
    return ModelPair(
        Toy(target, 1), Toy(draft, 2), target, COSTS, translation_between(target, draft)
    )


@cache
def llamas(name, way="torch", **options):
    target, draft = TOKENIZERS[name]
    models = made(llama(target, 0, 2), way), made(llama(draft, 1, **options), way)
    return ModelPair(*models, target, COSTS, translation_between(target, draft))


def some_tokens(pair):
    """Few enough to walk every path: one in both vocabularies, one only in the target's, and the
    end."""
    shared = pair.translation.to_draft
    ordinary = [
        token for token in range(20, pair.vocab_size) if token in pair.translation.target_bytes
    ]
    known = [
        token
        for token in ordinary
        if token in shared and pair.translation.target_bytes[token].isalpha()
    ]
    unknown = [
        token
        for token in ordinary
        if token not in shared and len(pair.translation.target_bytes[token]) > 1
    ]
    return sorted([known[3], unknown[-2], pair.target.eos_token_id])


GREEDY = {"temperature": 0}
SAMPLED = {
    "plain": {},
    "warped and penalised": {
        "temperature": 0.7,
        "top_p": 0.95,
        "frequency_penalty": 0.6,
        "min_tokens": 1,
    },
}


@pytest.mark.parametrize(
    (
        "name",
        "params",
        "strategy",
        "k",
    ),  # every pair of tokenizers, and every way to sample under every strategy
    [
        *zip(
            TOKENIZERS,
            cycle(SAMPLED),
            cycle(LOSSLESS[:1] * 2 + LOSSLESS[1:] * 2),
            (2, 2, "auto", 2, 2),
            strict=False,
        ),
        ("unigram, byte-level", "greedy", VerifyStrategy.GREEDY_MATCH, 2),
        ("legacy, byte-level", "plain", VerifyStrategy.TYPICAL_ACCEPTANCE, 2),
    ],
)
def test_outputs_have_exactly_the_target_s_distribution(name, params, strategy, k):
    """Of typical acceptance, a distribution."""
    pair = toys(name)
    params = SamplingParams(
        max_tokens=3, allowed_token_ids=some_tokens(pair), **(SAMPLED | {"greedy": GREEDY})[params]
    )
    within = 1.0 if strategy == VerifyStrategy.TYPICAL_ACCEPTANCE else 1e-9
    found = check_lossless(
        pair, params, k, prompt="The fox", verify_strategy=strategy, within=within
    )
    unknown = set(some_tokens(pair)) - pair.translation.to_draft.keys()
    assert strategy not in LOSSLESS or any(unknown & set(tokens) for tokens in found)


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_every_token_keeps_its_probability_even_if_the_draft_shares_none_that_is_allowed(
    strategy,
):
    for target, draft, allowed in (
        (letters("a", "b", "ab"), letters("ba", "a", "b"), None),
        (letters("a", "b", "ab", "bb"), letters("ba", "a", "b", "aa"), [3, 4]),
    ):
        pair = ModelPair(
            Toy(target, 3), Toy(draft, 4), target, translation=translation_between(target, draft)
        )
        assert pair.translation.to_draft == {0: 0, 1: 2, 2: 3}
        params = SamplingParams(max_tokens=2, allowed_token_ids=allowed)
        found = check_lossless(pair, params, prompt="abba", verify_strategy=strategy, within=1e-9)
        assert {token for tokens in found for token in tokens} == set(allowed or range(4))


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, "torch") for name in TOKENIZERS),
        *zip(TOKENIZERS, ("transformers", "onnx"), strict=False),
    ],
)
def test_greedy_output_is_the_target_s_on_any_text(name, way):
    pair = llamas(name, way)
    decoder, params = (
        SpeculativeDecoder(pair),
        SamplingParams(temperature=0, max_tokens=9, ignore_eos=True),
    )
    first = list(TOKENIZERS).index(
        name
    )  # every text with some tokenizers, and every tokenizer with some texts
    for number, text in enumerate(ODD[first::5]):
        k = (4, "auto")[number % 2]
        same_as_plain(decoder, text, params, k != "auto", num_draft_tokens=k)


def test_a_row_of_a_batch_gives_what_it_gives_alone_with_prompts_in_chunks_and_siblings(
    monkeypatch,
):
    decoder, several = SpeculativeDecoder(llamas("byte-level, legacy")), replace(STEPS[0], n=2)
    same_alone(decoder, PROMPTS, [STEPS[0], STEPS[1], STEPS[0]], num_draft_tokens="auto")
    found = decoder.generate(PROMPTS[0], several, num_draft_tokens=3)
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 2)
    again, beside = decoder.generate(PROMPTS[:2], [several, STEPS[1]], num_draft_tokens=3)
    assert [output.token_ids for output in found.outputs] == [
        output.token_ids for output in again.outputs
    ]
    assert beside.token_ids == decoder.generate(PROMPTS[1], STEPS[1], num_draft_tokens=0).token_ids


@pytest.mark.parametrize("name", TOKENIZERS)
def test_after_a_step_the_draft_s_cache_holds_what_a_fresh_one_would(name):
    """The cached rows of the draft model are those of its history, whatever was rolled back."""
    decoder = SpeculativeDecoder(toys(name))
    batch, params = decoder.new_batch(), SamplingParams(max_tokens=10, seed=5, ignore_eos=True)
    row = admitted(decoder, batch, "The naïve fox", params, num_draft_tokens=3)
    while not row.ended:
        batch.step([row])
        drafter = batch.drafters["model"]
        assert isinstance(drafter, TranslatedDrafter)
        slot, history = drafter.slots[row], drafter.history(row)
        cached = slot.cache.caches[slot.row].get_kv_states()[0].keys.flatten().long().tolist()
        assert cached == history[: len(cached)]
        assert len(cached) < len(history)


def test_a_tokenizer_with_other_ids_gives_step_by_step_what_the_same_tokens_give():
    """The draft's ids shuffled, and its weights with them: all tokens are shared, and nothing
    may change."""
    tokenizer = byte_level()
    other, ids = shuffled(tokenizer)
    target, same = llama(tokenizer, 0, 2), noised(llama(tokenizer, 0, 2), 0.02)
    moved = copy.deepcopy(same)
    with torch.no_grad():
        for mine, theirs in (
            (moved.model.embed_tokens, same.model.embed_tokens),
            (moved.lm_head, same.lm_head),
        ):
            mine.weight[ids] = theirs.weight.clone()
    moved.generation_config.eos_token_id = other.eos_token_id
    models = [made(model, "torch") for model in (target, same, moved)]
    plain = SpeculativeDecoder(ModelPair(models[0], models[1], tokenizer))
    translated = SpeculativeDecoder(
        ModelPair(
            models[0], models[2], tokenizer, translation=translation_between(tokenizer, other)
        )
    )
    for params, prompt in zip(STEPS, PROMPTS[:2], strict=True):
        expected, found = (
            one.generate(prompt, params, num_draft_tokens=4) for one in (plain, translated)
        )
        assert found.token_ids == expected.token_ids
        assert (
            found.metrics.num_accepted_draft_tokens
            == expected.metrics.num_accepted_draft_tokens
            > 0
        )
        assert found.metrics.num_draft_tokens == expected.metrics.num_draft_tokens


def test_a_prompt_of_token_ids_and_one_in_the_middle_of_a_character_are_drafted_for():
    decoder = SpeculativeDecoder(llamas("byte-level, legacy"))
    pieces = byte_level()("a 语").input_ids
    for prompt in (pieces[:-1], pieces[-1:], [byte_level().eos_token_id], pieces):
        same_as_plain(decoder, prompt, STEPS[1], num_draft_tokens=3)


def test_drafting_ends_where_the_draft_s_own_positions_do():
    decoder = SpeculativeDecoder(llamas("byte-level, legacy", positions=24))
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
    found = same_as_plain(decoder, "Once upon a time", params, num_draft_tokens=4)
    last = max(event.position for event in found.trace if event.kind == EventKind.PROPOSED)
    assert 0 < last < 24


def test_grammars_and_bad_words_are_the_target_s():
    decoder = SpeculativeDecoder(llamas("byte-level, unigram"))
    regex = {"guided_decoding": {"regex": "[a-z]{3,9} (the|fox)"}}
    for more in (regex, {"bad_words": ["the", "fox"], "logit_bias": {30: 4.0}}):
        same_as_plain(
            decoder,
            "The king",
            SamplingParams(max_tokens=10, temperature=0, **more),
            False,
            num_draft_tokens=3,
        )


def test_a_run_can_be_cancelled_and_a_failed_step_goes_back_to_what_was_committed():
    pair = llamas("byte-level, unigram")
    decoder, cancel = SpeculativeDecoder(pair), threading.Event()
    seen = []
    for event in decoder.stream(
        "The king", SamplingParams(max_tokens=36, seed=1, ignore_eos=True), cancel=cancel
    ):
        seen.append(event)
        if event.step == 3:
            cancel.set()
    assert seen[-1].finish_reason == FinishReason.CANCELLED
    engine = LocalEngine(decoder, max_rows=4)
    fails = SamplingParams(
        max_tokens=24, seed=2, logits_processors=[lambda past, x: x[:-1] if len(past) == 9 else x]
    )
    streams = [
        engine.submit(Request("The king", fails)),
        engine.submit(Request(PROMPTS[1], STEPS[0])),
    ]
    bad, good = ([event for events in stream for event in events] for stream in streams)
    assert bad[-1].finish_reason == FinishReason.ERROR
    shown = [event.token_id for event in good if event.kind in OUTPUT_KINDS]
    assert shown == decoder.generate(PROMPTS[1], STEPS[0]).token_ids
    engine.close()


def test_events_say_what_both_have_and_which_tokens_the_draft_does_not():
    pair = llamas("byte-level, unigram")
    decoder = SpeculativeDecoder(pair)
    trace = decoder.generate(PROMPTS[0], STEPS[0]).trace
    shared = pair.translation.to_draft
    assert trace.started.vocabularies == {
        "shared": len(shared),
        "target": len(byte_level()),
        "draft": len(unigram()),
    }
    tokens = [event for event in trace if event.kind in TOKEN_KINDS]
    assert {event.unknown_to_draft for event in tokens} == {True, None}
    for event in tokens:
        assert event.unknown_to_draft == (None if event.token_id in shared else True)
        assert event.kind != EventKind.PROPOSED or event.token_id in shared
    for options in ({"num_draft_tokens": 0}, {"drafter": "prompt_lookup"}):
        other = decoder.generate(PROMPTS[0], STEPS[0], **options).trace
        assert other.started.vocabularies is None
        assert all(event.unknown_to_draft is None for event in other)


# The draft's history, which is rolled back to where it agrees with the target's


DRAFTS = {
    "byte-level": lambda: byte_level("code", 380, eos="<|stop|>"),
    "unigram": lambda: unigram("prose", 240),
    "legacy": lambda: legacy("prose", 280),
}
PAIRS = [(a, b) for a in KINDS for b in DRAFTS]
TEXT = st.one_of(
    st.sampled_from(ODD + PROSE + CODE),
    st.text(max_size=40).filter(lambda text: "\ufffd" not in text),
    st.lists(
        st.sampled_from([*"ab \n", "the", " there", "é", "e\u0301", "日", "🎉", "  ", "</s>"]),
        max_size=25,
    ).map("".join),
)


@cache
def translated(ours, theirs):
    target, draft = KINDS[ours](), DRAFTS[theirs]()
    return target, draft, translation_between(target, draft)


def history_of(ours, theirs):
    target, draft, translation = translated(ours, theirs)
    return target, draft, translation, TranslatedHistory(translation, len(draft))


def fresh(draft, text):
    return draft(text).input_ids


def said(draft, token_ids, whole=True):
    """What the draft's tokens stand for."""
    text = draft.decode(token_ids, skip_special_tokens=True)
    return text if whole else text.rstrip("\ufffd")


def told_apart(text, *tokenizers):
    """The text without leading spaces, unless all tokenizers keep them, which one with ▁ before
    the first word may not."""
    exact = all(
        tokenizer.decode(tokenizer(" x").input_ids, skip_special_tokens=True) == " x"
        for tokenizer in tokenizers
    )
    return text if exact else text.lstrip(" ")


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_a_prompt_is_encoded_as_the_draft_s_own_tokenizer_does(ours, theirs):
    for text in ODD:
        target, draft, _, history = history_of(ours, theirs)
        if draft.unk_token_id in fresh(draft, text) or "<|" in text or "</s>" in text:
            continue
        history.follow(target(text).input_ids)
        if text == told_apart(text, target, draft):
            assert history.token_ids == fresh(draft, text)
        else:
            assert said(draft, history.token_ids).lstrip(" ") == text.lstrip(" ")


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@settings(max_examples=15)
@given(
    text=TEXT,
    cuts=st.lists(st.integers(1, 6), min_size=1, max_size=30),
    any_tokens=st.lists(st.integers(0, 260)),
)
def test_the_draft_reads_the_text_of_the_target_and_follows_any_tokens_at_all(
    ours, theirs, text, cuts, any_tokens
):
    """What is said to stand stands."""
    target, draft, translation, history = history_of(ours, theirs)

    def follow(history, token_ids):
        place = 0
        for cut in [*cuts, len(token_ids)]:
            before, place = list(history.token_ids), place + cut
            stands = history.follow(token_ids[:place])
            assert history.token_ids[:stands] == before[:stands]
            assert stands <= len(before)

    follow(history, token_ids := target(text).input_ids)
    pieces = [
        translation.target_bytes[token] for token in token_ids if token in translation.target_bytes
    ]
    expected = b"".join(pieces).decode()
    if translation.drops_space:
        expected = expected.removeprefix(" ")
    assert told_apart(said(draft, history.token_ids), target, draft) == told_apart(
        expected, target, draft
    )
    *_, history = history_of(ours, theirs)  # one history follows one text
    follow(history, [*any_tokens, len(target) + 5])
    assert history.token_ids
    assert all(0 <= token < len(draft) for token in history.token_ids)


def test_a_token_that_the_draft_has_is_appended_and_another_is_encoded_with_its_word():
    target, _, translation, history = history_of("byte-level", "legacy")
    token_ids = target("The little fox was naïve about the castle.").input_ids
    history.follow(token_ids[:2])
    unknown = 0
    for place in range(2, len(token_ids)):
        before = list(history.token_ids)
        stands = history.follow(token_ids[: place + 1])
        if (known := translation.to_draft.get(token_ids[place])) is not None and stands == len(
            before
        ):
            assert history.token_ids == [*before, known]
        else:
            unknown += 1
        assert stands >= len(before) - 8
    assert unknown > 0


@pytest.mark.parametrize("theirs", DRAFTS)
def test_a_character_in_pieces_becomes_the_draft_s_own_when_it_is_whole(theirs):
    target, draft, _, history = history_of("byte-level", theirs)
    token_ids = target("so 语x").input_ids
    history.follow(token_ids[:1])
    for place in range(2, len(token_ids) + 1):
        history.follow(token_ids[:place])
        assert said(draft, history.token_ids, whole=False) == target.decode(
            token_ids[:place]
        ).rstrip("\ufffd")
    assert len(token_ids) > 4
    assert said(draft, history.token_ids) == "so 语x"


def test_special_tokens_that_the_draft_lacks_are_left_out_unless_nothing_is_left():
    target, draft, _, history = history_of("legacy", "byte-level")
    bos, eos = target.bos_token_id, target.eos_token_id
    words = target("the king", add_special_tokens=False).input_ids
    history.follow([bos, *words, eos, bos, *words])
    assert history.token_ids.count(draft.eos_token_id) == 1
    assert said(draft, history.token_ids) == "the king the king"
    *_, history = history_of("legacy", "byte-level")
    history.follow([bos])
    assert history.token_ids == [draft.eos_token_id], "it is never empty"


def test_the_draft_s_own_opening_stands_at_the_beginning_once():
    for ours in ("byte-level", "legacy"):
        target, draft, _, history = history_of(ours, "unigram")
        history.follow(target("the king").input_ids)
        assert history.token_ids == fresh(draft, "the king")
        assert history.token_ids.count(draft.bos_token_id) == 1


def test_tokens_beyond_the_draft_model_are_left_out():
    translation = translation_between(byte_level(), unigram())
    history = TranslatedHistory(translation, 40)
    history.follow(byte_level()("The little fox said 日本").input_ids)
    assert max(history.token_ids) < 40
