"""What a word filter bans after a text: exactly the tokens that would complete a listed word."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch

from naive_speculate import SamplingParams
from naive_speculate.sampling.word_filter import FilterTable, WordFilter
from naive_speculate.sampling.words import WordList, classroom_words, normalized
from naive_speculate.translation import token_bytes
from tests.tokenizers_of_tests import byte_level, legacy, unigram

MADE_UP = WordList(["grumbl(?:e|ing)", "snark", "blue bottle", "café", "king of", "fox\\w*"])
TOKENIZERS = [byte_level, unigram, legacy]


@cache
def table_of(tokenizer, words: WordList = MADE_UP) -> FilterTable:
    return FilterTable(words, token_bytes(tokenizer), len(tokenizer))


def spelled(tokenizer, text: str) -> list[int]:
    """A text byte by byte, which is as far as a word can be split."""
    single = {form: token for token, form in token_bytes(tokenizer).items() if len(form) == 1}
    return [single[bytes([byte])] for byte in text.encode()]


def first_banned(table: FilterTable, tokens: list[int], prompt: list[int] | None = None) -> int | None:
    """The place of the first token that is banned where it stands."""
    banned = WordFilter(table, prompt or []).banned([], tokens)
    return next((place for place, token in enumerate(tokens) if token in banned[place]), None)


WORDS = ["snark", "SNARK", "Snark", "ｓｎａｒｋ", "sn\u200bark", "sn\u00adark", "blue \n bottle", "CAFÉ", "cafe\u0301"]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_word_is_never_completed_in_whatever_letters_and_however_it_is_split(tokenizer):
    for written in WORDS:
        tokens = spelled(tokenizer(), f"a {written}")
        assert first_banned(table_of(tokenizer()), tokens) == len(tokens) - 1, written


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_what_is_no_listed_word_may_be_written(tokenizer):
    for written in ("unsnark", "half8snark", "blue bottl", "cafe", "grumbl", "ésnark", "kings off", "日snark"):
        assert first_banned(table_of(tokenizer()), spelled(tokenizer(), f"a {written}")) is None, written


@pytest.mark.parametrize("between", ["_", "-", "“", "🎉", "\n", "\ufffd", "l'"])
def test_a_word_begins_after_anything_but_a_letter(between):
    tokens = spelled(byte_level(), f"a{between}snark")
    assert first_banned(table_of(byte_level()), tokens) == len(tokens) - 1


def test_a_character_that_is_broken_off_ends_a_word():
    tokens = spelled(byte_level(), "é")[:1] + spelled(byte_level(), "snark")
    assert first_banned(table_of(byte_level()), spelled(byte_level(), "a") + tokens) == len(tokens)


def test_a_word_may_begin_in_the_prompt_but_one_that_stands_there_is_not_the_filters():
    table, tokenizer = table_of(byte_level()), byte_level()
    assert first_banned(table, spelled(tokenizer, "ark"), spelled(tokenizer, "a sn")) == 2
    assert first_banned(table, spelled(tokenizer, ", he said"), spelled(tokenizer, "a snark")) is None
    assert first_banned(table, spelled(tokenizer, "bottle"), spelled(tokenizer, "a blue ")) == 5


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("seed", range(2))
def test_banned_is_what_would_put_a_new_listed_word_into_the_text(tokenizer, seed):
    """Against the definition, on random texts of parts of words."""
    tokenizer, chance = tokenizer(), random.Random(seed)
    table, forms = table_of(tokenizer), token_bytes(tokenizer)
    parts = ["sn", "ark", "blue", " bott", "le", " ", "caf", "é", "king", " of", "fo", "x", "grumb", "ling", "日", "🎉", "'s"]
    tokens: list[int] = []
    for part in chance.choices(parts, k=12):
        tokens += tokenizer(part, add_special_tokens=False).input_ids
    kept: list[int] = []
    for token in tokens:
        text = b"".join(forms.get(one, b"") for one in kept)
        before = MADE_UP.places(text.decode(errors="replace"))
        banned = WordFilter(table, []).banned(kept)[0].tolist()
        for candidate, form in forms.items():
            new = MADE_UP.places((text + form).decode(errors="replace")) - before
            assert (candidate in banned) == bool(new), (text, form)
        if token not in banned:
            kept.append(token)


def test_it_can_be_asked_about_any_history():
    table, tokenizer = table_of(byte_level()), byte_level()
    tokens = spelled(tokenizer, "a snark, a blue bottle and grumbling foxes")
    asked, chance = WordFilter(table, []), random.Random(1)
    for _ in range(60):
        history = tokens[: chance.randrange(len(tokens))] + chance.choices(tokens, k=chance.randrange(4))
        window = chance.choices(tokens, k=3)
        found, fresh = asked.banned(history, window), WordFilter(table, []).banned(history, window)
        assert [some.tolist() for some in found] == [some.tolist() for some in fresh]


def test_scores_of_banned_tokens_alone_change():
    table, tokenizer = table_of(byte_level()), byte_level()
    scores = torch.randn(3, len(tokenizer))
    history, window = spelled(tokenizer, "a sna"), spelled(tokenizer, "rk")
    found = WordFilter(table, []).apply(scores, history, window)
    changed = [(found[place] != scores[place]).nonzero().flatten().tolist() for place in range(3)]
    assert all(token in changed[1] for token in spelled(tokenizer, "kK"))
    assert all((found[place, changed[place]] == -torch.inf).all() for place in range(3))


def test_the_shipped_list_is_said_by_its_name_and_any_other_by_its_own():
    assert SamplingParams(filter_words="classroom").to_dict()["filter_words"] == "classroom"
    assert SamplingParams(filter_words=classroom_words()).to_dict()["filter_words"] == "classroom"
    assert SamplingParams(filter_words=MADE_UP).to_dict()["filter_words"] == "custom"
    assert SamplingParams().to_dict()["filter_words"] is None
    refused = (
        "^filter_words must be None, 'classroom' or a WordList, got 'custom': of a list of one's own, settings keep the name"
    )
    with pytest.raises(ValueError, match=refused):
        SamplingParams(filter_words=SamplingParams(filter_words=MADE_UP).to_dict()["filter_words"])


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_first_letter_in_two_characters_is_the_same_letter(tokenizer):
    table = table_of(tokenizer(), WordList(["étoile", "ệ"]))
    for written in ("e\u0301toile", "étoile", "E\u0301TOILE", "e\u0323\u0302", "ệ"):
        tokens = spelled(tokenizer(), f"a {written}")
        assert first_banned(table, tokens) == len(tokens) - 1, written
        assert first_banned(table, spelled(tokenizer(), f"a x{written}, etoile")) is None, written


@pytest.mark.parametrize("text", ["ß\u0301", "e\u200b\u0301", "ŉ", "ﬃ\u0301", "\u0345\u0301"])
def test_what_is_normalised_stays_as_it_is(text):
    assert normalized(normalized(text)) == normalized(text)
