"""A word list finds whole words only, however they are written; a filter bans exactly the tokens
that would complete one."""

from __future__ import annotations

import random
from functools import cache, partial
from pathlib import Path

import pytest
import torch

from naive_speculate import SamplingParams
from naive_speculate.guides import words
from naive_speculate.guides.words import (
    FilterTable,
    WordFilter,
    WordList,
    classroom_words,
    masked,
    normalized,
)
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.text import token_bytes
from tests.tokenizers_of_tests import byte_level, legacy, unigram

MADE_UP = WordList(
    ["grumbl(?:e|ing)", "snark", "blue bottle", "café", "king of", "fox\\w*", "étoile", "ệ"]
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A Snark!", ["snark"]),
        ("snarks, snark's; SNARKS’", ["snarks", "snark's", "snarks'"]),
        ("the _snark_ and the half-snark", ["snark", "snark"]),
        ("a blue\n  bottle", ["blue bottle"]),
        ("ｓｎａｒｋ, sn\u200bark, sn\u00adark", ["snark", "snark", "snark"]),
        ("grumbling", ["grumbling"]),
        ("snarky, unsnark, snarkless, grumblingly, grumbler, blue bottled", []),
        ("", []),
    ],
)
def test_whole_words_are_found_in_every_spelling_and_parts_of_words_never(
    text: str, found: list[str]
) -> None:
    assert MADE_UP.find(text) == found


INNOCENT = """
The cock crowed, and the ass brayed; the dyke held, and Dick's pussy cat sat among the tits and the
rooks. He pricked his finger. A niggling doubt. She pasted sauerkraut and spices, everything spick
and span. Her hands were snickering, raccoons in cocoons, a therapist in Scunthorpe shot shiitake;
grapes, drapes and scrapes. Homo sapiens. The hello shell. A class passed the grass; assets and
assassins. Matches, harlotte, sextant, Essex. Queer, gay, savage winds, slaves, Jews and Turks, the
retarded clock, a japanned box, Japan, Spain, a chinking of coins, red skin of an apple, Hebe, cum
laude, dark, darkness, darkening; cool, cooling; coolness.
"""


def test_the_shipped_list_leaves_innocent_words_alone_and_is_spelled_nowhere() -> None:
    assert len(classroom_words().entries) >= 100
    assert classroom_words().find(INNOCENT) == []
    assert classroom_words().find(Path(words.__file__).read_text(encoding="utf-8")) == []
    for entry in classroom_words().entries:
        plain = entry.replace("\\w*", "")
        if plain.replace(" ", "").isalpha():
            assert classroom_words().find(f"The {plain.upper()}s.") or classroom_words().find(plain)


def test_a_list_is_read_back_as_it_was_encoded_and_what_is_none_is_refused() -> None:
    assert WordList.decode(WordList.encode(MADE_UP.entries).replace(" ", "\n")) == MADE_UP
    for wrong in ("snark", "KA==", "", "é"):
        with pytest.raises(ValueError, match=r"base64|regular expression|entries"):
            WordList.decode(wrong)


def test_a_masked_word_shows_its_first_letter_only_and_what_is_normalised_stays_as_it_is() -> None:
    assert masked("snark") == "s****"
    for text in ("ß\u0301", "e\u200b\u0301", "ŉ", "ﬃ\u0301", "\u0345\u0301"):
        assert normalized(normalized(text)) == normalized(text)


# What a filter bans after a text


TOKENIZERS = [byte_level, unigram, legacy]


@cache
def table_of(tokenizer) -> FilterTable:
    return FilterTable(MADE_UP, token_bytes(tokenizer), len(tokenizer))


def spelled(tokenizer, text: str) -> list[int]:
    """A text byte by byte, which is as far as a word can be split."""
    single = {form: token for token, form in token_bytes(tokenizer).items() if len(form) == 1}
    return [single[bytes([byte])] for byte in text.encode()]


def first_banned(
    table: FilterTable, tokens: list[int], prompt: tuple[int, ...] | list[int] = ()
) -> int | None:
    """The index of the first token that is banned where it stands."""
    follower, places = WordFilter(table, prompt), enumerate(tokens)
    return next(
        (place for place, token in places if token in follower.banned(tokens[:place])), None
    )


