"""The draft's history in its own tokens: it says what the target's says, and is rolled back to where the two agree."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_speculate.speculate.draft.translated import TranslatedHistory
from naive_speculate.text import num_shared
from naive_speculate.translation import translation_between
from tests.tokenizers_of_tests import CODE, KINDS, ODD, PROSE, byte_level, legacy, unigram

TARGETS = {"byte-level": byte_level, "unigram": unigram, "legacy": legacy}
DRAFTS = {
    "byte-level": lambda: byte_level("code", 380, eos="<|stop|>"),
    "unigram": lambda: unigram("prose", 240),
    "legacy": lambda: legacy("prose", 280),
}
PAIRS = [(a, b) for a in TARGETS for b in DRAFTS]
TEXT = st.one_of(
    st.sampled_from(ODD + PROSE + CODE),
    st.text(max_size=40).filter(lambda text: "\ufffd" not in text),
    st.lists(st.sampled_from([*"ab \n", "the", " there", "é", "e\u0301", "日", "🎉", "  ", "</s>"]), max_size=25).map("".join),
)


def history_of(ours, theirs):
    target, draft = TARGETS[ours](), DRAFTS[theirs]()
    translation = translation_between(target, draft)
    return target, draft, translation, TranslatedHistory(translation, len(draft))


def fresh(draft, text):
    return draft(text).input_ids


def said(draft, token_ids, whole=True):
    """What the draft's tokens stand for."""
    text = draft.decode(token_ids, skip_special_tokens=True)
    return text if whole else text.rstrip("\ufffd")


def told_apart(text, *tokenizers):
    """The text without leading spaces, unless all tokenizers keep them, which one with ▁ before the first word may not."""
    exact = all(tokenizer.decode(tokenizer(" x").input_ids, skip_special_tokens=True) == " x" for tokenizer in tokenizers)
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
@settings(max_examples=20)
@given(text=TEXT, cuts=st.lists(st.integers(1, 6), min_size=1, max_size=30), first=st.integers(1, 8))
def test_the_draft_reads_the_text_of_the_target_and_what_is_said_to_stand_stands(ours, theirs, text, cuts, first):
    target, draft, translation, history = history_of(ours, theirs)
    token_ids = target(text).input_ids
    place = 0
    for cut in [first, *cuts, len(token_ids)]:
        before, place = list(history.token_ids), place + cut
        stands = history.follow(token_ids[:place])
        assert history.token_ids[:stands] == before[:stands]
        assert stands <= len(before)
    pieces = [translation.target_bytes[token] for token in token_ids if token in translation.target_bytes]
    expected = b"".join(pieces).decode()
    if translation.drops_space:
        expected = expected.removeprefix(" ")
    assert told_apart(said(draft, history.token_ids), target, draft) == told_apart(expected, target, draft)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@settings(max_examples=12)
@given(data=st.data())
def test_any_tokens_at_all_can_be_followed(ours, theirs, data):
    target, draft, _, history = history_of(ours, theirs)
    token_ids = data.draw(st.lists(st.integers(0, len(target) + 5), min_size=1, max_size=30))
    place = 0
    while place < len(token_ids):
        before, place = list(history.token_ids), place + data.draw(st.integers(1, 4))
        stands = history.follow(token_ids[:place])
        assert history.token_ids[:stands] == before[:stands]
        assert history.token_ids
        assert all(0 <= token < len(draft) for token in history.token_ids)


def test_a_token_that_the_draft_has_is_appended_and_one_that_it_does_not_know_is_encoded_with_its_word():
    target, _, translation, history = history_of("byte-level", "legacy")
    token_ids = target("The little fox was naïve about the castle.").input_ids
    history.follow(token_ids[:2])
    unknown = 0
    for place in range(2, len(token_ids)):
        before = list(history.token_ids)
        stands = history.follow(token_ids[: place + 1])
        if (known := translation.to_draft.get(token_ids[place])) is not None and stands == len(before):
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
        assert said(draft, history.token_ids, whole=False) == target.decode(token_ids[:place]).rstrip("\ufffd")
    assert len(token_ids) > 4
    assert said(draft, history.token_ids) == "so 语x"


def test_special_tokens_are_taken_over_where_the_draft_has_them_and_left_out_where_not():
    target, draft, _, history = history_of("legacy", "byte-level")
    bos, eos = target.bos_token_id, target.eos_token_id
    words = target("the king", add_special_tokens=False).input_ids
    history.follow([bos, *words, eos, bos, *words])
    assert history.token_ids.count(draft.eos_token_id) == 1
    assert said(draft, history.token_ids) == "the king the king"


def test_the_draft_s_own_opening_stands_at_the_beginning_once():
    for ours in ("byte-level", "legacy"):
        target, draft, _, history = history_of(ours, "unigram")
        history.follow(target("the king").input_ids)
        assert history.token_ids == fresh(draft, "the king")
        assert history.token_ids.count(draft.bos_token_id) == 1


def test_a_history_is_never_empty():
    target, draft, _, history = history_of("legacy", "byte-level")
    history.follow([target.bos_token_id])
    assert history.token_ids == [draft.eos_token_id]
    history.follow(target("a king").input_ids)
    assert said(draft, history.token_ids) == "a king"


def test_tokens_beyond_the_draft_model_are_left_out():
    translation = translation_between(byte_level(), unigram())
    history = TranslatedHistory(translation, 40)
    history.follow(byte_level()("The little fox said 日本").input_ids)
    assert max(history.token_ids) < 40


def test_agreement_is_counted_from_the_front():
    assert [num_shared([1, 2, 3], other) for other in ([1, 2, 4], [1, 2, 3, 4], [2], [])] == [2, 3, 0, 0]


def test_all_kinds_are_tried():
    assert KINDS.keys() == TARGETS.keys() == DRAFTS.keys()
