"""Text of tokens for single bytes that make no character."""

import pytest

from naive_speculate.text import TextStream, Vocabulary
from tests.tokenizers_of_tests import legacy, unigram


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
