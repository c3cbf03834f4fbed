"""Tokens of two tokenizers are matched by the bytes that they stand for."""

import pytest

from naive_speculate.models.translation.tokens import Translation, translation_between
from tests.tokenizers_of_tests import KINDS, ODD, byte_level, legacy, shuffled, unigram

PAIRS = [(a, b) for a in KINDS for b in KINDS if a != b]


def plain_ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_a_text_s_tokens_are_the_text(kind):
    tokenizer = KINDS[kind]()
    translation = Translation(tokenizer, byte_level("code", 380, eos="<|stop|>"))
    for text in (text for text in ODD if tokenizer.eos_token not in text):
        joined = b"".join(
            translation.target_bytes[token] for token in plain_ids(tokenizer, text)
        ).decode()
        assert joined == text or (translation.drops_space and joined in (" " + text, text))
        assert joined.startswith(" ") == (translation.drops_space or text.startswith(" "))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_shared_tokens_stand_for_the_same_bytes_and_each_for_one(ours, theirs):
    target, draft = KINDS[ours](), KINDS[theirs]()
    there, back = Translation(target, draft), Translation(draft, target)
    assert {b: a for a, b in there.to_draft.items()} == back.to_draft
    special = [token for token in there.to_draft if token not in there.target_bytes]
    assert special == [target.eos_token_id] or {ours, theirs} == {"unigram", "legacy"}
    for token, other in there.to_draft.items():
        assert there.target_bytes.get(token) == back.target_bytes.get(other)
    assert 0.1 < there.counts["shared"] / len(target) < 1
    assert there.counts == {
        "shared": len(there.to_draft),
        "target": len(target),
        "draft": len(draft),
    }


def test_markers_and_byte_tokens_are_resolved():
    target, draft = byte_level(), unigram("prose", 240)
    there = Translation(target, draft).to_draft
    pieces = {
        target.convert_ids_to_tokens(a): draft.convert_ids_to_tokens(b) for a, b in there.items()
    }
    assert pieces["Ġthe"] == "▁the"
    assert pieces["<|end|>"] == "</s>"
    assert pieces["Ċ"] == "<0x0A>"
    assert pieces["e"] == "e"  # rather than <0x65>


def test_special_tokens_are_matched_by_their_text_and_never_by_ordinary_ones():
    target, draft = legacy(), unigram()
    there = Translation(target, draft).to_draft
    for token in ("<s>", "</s>", "<unk>"):
        assert there[target.convert_tokens_to_ids(token)] == draft.convert_tokens_to_ids(token)
    other = byte_level("prose", 420, eos="the")
    translation = Translation(other, byte_level())
    assert translation.to_draft[other.eos_token_id] == byte_level().eos_token_id
    assert other.eos_token_id not in translation.target_bytes


def test_the_same_tokens_need_no_translation_and_a_text_that_spells_a_special_token_is_text():
    tokenizer, draft = byte_level(), unigram()
    assert translation_between(tokenizer, tokenizer) is None
    other, ids = shuffled(tokenizer)
    assert translation_between(tokenizer, other).to_draft == dict(enumerate(ids))
    found, _ = Translation(tokenizer, draft).encode("a </s> b", begins=True)
    assert draft.eos_token_id not in found
    assert draft.decode(found) == "a </s> b"


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_goes_on_without_another_space_and_begins_as_the_tokenizer_does(kind):
    draft = KINDS[kind]()
    translation = Translation(byte_level("code", 380, eos="<|stop|>"), draft)
    assert translation.encode("there was", begins=True)[0] == plain_ids(draft, "there was")
    went_on, _ = translation.encode("there was", begins=False)
    assert draft.convert_ids_to_tokens(went_on)[0][0] == "t"
    assert translation.opening == ([] if draft.bos_token_id is None else [draft.bos_token_id])
