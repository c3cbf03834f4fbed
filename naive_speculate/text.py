"""Converts tokens to text one at a time; the joined pieces are exactly the text."""

import copy
import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any

from tokenizers.decoders import DecodeStream

_CONTEXT_TOKENS = 6
_REPLACEMENT = "\ufffd"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
MAX_LABEL = 24
_SIGNS = {"\n": "⏎", "\r": "␍", "\t": "⇥", "\u00a0": "⍽"}
_UNSEEN = {
    "Cc",
    "Cf",
    "Cs",
    "Co",
    "Cn",
    "Zl",
    "Zp",
}  # controls, direction marks, surrogates, private and unassigned


def num_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix of two texts, in tokens."""
    pairs = zip(first, second, strict=False)
    return next(
        (index for index, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second))
    )


def check_tokenizer(tokenizer: Any, argument: str = "tokenizer") -> None:
    """Raise a `ValueError` that names the argument if a tokenizer has no fast backend."""
    if tokenizer is not None and not hasattr(tokenizer, "backend_tokenizer"):
        raise ValueError(
            f"{argument} must be a transformers tokenizer with a fast backend, got"
            f" {type(tokenizer).__name__}"
        )


def check_unicode(name: str, text: str) -> None:
    """Refuse text that no encoding can hold. Raises `ValueError` if it has half of a surrogate
    pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} is broken text: character {error.start} is half of a surrogate pair"
        ) from None


class Vocabulary:
    """The tokenizer interface of the engine, for a transformers tokenizer with a fast backend;
    without one every text is "". Raises `ValueError` for another tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        check_tokenizer(tokenizer)
        self.tokenizer = tokenizer
        self.backend: Any = None if tokenizer is None else tokenizer.backend_tokenizer
        added = {} if tokenizer is None else tokenizer.added_tokens_decoder
        # the tokens that decoding skips: those with a role, and those added as special
        special = () if tokenizer is None else tokenizer.all_special_ids
        self.special_ids = frozenset(
            (*special, *(token for token, entry in added.items() if entry.special))
        )
        self.added_texts = {token: str(entry.content) for token, entry in added.items()}
        self.piece = lru_cache(maxsize=None)(self._piece)
        self.text_of = lru_cache(maxsize=None)(self._text_of)

    def encode(self, text: str, argument: str = "prompt", *, begins: bool = True) -> list[int]:
        """Token ids of a text, the value of `argument`; `begins` adds the tokens of a beginning.
        Raises `ValueError` if there is no tokenizer, or the text has half of a surrogate pair."""
        check_unicode(argument, text)
        if self.tokenizer is None:
            raise ValueError(f"{argument} must be a list of token ids: this pair has no tokenizer")
        return list(self.tokenizer(text, add_special_tokens=begins).input_ids)

    def _piece(self, token_id: int) -> str:
        return (
            "" if self.tokenizer is None else self.tokenizer.convert_ids_to_tokens(token_id) or ""
        )

    def _text_of(self, token_id: int) -> str:
        return (
            ""
            if self.backend is None
            else self.backend.decode([token_id], skip_special_tokens=False)
        )

    def texts(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token, special tokens included."""
        stream = TextStream(self, skip_special_tokens=False)
        texts = [stream.append(token) for token in token_ids]
        if texts:
            texts[-1] += stream.flush()
        return texts

    def continuing(self, text: str, history: Sequence[int]) -> list[int]:
        """Token ids that add exactly this text to a history; [] where none are found."""
        history = history[-_CONTEXT_TOKENS:]
        before = "".join(self.texts(history))
        for written in (text, text.lstrip(" ")):  # some tokenizers put the space themselves
            token_ids = self.encode(written, begins=False)
            if "".join(self.texts([*history, *token_ids])) == before + text:
                return token_ids
        return []

    def bad_word_sequences(self, words: Sequence[str]) -> list[list[int]]:
        """Token sequences that spell a word, at the start of the text and after a space. Raises
        `ValueError` if there is no tokenizer, or a word has no tokens."""
        if words and self.tokenizer is None:
            raise ValueError(f"bad_words={list(words)!r} needs a tokenizer, and this pair has none")
        sequences: list[list[int]] = []
        for word in words:
            alone, after_space = (
                list(self.tokenizer(space + word.lstrip(), add_special_tokens=False).input_ids)
                for space in ("", " ")
            )
            if not alone:
                raise ValueError(f"bad_words holds {word!r}, which has no tokens")
            sequences += [ids for ids in (alone, after_space) if ids and ids not in sequences]
        return sequences


