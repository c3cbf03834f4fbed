"""Tokens to text and back: exact pieces, exact stops."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_speculate.text import StopStrings, TextStream, Vocabulary
from tests.tokenizers_of_tests import legacy, unigram


@pytest.fixture(scope="module")
def vocabulary(bundled_pair):
    return Vocabulary(bundled_pair.tokenizer)


def test_a_token_inside_a_character_adds_nothing_until_it_is_complete(vocabulary):
    pieces = vocabulary.texts(vocabulary.encode("🎉"))
    assert len(pieces) > 1
    assert pieces == [""] * (len(pieces) - 1) + ["🎉"]


@settings(max_examples=300)
@given(token_ids=st.lists(st.integers(0, 4095), max_size=20))
def test_any_tokens_give_what_the_tokenizer_decodes(vocabulary, token_ids):
    stream = TextStream(vocabulary)
    text = "".join(stream.append(token) for token in token_ids) + stream.flush()
    assert text == vocabulary.tokenizer.decode(token_ids, skip_special_tokens=True)


def test_a_fork_leaves_the_original_where_it_was(vocabulary):
    ids = vocabulary.encode("one 🎉 two")
    stream = TextStream(vocabulary)
    first = [stream.append(token) for token in ids[:3]]
    fork = stream.fork()
    ahead = [fork.append(token) for token in ids[3:]]
    assert [stream.append(token) for token in ids[3:]] == ahead
    assert "".join(first + ahead) == "one 🎉 two"


def test_special_tokens_are_skipped_or_spaced(vocabulary, bundled_pair):
    end = bundled_pair.tokenizer.eos_token_id
    ids = [*vocabulary.encode("a"), end, end]
    assert "".join(map(TextStream(vocabulary).append, ids)) == "a"
    spaced = TextStream(vocabulary, skip_special_tokens=False, spaces_between_special_tokens=True)
    assert "".join(map(spaced.append, ids)) == "a<|endoftext|> <|endoftext|>"


def test_without_a_tokenizer_every_text_is_empty():
    vocabulary = Vocabulary(None)
    assert vocabulary.texts([1, 2]) == ["", ""]
    assert vocabulary.piece(3) == vocabulary.text_of(3) == ""


def test_bad_words_are_spelled_at_the_start_and_after_a_space(vocabulary):
    sequences = vocabulary.bad_word_sequences(["fox"])
    assert {vocabulary.tokenizer.decode(ids) for ids in sequences} == {"fox", " fox"}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab", max_size=4), max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3)
)
def test_a_stop_string_is_found_wherever_the_pieces_break(pieces, stops):
    text = "".join(pieces)
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    finder, cut = StopStrings(stops, include=False), None
    for piece in "".join(pieces):
        cut = finder.append(piece)
        if cut is not None:
            break
        assert all(not finder.text[finder.safe_length :].startswith(stop) for stop in stops)
    assert cut == (min(ends)[1] if ends else None)


def test_a_piece_with_several_stops_ends_at_the_one_that_completes_first():
    assert StopStrings(["cd", "b"], include=False).append("abcd") == 1
    assert StopStrings(["abcd", "c"], include=True).append("abcd") == 3


def test_what_may_become_a_stop_string_is_not_safe():
    finder = StopStrings(["END", "\n\n"], include=False)
    safe = []
    for piece in ("ab", "E", "N", "x", "\n"):
        assert finder.append(piece) is None
        safe.append(finder.safe_length)
    assert safe == [2, 2, 2, 5, 5]
    assert finder.append("\n") == 5


@pytest.mark.parametrize("make", [legacy, unigram])
@pytest.mark.parametrize("following", ["▁the", "e", "<0xE6>", "</s>"])
@pytest.mark.parametrize("prompt", [[], ["▁the"]])
def test_bytes_that_make_no_character_become_replacement_characters(make, following, prompt):
    tokenizer = make()
    ids = tokenizer.convert_tokens_to_ids([*prompt, "<0xE6>", "<0x97>", following, "▁the", "▁the"])
    stream = TextStream(Vocabulary(tokenizer))
    text = "".join(stream.append(token) for token in ids) + stream.flush()
    assert text == tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("make", [legacy, unigram])
def test_a_letter_that_was_reported_stands_when_bytes_after_it_make_no_character(make):
    """Decoded together with these, a letter that came as a byte would become a replacement character, too."""
    tokenizer = make()
    ids = tokenizer.convert_tokens_to_ids(["▁the", "<0x5B>", "<0xF9>", "e", "▁the"])
    stream = TextStream(Vocabulary(tokenizer))
    assert [stream.append(token) for token in ids] == ["the", "[", "", "\ufffde", " the"]
