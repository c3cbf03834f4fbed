"""Tokens to text and back: joined pieces are the text that all tokens give decoded together;
stops are exact."""

import random
from dataclasses import replace
from functools import cache, partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.models import wrap
from naive_speculate.text import StopStrings, TextStream, Vocabulary
from tests.tokenizers_of_tests import ODD, PROSE, byte_level, legacy, llama, unigram, wrapped

RUNS = 60


@cache
def word_pieces():
    more = "##a ##b ##c ##ing the fox do n't ##' 日 ##本"
    pieces = ["[UNK]", "[CLS]", "[SEP]", *"abcdefgh.,'", *more.split()]
    tokenizer = Tokenizer(
        models.WordPiece({piece: place for place, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return wrapped(tokenizer, "[CLS]", "[SEP]", "[UNK]")


@cache
def whole_words():
    words = ["<unk>", "</s>", *"abcdefgh", "the", "fox", "日本", "🎉"]
    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return wrapped(tokenizer, None, "</s>", "<unk>")


@cache
def metaspaces():
    """Unigram whose decoder is Metaspace, as T5's and XLNet's."""
    tokenizer = Tokenizer.from_str(unigram().backend_tokenizer.to_str())
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return wrapped(tokenizer, "<s>", "</s>", "<unk>")


@cache
def turns():
    """With a special token of no role, as <|eot_id|> is one."""
    tokenizer = wrapped(Tokenizer.from_str(legacy().backend_tokenizer.to_str()), "<s>", "</s>")
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
            ids += (
                rng.sample(tokenizer.all_special_ids, 1) * rng.randrange(8)
                if rng.random() < 0.3
                else []
            )
    return ids


def spells(vocabulary, ids, skip):
    """Whether every run of byte tokens makes characters; else decoding together replaces letters
    that were emitted."""
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
        prompt, whole = (
            tokenizer.backend_tokenizer.decode(part, skip_special_tokens=skip)
            for part in (ids[:cut], ids)
        )
        if whole.startswith(prompt):
            assert prompt + text == whole, (ids[:cut], ids[cut:])
        else:  # the output completes a character that the prompt begins
            other = TextStream(vocabulary, (), skip)
            told = "".join([other.append(token) for token in ids[:cut]])
            assert whole in (prompt.rstrip("\ufffd") + text, told + text), (ids[:cut], ids[cut:])


@pytest.mark.parametrize(
    "prompt",
    [
        "Once 🎉",
        "Once 🎉🎉",
        "Once 🎉🎉🎉",
        "🎉🎉🎉🎉",
        "日本語の文章",
        "Once </s></s></s></s></s></s></s></s>",
    ],
)
def test_a_stop_string_that_begins_with_the_space_after_the_prompt_is_found(prompt):
    tokenizer = legacy("prose")
    word = tokenizer.convert_tokens_to_ids("▁the")
    decoder = SpeculativeDecoder(ModelPair(wrap(llama(tokenizer, 0)), None, tokenizer))
    params = SamplingParams(temperature=0, max_tokens=3, allowed_token_ids=[word])
    assert decoder.generate(prompt, params).text == " the the the"
    stopped = decoder.generate(
        prompt, replace(params, stop=[" the"], include_stop_str_in_output=True)
    )
    assert (stopped.text, stopped.finish_reason, len(stopped.token_ids)) == (" the", "stop", 1)


@pytest.mark.parametrize(
    ("make", "tokens", "pieces"),
    [
        # decoded together with the bytes after it, the letter that came as a byte would become a
        # replacement character, too
        (legacy, ["▁the", "<0x5B>", "<0xF9>", "e", "▁the"], ["the", "[", "", "\ufffde", " the"]),
        (unigram, ["▁the", "<0x5B>", "<0xF9>", "e", "▁the"], ["the", "[", "", "\ufffde", " the"]),
        (
            turns,
            ["▁the", "<|turn|>", "▁the"],
            ["the", "", " the"],
        ),  # a special token of no role leaves the space after it
    ],
)
def test_pieces_of_odd_tokens(make, tokens, pieces):
    tokenizer = make()
    stream = TextStream(Vocabulary(tokenizer))
    assert [stream.append(token) for token in tokenizer.convert_tokens_to_ids(tokens)] == pieces


def test_a_token_inside_a_character_adds_nothing_until_complete_and_a_fork_leaves_the_original(
    vocabulary,
):
    ids = vocabulary.encode("one 🎉 two")
    stream = TextStream(vocabulary)
    first = [stream.append(token) for token in ids[:3]]
    fork = stream.fork()
    ahead = [fork.append(token) for token in ids[3:]]
    assert [stream.append(token) for token in ids[3:]] == ahead
    assert "".join(first + ahead) == "one 🎉 two"
    pieces = vocabulary.texts(vocabulary.encode("🎉"))
    assert pieces == [""] * (len(pieces) - 1) + ["🎉"] != ["🎉"]
    tokenizer = legacy()  # the output completes a character that the prompt begins
    ids = tokenizer.convert_tokens_to_ids(["▁the", "<0xE6>", "<0x97>", "<0xA5>", "▁the"])
    stream = TextStream(Vocabulary(tokenizer), ids[:3])
    assert [stream.append(token) for token in ids[3:]] == ["日", " the"]


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(byte_level())


def test_special_tokens_are_skipped_or_as_the_tokenizer_decodes_them_or_without_spaces_between():
    for make in (byte_level, legacy, whole_words):
        tokenizer = make()
        end = tokenizer.eos_token_id
        ids = [*tokenizer("a", add_special_tokens=False).input_ids, end, end]
        vocabulary, decode = Vocabulary(tokenizer), tokenizer.backend_tokenizer.decode
        for skip in (True, False):
            joined = "".join(map(TextStream(vocabulary, (), skip).append, ids))
            assert joined == decode(ids, skip_special_tokens=skip)
        joined = "".join(map(TextStream(vocabulary, (), False, False).append, ids))
        assert joined == decode(ids, skip_special_tokens=False).replace("> <", "><")
    assert "> <" in whole_words().decode(ids)


def test_bad_words_are_spelled_at_the_start_and_after_a_space_whatever_space_they_begin_with(
    vocabulary,
):
    for word in ("fox", " fox"):
        sequences = vocabulary.bad_word_sequences([word])
        assert {vocabulary.tokenizer.decode(ids) for ids in sequences} == {"fox", " fox"}
    with pytest.raises(ValueError, match="bad_words holds '  ', which has no tokens"):
        vocabulary.bad_word_sequences(["fox", "  "])


def test_without_a_tokenizer_every_text_is_empty():
    without = Vocabulary(None)
    assert [*without.texts([1, 2]), without.piece(3), without.text_of(3)] == [""] * 4


PROMPT = "There was another king, and"


@pytest.mark.parametrize("kind", ["byte-level", "legacy", "unigram", "whole words"])
def test_the_text_of_the_token_that_ended_a_run_is_left_out_unless_it_is_included(kind):
    tokenizer, rng = KINDS[kind](), random.Random(kind)
    decode = partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=False)
    decoder = SpeculativeDecoder(
        ModelPair(wrap(llama(tokenizer, 0)), wrap(llama(tokenizer, 1)), tokenizer)
    )
    some = {token for text in (*PROSE, *ODD) for token in tokenizer(text).input_ids}
    pieces = {token: tokenizer.convert_ids_to_tokens(token) for token in some}
    params = SamplingParams(
        max_tokens=20, temperature=0, frequency_penalty=2, ignore_eos=True, skip_special_tokens=False,
        allowed_token_ids=[token for token, piece in pieces.items() if not piece.startswith("<0x")],
    )  # fmt: skip
    prompt = decode(tokenizer(PROMPT).input_ids)
    for k in (0, 4):
        free = decoder.generate(PROMPT, params, num_draft_tokens=k)
        for token in rng.sample(free.token_ids, 4):
            at = free.token_ids.index(token)
            before = decode([*tokenizer(PROMPT).input_ids, *free.token_ids[:at]])[len(prompt) :]
            forming = before[-1:] + "never written"  # holds the last tokens back
            for include in (False, True):
                changed = replace(
                    params,
                    stop_token_ids=[token],
                    include_stop_str_in_output=include,
                    stop=[forming],
                )
                got = decoder.generate(PROMPT, changed, num_draft_tokens=k)
                ids = [*tokenizer(PROMPT).input_ids, *free.token_ids[: at + include]]
                assert prompt + got.text == decode(ids)
                assert got.token_ids == free.token_ids[: at + 1]
                emitted = [e.text for e in got.trace if e.kind in OUTPUT_KINDS]
                assert "".join(emitted) == got.text == Trace.from_jsonl(got.trace.to_jsonl()).text
                assert got.trace.finished.stop_reason == token


def test_the_end_token_of_the_model_is_in_the_text_only_if_it_is_neither_skipped_nor_left_out():
    tokenizer = legacy("prose")
    end = tokenizer.eos_token_id
    decoder = SpeculativeDecoder(ModelPair(wrap(llama(tokenizer, 0)), tokenizer=tokenizer))
    for skip, include, text in ((False, False, ""), (False, True, "</s>"), (True, True, "")):
        params = SamplingParams(
            temperature=0, logit_bias={end: 100}, skip_special_tokens=skip,
            include_stop_str_in_output=include,
        )  # fmt: skip
        result = decoder.generate(PROMPT, params)
        assert (result.text, result.token_ids, result.finish_reason) == (text, [end], "stop")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text("ab", max_size=4), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
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


def test_the_stop_that_completes_first_ends_the_text_and_what_may_become_one_is_not_safe():
    assert StopStrings(["cd", "b"], include=False).append("abcd") == 1
    assert StopStrings(["abcd", "c"], include=True).append("abcd") == 3
    finder, safe = StopStrings(["END", "\n\n"], include=False), []
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