LISTED = [
    "snark",
    "SNARK",
    "Snark",
    "ｓｎａｒｋ",
    "sn\u200bark",
    "sn\u00adark",
    "blue \n bottle",
    "CAFÉ",
    "cafe\u0301",
]
LISTED += [
    "e\u0301toile",
    "étoile",
    "E\u0301TOILE",
    "e\u0323\u0302",
    "ệ",
]  # a first letter in two characters
AFTER = ["_", "-", "“", "🎉", "\n", "\ufffd", "l'"]
OTHERS = ["unsnark", "half8snark", "blue bottl", "cafe", "grumbl", "ésnark", "kings off", "日snark"]
OTHERS += ["xétoile, etoile", "xe\u0301toile", "xệ", "xe\u0323\u0302"]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_listed_word_is_never_completed_however_it_is_split_and_any_other_may_be_written(
    tokenizer,
):
    table = table_of(tokenizer())
    for text in [*(f"a {word}" for word in LISTED), *(f"a{between}snark" for between in AFTER)]:
        tokens = spelled(tokenizer(), text)
        assert first_banned(table, tokens) == len(tokens) - 1, text
    for word in OTHERS:
        assert first_banned(table, spelled(tokenizer(), f"a {word}")) is None, word


def test_a_word_may_begin_in_the_prompt_or_lines_before_and_a_history_may_be_another():
    """One that stands in the prompt is not the filter's."""
    table, spell = table_of(byte_level()), partial(spelled, byte_level())
    for prompt, text, first in (
        ("a sn", spell("ark"), 2),
        ("a snark", spell(", he said"), None),
        ("a blue ", spell("bottle"), 5),
        ("", spell("a") + spell("é")[:1] + spell("snark"), 6),
        ("", spell("a blue" + "\n" * 300 + "bottle"), 311),
    ):
        assert first_banned(table, text, spell(prompt)) == first, (prompt, text)
    follower = WordFilter(table, [])
    for text in ("a blue bottl", "a blue b", "a snar", "", "a blue bottl"):
        assert torch.equal(
            follower.banned(spell(text)), WordFilter(table, []).banned(spell(text))
        ), text


@pytest.mark.parametrize(("tokenizer", "seed"), zip(TOKENIZERS, range(3), strict=True))
def test_banned_is_what_would_put_a_new_listed_word_into_the_text(tokenizer, seed):
    """Against the definition, on random texts of parts of words."""
    tokenizer, chance = tokenizer(), random.Random(seed)
    table, forms = table_of(tokenizer), token_bytes(tokenizer)
    parts = [
        "sn",
        "ark",
        "blue",
        " bott",
        "le",
        " ",
        "caf",
        "é",
        "king",
        " of",
        "fo",
        "x",
        "grumb",
        "ling",
        "日",
        "🎉",
        "'s",
    ]
    tokens: list[int] = []
    for part in chance.choices(parts, k=12):
        tokens += tokenizer(part, add_special_tokens=False).input_ids
    kept: list[int] = []
    follower = WordFilter(table, [])
    for token in tokens:
        text = b"".join(forms.get(one, b"") for one in kept)
        before = MADE_UP.places(text.decode(errors="replace"))
        banned = follower.banned(kept).tolist()
        for candidate, form in forms.items():
            new = MADE_UP.places((text + form).decode(errors="replace")) - before
            assert (candidate in banned) == bool(new), (text, form)
        if token not in banned:
            kept.append(token)


def test_scores_of_banned_tokens_alone_change_along_a_window_after_prompt_and_output():
    table, tokenizer = table_of(byte_level()), byte_level()
    prompt, history, window = (spelled(tokenizer, text) for text in ("a s", "na", "rk"))
    pipeline = LogitsPipeline(
        SamplingParams(filter_words=MADE_UP),
        prompt,
        len(tokenizer),
        masks={"filter_words": WordFilter(table, prompt)},
    )
    scores = torch.randn(3, len(tokenizer))
    found = pipeline.scores(scores, history, window)
    for place in range(3):
        expected = scores[place].clone()
        expected[WordFilter(table, prompt).banned(history + window[:place])] = -torch.inf
        assert torch.equal(found[place], expected)
    assert set(spelled(tokenizer, "kK")) <= set(
        (found[1] == -torch.inf).nonzero().flatten().tolist()
    )


def test_the_shipped_list_is_said_by_its_name_and_any_other_by_its_own():
    assert SamplingParams(filter_words="classroom").to_dict()["filter_words"] == "classroom"
    assert SamplingParams(filter_words=classroom_words()).to_dict()["filter_words"] == "classroom"
    assert SamplingParams(filter_words=MADE_UP).to_dict()["filter_words"] == "custom"
    assert SamplingParams().to_dict()["filter_words"] is None
    refused = (
        "^filter_words must be None, 'classroom' or a WordList, got 'custom': of a list of one's"
        " own, settings keep the"
    )
    with pytest.raises(ValueError, match=refused):
        SamplingParams(filter_words="custom")
