"""A word list finds whole words only, however they are written, and never spells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from naive_speculate.sampling import words
from naive_speculate.sampling.words import WordList, classroom_words, masked, normalized

MADE_UP = WordList(["grumbl(?:e|ing)", "snark", "blue bottle"])


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
def test_whole_words_are_found_in_every_spelling_and_parts_of_words_never(text: str, found: list[str]) -> None:
    assert MADE_UP.find(text) == found


INNOCENT = """
The cock crowed, and the ass brayed; the dyke held, and Dick's pussy cat sat among the tits and the rooks. He pricked his
finger. A niggling doubt. She pasted sauerkraut and spices, everything spick and span.
Her hands were snickering, raccoons in cocoons, a therapist in Scunthorpe shot shiitake; grapes, drapes and scrapes. Homo
sapiens. The hello shell. A class passed the grass; assets and assassins. Matches, harlotte, sextant, Essex. Queer, gay,
savage winds, slaves, Jews and Turks, the retarded clock, a japanned box, Japan, Spain, a chinking of coins, red skin of
an apple, Hebe, cum laude, dark, darkness, darkening; cool, cooling; coolness.
"""


def test_the_shipped_list_leaves_innocent_words_alone_and_every_entry_finds_something_and_is_spelled_nowhere() -> None:
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
