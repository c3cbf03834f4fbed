"""The tokenizer gives back every text exactly and adds nothing of its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from train.config import END_OF_TEXT, END_OF_TEXT_ID
from train.tokenizer import for_transformers, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    folder = tmp_path_factory.mktemp("tokenizer")
    for_transformers(train_tokenizer(["the cat sat on the mat", "the dog sat too"] * 5, 280), 64).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "  two  spaces ",
        "a\r\n\tb",
        "don't , stop . now",
        "😀 👩‍👩‍👧 é e\u0301",
        "日本語",
        "\x00\x7f\u2028\ufffd",
        "the\u00a0cat",
    ],
)
def test_decoding_gives_the_text_back(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=100, deadline=None)
@given(text=st.text())
def test_decoding_gives_any_text_back(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_nothing_is_added_to_a_prompt(tokenizer: PreTrainedTokenizerBase) -> None:
    assert [tokenizer.decode([token]) for token in tokenizer.encode("the cat")] == ["the", " cat"]


def test_every_byte_has_a_piece(tokenizer: PreTrainedTokenizerBase) -> None:
    assert len(tokenizer) > 256
    assert tokenizer.unk_token is None
    assert all(tokenizer.encode(chr(code)) for code in range(256))


def test_end_of_text_is_one_token_and_both_ends(tokenizer: PreTrainedTokenizerBase) -> None:
    assert tokenizer.encode(f"the{END_OF_TEXT}the")[1] == END_OF_TEXT_ID
    assert tokenizer.eos_token_id == tokenizer.bos_token_id == END_OF_TEXT_ID