class TextStream:
    """Incremental detokenization of one sequence: the joined pieces equal the text of all tokens
    decoded together.

    A token inside a multi-byte character gives "", and the token that completes it gives the
    character, even if it begins in the prompt. The only exception are byte tokens that form no
    character: decoded together, they also replace preceding letters from byte tokens.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompt_token_ids: Sequence[int] = (),
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        self._vocabulary = vocabulary
        self._skip = skip_special_tokens
        self._joins_added = not (spaces_between_special_tokens or skip_special_tokens)
        self._stream = DecodeStream(skip_special_tokens=skip_special_tokens)
        self._after_added = False
        self._undecided: list[int] = []
        self._shown = ""  # the prompt's part of an incomplete character
        for token in self._context(prompt_token_ids):
            self.append(token)
        self._after_added = False
        if self._undecided:
            self._shown = vocabulary.backend.decode(
                self._undecided, skip_special_tokens=skip_special_tokens
            )

    def _context(self, prompt_token_ids: Sequence[int]) -> Sequence[int]:
        """The end of the prompt, long enough to decode correctly, as in vLLM's
        `v1/engine/detokenizer.py`."""
        backend, count = self._vocabulary.backend, _CONTEXT_TOKENS
        while backend is not None and count < len(prompt_token_ids):
            text = backend.decode(list(prompt_token_ids[-count:]), skip_special_tokens=self._skip)
            if text.strip() and _REPLACEMENT not in text:
                return prompt_token_ids[-count:]
            count *= 2
        return prompt_token_ids

    def append(self, token_id: int) -> str:
        """The text that a token adds."""
        backend = self._vocabulary.backend
        if backend is None:
            return ""
        special = token_id in self._vocabulary.special_ids
        try:
            text = self._stream.step(backend, token_id)
        except Exception:  # it raises plain Exception for bytes that form no character
            text = self._begin_again(token_id)
        if text is None:
            if not (special and self._skip):
                self._undecided.append(token_id)
            text = ""
        else:
            self._undecided.clear()
            text = self._new(text)
        added = self._vocabulary.added_texts.get(token_id) if self._joins_added else None
        if added is not None and self._after_added:
            text = added
        self._after_added = added is not None
        return text

    def _new(self, text: str) -> str:
        """The text without the replacement characters at the end of the prompt's text."""
        shown, self._shown = self._shown, ""
        return text.removeprefix(shown if text.startswith(shown) else shown.rstrip(_REPLACEMENT))

    def _begin_again(self, token_id: int) -> str:
        """The text of a token after bytes of an incomplete character, which become replacement
        characters."""
        backend = self._vocabulary.backend
        self._stream = DecodeStream(skip_special_tokens=self._skip)
        self._stream.step(backend, token_id)
        return backend.decode([*self._undecided, token_id], skip_special_tokens=self._skip)

    def flush(self) -> str:
        """The rest of an incomplete character at the end of the text, as replacement characters."""
        if not self._undecided:
            return ""
        text = self._vocabulary.backend.decode(self._undecided, skip_special_tokens=self._skip)
        self._undecided.clear()
        self._stream = DecodeStream(skip_special_tokens=self._skip)
        return self._new(text)

    def fork(self) -> "TextStream":
        """A copy, for the text of draft tokens."""
        twin = copy.copy(self)
        twin._stream, twin._undecided = copy.copy(self._stream), list(self._undecided)
        return twin


class StopStrings:
    """Finds the first stop string in a growing text; `found` is the one that ends it, and
    `include` leaves it in the text."""

    def __init__(self, stops: Sequence[str], include: bool) -> None:
        self._stops = list(stops)
        self._include = include
        self._longest = max(map(len, self._stops), default=0)
        self.text = ""
        self.found: str | None = None

    def append(self, piece: str, search: bool = True) -> int | None:
        """Add text; if it completes a stop string and `search` is set, returns the length at
        which to cut the text."""
        before = len(self.text)
        self.text += piece
        if not search:
            return None
        # Only matches that end in this piece count: earlier ones were not searched for.
        matches = [
            (self.text.find(stop, max(0, before - len(stop) + 1)), stop) for stop in self._stops
        ]
        hits = [(at, stop) for at, stop in matches if at >= 0]
        if not hits:
            return None
        # The one that completes first ends the text, as if characters arrived one by one.
        at, self.found = min(hits, key=lambda pair: (pair[0] + len(pair[1]), pair[0]))
        return at + len(self.found) if self._include else at

    @property
    def safe_length(self) -> int:
        """Length of the text that no stop string can still remove."""
        begins = range(max(0, len(self.text) - self._longest + 1), len(self.text))
        return next(
            (at for at in begins if any(stop.startswith(self.text[at:]) for stop in self._stops)),
            len(self.text),
        )


def tokens_between(texts: Sequence[str], start: int, end: int) -> tuple[int, int]:
    """The tokens that have a part of a text, from character `start` to `end`: the index of the
    first one and the index after the last one. `texts`: those of the tokens."""
    begins = [0, *accumulate(map(len, texts))]
    first = bisect_left(begins, start)
    if first and begins[min(first, len(texts))] > start:  # it begins within a token
        first -= 1
    return first, max(first, bisect_left(begins, end, hi=len(texts)))


