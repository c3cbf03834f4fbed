"""Pieces that stream out of a decoder, after a prompt: joined to its text they are what decoding everything together gives."""

import json
import random
from dataclasses import replace
from functools import cache

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.models import wrap
from naive_speculate.text import TextStream, Vocabulary
from tests import tokenizers_of_tests
from tests.tokenizers_of_tests import ODD, PROSE, byte_level, legacy, llama, unigram

RUNS = 300


@cache
def word_pieces():
    more = "##a ##b ##c ##ing the fox do n't ##' 日 ##本"
    pieces = ["[UNK]", "[CLS]", "[SEP]", *"abcdefgh.,'", *more.split()]
    tokenizer = Tokenizer(models.WordPiece({piece: place for place, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", bos_token="[CLS]", eos_token="[SEP]")


@cache
def whole_words():
    words = ["<unk>", "</s>", *"abcdefgh", "the", "fox", "日本", "🎉"]
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


@cache
def metaspaces():
    """Unigram whose decoder is Metaspace, as T5's and XLNet's."""
    state = json.loads(unigram().backend_tokenizer.to_str())
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizers_of_tests.wrapped(tokenizer, "<s>", "</s>", "<unk>")


@cache
def turns(make=legacy):
    """With a special token of no role, as <|eot_id|> is one."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(make().backend_tokenizer.to_str()), bos_token="<s>", eos_token="</s>"
    )
    tokenizer.add_tokens(["<|turn|>"], special_tokens=True)
    return tokenizer


KINDS = {
    "byte-level": byte_level, "legacy": legacy, "unigram": unigram, "metaspaces": metaspaces, "word pieces": word_pieces,
    "whole words": whole_words, "turns": turns,
}  # fmt: skip


def random_ids(tokenizer, rng):
    """Tokens of texts cut anywhere, and any tokens; byte tokens spell characters."""
    ids = []
    for _ in range(rng.randrange(1, 6)):
        if rng.random() < 0.5:
            found = tokenizer(rng.choice(ODD + PROSE), add_special_tokens=False).input_ids
            start = rng.randrange(len(found) + 1)
            ids += found[start : start + rng.randrange(12)]
        else:
            ids += [rng.randrange(len(tokenizer)) for _ in range(rng.randrange(5))]
            ids += rng.sample(tokenizer.all_special_ids, 1) * rng.randrange(8) if rng.random() < 0.3 else []
    return ids


def spells(vocabulary, ids, skip):
    """Whether every run of byte tokens makes characters; else decoding together replaces letters that were emitted."""
    run, runs = b"", []
    for token in [*ids, None]:
        piece = "" if token is None else vocabulary.piece(token)
        if piece.startswith("<0x"):
            run += bytes([int(piece[3:5], 16)])
        elif not (skip and token in vocabulary.special_ids):
            runs, run = [*runs, run], b""
    return all(one.decode(errors="ignore").encode() == one for one in runs)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_prompt_and_pieces_are_what_is_decoded_together(kind, skip):
    tokenizer, rng, checked = KINDS[kind](), random.Random(kind), 0
    vocabulary = Vocabulary(tokenizer)
    while checked < RUNS:
        ids = random_ids(tokenizer, rng)
        if not spells(vocabulary, ids, skip):
            continue
        cut, checked = rng.randrange(len(ids) + 1), checked + 1
        stream = TextStream(vocabulary, ids[:cut], skip)
        text = "".join([stream.append(token) for token in ids[cut:]]) + stream.flush()
        prompt, whole = (tokenizer.backend_tokenizer.decode(part, skip_special_tokens=skip) for part in (ids[:cut], ids))
        if whole.startswith(prompt):
            assert prompt + text == whole, (ids[:cut], ids[cut:])
        else:  # the output completes a character that the prompt begins
            other = TextStream(vocabulary, (), skip)
            told = "".join([other.append(token) for token in ids[:cut]])
            assert whole in (prompt.rstrip("\ufffd") + text, told + text), (ids[:cut], ids[cut:])


@pytest.mark.parametrize(
    "prompt", ["Once 🎉", "Once 🎉🎉", "Once 🎉🎉🎉", "🎉🎉🎉🎉", "日本語の文章", "Once </s></s></s></s></s></s></s></s>"]
)
def test_a_stop_string_that_begins_with_the_space_after_the_prompt_is_found(prompt):
    tokenizer = legacy("prose")
    word = tokenizer.convert_tokens_to_ids("▁the")
    decoder = SpeculativeDecoder(ModelPair(wrap(llama(tokenizer, 0)), None, tokenizer))
    params = SamplingParams(temperature=0, max_tokens=3, allowed_token_ids=[word])
    assert decoder.generate(prompt, params).text == " the the the"
    stopped = decoder.generate(prompt, replace(params, stop=[" the"], include_stop_str_in_output=True))
    assert (stopped.text, stopped.finish_reason, len(stopped.token_ids)) == (" the", "stop", 1)


def test_the_output_completes_a_character_that_the_prompt_begins():
    tokenizer = legacy()
    ids = tokenizer.convert_tokens_to_ids(["▁the", "<0xE6>", "<0x97>", "<0xA5>", "▁the"])
    stream = TextStream(Vocabulary(tokenizer), ids[:3])
    assert [stream.append(token) for token in ids[3:]] == ["日", " the"]


def test_a_special_token_of_no_role_leaves_the_space_after_it():
    tokenizer = turns()
    ids = tokenizer.convert_tokens_to_ids(["▁the", "<|turn|>", "▁the"])
    stream = TextStream(Vocabulary(tokenizer))
    assert stream.append(ids[0]) + stream.append(ids[1]) + stream.flush() + stream.append(ids[2]) == "the the"