def token_bytes(tokenizer: Any) -> dict[int, bytes]:
    """The bytes of each token of a transformers tokenizer, without special ones."""
    return TokenForms(tokenizer).bytes


Form = bytes | str  # a token's bytes, or a special token's text

_END = "end of sequence"


class TokenForms:
    """The forms of a tokenizer's tokens: `bytes` by id, without special tokens, and one id per
    form (`ids`); `spaced` if tokens are words with an implicit space before each."""

    def __init__(self, tokenizer: Any) -> None:
        backend = tokenizer.backend_tokenizer
        parts = [part for step in (backend.decoder, backend.pre_tokenizer) for part in _parts(step)]
        kinds = {part["type"] for part in parts}
        self._by_byte = "ByteLevel" in kinds
        self._markers = {part["replacement"] for part in parts if part["type"] == "Metaspace"}
        self._markers |= {
            part["pattern"]["String"]
            for part in _parts(backend.decoder)
            if part["type"] == "Replace"
            and part.get("content") == " "
            and "String" in part["pattern"]
        }
        self._byte_tokens = "ByteFallback" in kinds or bool(
            getattr(backend.model, "byte_fallback", False)
        )
        self._suffix_mark = next(
            (part["prefix"] for part in parts if part["type"] == "WordPiece"), None
        )
        self.spaced = self._suffix_mark is not None or not (
            self._by_byte or self._markers or backend.decoder is not None
        )
        added = tokenizer.added_tokens_decoder
        special = {
            *tokenizer.all_special_ids,
            *(token for token, entry in added.items() if entry.special),
        }
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        self.bytes = {
            token: self._bytes(piece, token in added)
            for piece, token in vocabulary
            if token not in special
        }
        self.ids: dict[Form, int] = {}
        if tokenizer.eos_token_id is not None:
            self.ids[_END] = tokenizer.eos_token_id
        # Byte tokens last: the tokenizer never uses them for a letter with its own token.
        for piece, token in sorted(vocabulary, key=lambda item: self._is_byte_token(item[0])):
            if token != tokenizer.eos_token_id:
                self.ids.setdefault(piece if token in special else self.bytes[token], token)

    def _is_byte_token(self, piece: str) -> bool:
        return self._byte_tokens and _BYTE_TOKEN.fullmatch(piece) is not None

    def _bytes(self, piece: str, added: bool) -> bytes:
        if self._is_byte_token(piece):
            return bytes([int(piece[3:5], 16)])
        if self._by_byte:
            values = None if added else [_byte_of().get(letter) for letter in piece]
            return (
                piece.encode()
                if values is None or None in values
                else bytes(byte for byte in values if byte is not None)
            )
        if self._suffix_mark and piece.startswith(self._suffix_mark):
            return piece.removeprefix(self._suffix_mark).encode()
        if self.spaced:
            return b" " + piece.encode()
        for marker in self._markers:
            piece = piece.replace(marker, " ")
        return piece.encode(errors="replace")


@cache
def _byte_of() -> dict[str, int]:
    """The letters for bytes in byte-level BPE."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode  # takes a while

    return {letter: byte for byte, letter in bytes_to_unicode().items()}


def _parts(step: Any) -> Iterator[dict[str, Any]]:
    """The parts of a fast tokenizer's step as plain values, sequences flattened."""
    if step is not None:
        yield from flat_parts(json.loads(step.__getstate__()))


def flat_parts(part: Any) -> Iterator[dict[str, Any]]:
    """The plain values of a fast tokenizer's step, or of a list of them, sequences flattened."""
    if isinstance(part, list):
        for one in part:
            yield from flat_parts(one)
    elif isinstance(part, dict) and "type" in part:
        yield part
        for name in ("decoders", "pretokenizers", "normalizers"):
            yield from flat_parts(part.get(name))


def one_line(error: Exception, limit: int | None = 300) -> str:
    """An error's message in one line of at most so many characters."""
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return " ".join(str(error).split())[:limit] or type(error).__name__


def visible(text: str | None, limit: int = MAX_LABEL) -> str:
    """The text with visible signs for invisible characters, cut to `limit`.

    Spaces at both ends become `␣`. Line breaks and tabs get a sign, other invisible characters
    their code point. An empty text, such as that of a token inside a multi-byte character,
    becomes `∅`.
    """
    if not text:
        return "∅"
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(map(_sign, re.sub(r"^ +| +\Z", lambda spaces: "␣" * len(spaces[0]), text)))


def _sign(char: str) -> str:
    if char in _SIGNS:
        return _SIGNS[char]
    return f"⟨{ord(char):X}⟩" if unicodedata.category(char) in _UNSEEN else char
