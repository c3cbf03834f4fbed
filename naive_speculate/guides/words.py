"""A list of words that do not belong in a classroom: slurs, outdated names of groups of people,
and profanity.

The list is encoded, so that the repository does not spell them. ``WordList.encode`` gives the
form of a new entry.

`WordFilter` bans tokens that would complete a listed word, however the word is split over
tokens. A token is banned even where letters may follow, so no text ends in a listed word,
wherever it is cut. The bans depend on the text before alone, so speculation stays lossless for
the filtered target. Of that text only the end counts with which a listed word may begin; mostly
it is empty. Tokens lead from one such end to the next, and the bans after each end are computed
once.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, reduce
from typing import Any, NamedTuple

import regex
import torch

from naive_speculate.text import num_shared, token_bytes

_PROMPT_TOKENS = 64  # a listed word may begin in so many tokens at the end of a prompt
_LETTER = "ꙮ"  # stands for the end of a word with which no listed one begins
_LAST = "\U0010ffff"


@dataclass(init=False, unsafe_hash=True, repr=False)
class WordList:
    """Finds listed words in a text: only whole words, with or without a plural or possessive "s".

    The entries are regular expressions, each over a case-folded word or a few words with single
    spaces between them; a `ValueError` if there is none, or one is not valid. `pattern` matches
    any of the words, plural and possessive included; `composed` is set where a word has letters
    that may be written as two characters, such as accented ones.
    """

    entries: tuple[str, ...]
    name: str = field(compare=False)

    def __init__(self, entries: Iterable[str], name: str = "custom") -> None:
        self.entries = tuple(entries)
        self.name = name
        if not self.entries:
            raise ValueError("entries must hold at least one word, got none")
        for number, entry in enumerate(self.entries):
            try:
                re.compile(entry)
            except re.error as error:
                raise ValueError(
                    f"entries[{number}] is not a regular expression: {error}"
                ) from None
        whole = "|".join(f"(?:{entry})" for entry in self.entries)
        self.pattern = rf"(?:{whole})(?:'s|s'|s)?"
        self.composed = not self.pattern.isascii()
        # an underscore is no part of a word: plain-text books set words in italics with it
        self._pattern = re.compile(rf"(?<![^\W_]){self.pattern}(?![^\W_])")

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"<WordList {self.name!r} of {len(self)}>"

    def find(self, text: str) -> list[str]:
        """The listed words in ``text``, in their order, case-folded."""
        return [match[0] for match in self._pattern.finditer(normalized(text))]

    def places(self, text: str) -> set[tuple[int, str]]:
        """The listed words in ``text``, each with where it begins in the normalised text."""
        return {(match.start(), match[0]) for match in self._pattern.finditer(normalized(text))}

    @staticmethod
    def encode(entries: Iterable[str]) -> str:
        """Entries as base64, with spaces between them."""
        return " ".join(base64.b64encode(entry.encode()).decode() for entry in entries)

    @staticmethod
    def decode(text: str) -> WordList:
        """The list that ``encode`` wrote; line breaks may stand for its spaces. Raises
        `ValueError` if a part of ``text`` is not base64, or is not a regular expression."""
        try:
            return WordList(
                base64.b64decode(part.encode(), validate=True).decode() for part in text.split()
            )
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ValueError(f"the word list is not base64: {error}") from None


def normalized(text: str) -> str:
    """``text`` as it is compared: case-folded, one way to write each letter, straight
    apostrophes, single spaces, nothing invisible."""
    if text.isascii():
        return re.sub(r"\s+", " ", text.lower())
    text = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    visible = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    # what was folded or stood apart may be one letter now
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKC", visible))


def masked(word: str) -> str:
    """A listed word in a form that can be reported: its first letter, and stars."""
    return word[0] + "*" * (len(word) - 1)


@cache
def classroom_words() -> WordList:
    """The list that ships."""
    return WordList(WordList.decode(_ENCODED).entries, "classroom")


def word_list(value: object) -> WordList:
    """A word list as it was given, or the one that ships by its name, "classroom". Raises
    `ValueError` if it is neither."""
    if isinstance(value, WordList):
        return value
    if value == "classroom":
        return classroom_words()
    hint = (
        ": of a list of one's own, settings keep the name alone" if isinstance(value, str) else ""
    )
    raise ValueError(
        f"filter_words must be None, 'classroom' or a WordList, got {value!r:.80}{hint}"
    )


class End(NamedTuple):
    """The end of a text, as far as the bans depend on it."""

    # the normalised end that may begin a listed word; else empty, or `_LETTER` within a word
    text: str = ""
    rest: bytes = b""  # the bytes of an incomplete character


class FilterTable:
    """The tokens that a word list bans after each end of a text, from each token's bytes;
    special tokens have none. Threads may share one."""

    def __init__(self, words: WordList, forms: Mapping[int, bytes], vocab_size: int) -> None:
        self._words = words
        self._bytes = {token: form for token, form in forms.items() if form and token < vocab_size}
        self._beginning = regex.compile(words.pattern)
        texts = {token: form.decode(errors="replace") for token, form in self._bytes.items()}
        spelled = sorted((normalized(text), token) for token, text in texts.items())
        self._texts, self._tokens = [text for text, _ in spelled], [token for _, token in spelled]
        self._inside = [token for token, form in self._bytes.items() if form[0] & 0xC0 == 0x80]
        self._alone = {
            start: {token for text, token in spelled if self._contains_word(start + text)}
            for start in ("", _LETTER)
        }
        self.after = lru_cache(maxsize=1 << 16)(self._after)
        self.banned = lru_cache(maxsize=1 << 13)(self._banned)

    def _after(self, end: End, token: int) -> End:
        """The end of a text after one more token."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = end.text + decoder.decode(end.rest + self._bytes.get(token, b""))
        return End(self._open(normalized(text)), decoder.getstate()[0])

    def _banned(self, end: End) -> torch.Tensor:
        """The banned tokens after an end: int64, shape `[count]`."""
        if end.rest:
            banned = {token for token in self._inside if self._completes(end, token)}
            broken_off = End(self._open(normalized(end.text + "\ufffd")))
            banned |= set(self.banned(broken_off).tolist()) - set(self._inside)
        else:
            banned = set(self._alone[_LETTER if end.text[-1:].isalnum() else ""])
            if end.text not in ("", _LETTER):
                banned.update(self._completing(end, 0, len(self._texts), 0))
        return torch.tensor(sorted(banned), dtype=torch.int64)

    def _completing(self, end: End, first: int, last: int, shared: int) -> Iterator[int]:
        """The tokens that complete a word at the end of a text, of those from `first` to `last`
        in the order of their texts, which share the first `shared` letters."""
        while first < last:
            prefix = self._texts[first][: shared + 1]
            if len(prefix) == shared:  # it is no longer than what they share
                first += 1
                continue
            after = bisect(self._texts, prefix + _LAST, first, last)
            text = normalized(end.text + prefix)
            if self._contains_word(text, end.text):
                yield from (
                    token for token in self._tokens[first:after] if self._completes(end, token)
                )
            elif len(self._open(text)) > len(text) - len(end.text):
                yield from self._completing(end, first, after, shared + 1)
            first = after

    def _completes(self, end: End, token: int) -> bool:
        return self._contains_word(
            end.text + (end.rest + self._bytes[token]).decode(errors="replace"), end.text
        )

    def _contains_word(self, text: str, before: str = "") -> bool:
        """Whether a text has listed words that `before` has not."""
        return bool(self._words.places(text) - self._words.places(before))

    def _open(self, text: str) -> str:
        """The end of a normalised text that may begin a listed word."""
        # what follows may change the last letter
        ends = (text, text[:-1]) if self._words.composed else (text,)
        for start in range(len(text)):
            if start == 0 or not text[start - 1].isalnum():
                for end in ends:
                    match = self._beginning.fullmatch(end, start, partial=True)
                    if match and match.partial:
                        return text[start:]
        return _LETTER if text[-1:].isalnum() else ""


class WordFilter:
    """Follows one sequence through a table. Any history may be given: it rolls back to the part
    shared with the last one."""

    def __init__(self, table: FilterTable, prompt_token_ids: Sequence[int]) -> None:
        self._table = table
        # by number of generated tokens
        self._ends = [reduce(table.after, prompt_token_ids[-_PROMPT_TOKENS:], End())]
        self._tokens: list[int] = []

    def banned(self, history: list[int]) -> torch.Tensor:
        """The banned tokens after the generated ones: int64, shape `[count]`."""
        shared = num_shared(self._tokens, history)
        del self._tokens[shared:], self._ends[shared + 1 :]
        for token in history[shared:]:
            self._tokens.append(token)
            self._ends.append(self._table.after(self._ends[-1], token))
        return self._table.banned(self._ends[-1])

    def apply(self, scores: torch.Tensor, history: list[int]) -> None:
        """See `Mask`."""
        scores[self.banned(history)] = -torch.inf

    def forced_text(self, history: list[int]) -> str:
        """See `Mask`."""
        return ""


class FilterMaker:
    """Makes word filters for one tokenizer; see `MaskMaker`. A list's table is made once."""

    def __init__(self, tokenizer: Any, vocab_size: int, stop_token_ids: Sequence[int]) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._tables: dict[WordList, FilterTable] = {}

    @staticmethod
    def checked(value: object) -> object:
        """See `MaskMaker`."""
        word_list(value)
        return value

    @staticmethod
    def plain(value: object) -> str:
        """See `MaskMaker`; a list's name."""
        return word_list(value).name

    def mask(self, value: object, prompt_token_ids: Sequence[int]) -> WordFilter:
        """See `MaskMaker`."""
        words = word_list(value)
        if words not in self._tables:
            forms = token_bytes(self._tokenizer)
            self._tables[words] = FilterTable(words, forms, self._vocab_size)
        return WordFilter(self._tables[words], prompt_token_ids)


_ENCODED = """
KD86YnVsbHxob3JzZXxkaXB8Y2hpY2tlbilzaGl0 KD86ZHVtYnxzbWFydHxiYWR8ZmF0KWFzcyg/OmVzKT8=
Y29ja3N1Y2tcdyo= Y29vbGll Y29vbGllcw== Y29vbHk= Y29vbg== Y29wdWxhdFx3Kg== Y2FmZnJlcz8=
Y2FtZWxbIC1dam9ja2V5 Y2hpbmEtP21bYWVdbg== Y2hpbmVl Y2hpbmdbIC1dY2hvbmc= Y2hpbms= Y2hpbmt5
Y2hyaXN0Wy0gXT9raWxsZXI= Y2x1c3RlcmZ1Y2s= Y2xpdG9yaXM= Y3JhcA== Y3JhcHB5 Y3JldGlu Y3JpcHBsZXM=
Y3VudA== YWJv YXJzZWhvbGU= YXNzaG9sZQ== YXVudCBqZW1pbWE= Ym9odW5r Ym9sbG9ja3M= Ym9vbmc= YmF3ZHk=
YmFzdGFyZA== YmFzdGFyZHk= YmVhbmVy Yml0Y2g= Yml0Y2goPzp5fGluZ3xlZCk= Yml0Y2hlcw== YmxhY2thbW9vcg==
Ymxvdy0/XHM/am9i YnJvdGhlbA== YnVnZ2Vy YnVnZ2VyZWQ= YnVnZ2VyeQ== Z1t5aV1wcyg/Onl8aWVzKQ==
Z29kZGFtKD86bnxuZWR8bml0KT8= Z29sbGl3b2coPzpnfGdzKT8= Z29vaw== Z2FuZ1stIF0/cmFwKD86ZXxlZCk=
Z3JlYXNlYmFsbA== Z3Jpbmdv Z3lwcGVk ZG91Y2hlLT9iYWc= ZGFnbyg/OmU/cyk/
ZGFyayg/Onl8ZXl8aWV8aWVzfGV5cyk= ZGlja2hlYWQ= ZGlsZG8= ZXJvdGljXHcq Zm9ybmljYXRcdyo= ZmFn
ZmFnZyg/Om90fG90eT8p ZnVja1x3Kg== ZnVja3RhcmQ= ZnVr a2E/ZmY/aXJzPw== a2lrZQ== a3JhdXQ= aG90dGVudG90
aG9tb3M= aG9ua2ll aG9ua3k= aGFsZlstIF0/Y2FzdGU= aGFsZlstIF0/YnJlZWQ= aGFuZC0/XHM/am9i aGFybG90
aGVhdGhlbnM= aW1iZWNpbGU= aW5jZXN0 aW5jZXN0dW91cw== aW5mZXJpb3IgcmFjZQ== aW5qdW4= amFw amV3LT9ib3k=
amV3ZXNz amVyay0/b2Zm amlnYWJvbw== anVuZ2xlWyAtXWJ1bm4oPzp5fGllcyk= b2N0b3Jvb24= b3JnYXNt
bGFkeWJveQ== bGVzYm8= bGlidGFyZA== bHVicmE= bW90aGVyZnVja1x3Kg== bW9oYW1tZWRhbg== bW9sZXN0ZXI=
bW9uZ29sb2lk bW9uZ3JlbCByYWNl bW9yb24= bWFob21ldGFu bWFzdHVyYmF0XHcq bXVsYXR0YQ==
bXVsYXR0byg/OmVzKT8= bXVzc2VsbWFu bmFuY3lbIC1dYm95 bmVncm8oPzplc3xpZCk/ bmVncmVzcyg/OmVzKT8=
bmlnZ2VyXHcq bmlnZyg/OmF8YWh8dWgp bmlncmE= c29kb20oPzp5fGl0ZXxpdGVzfGlzZXxpemUp c2F2YWdlcw==
c2FtYm8= c2FuZFsgLV1uaWdnZXI= c2Nyb3R1bQ== c2VtZW4= c2hlLT9tYWxl c2hlZW5pZXM= c2hpdA==
c2hpdCg/OnN8dHl8dGluZ3xoZWFkfGhlYWRzfGhvbGV8aG9sZXMp c2thbms= c2x1dA== c2x1dHR5 c2xhbnQtP2V5ZXM/ZD8=
c2xvcGVbIC1dP2hlYWQ= c3Bhc3RpYw== c3Bheg== c3BpYyg/IVxXK2FuZFxXK3NwYW4p c3F1YXc= c3RydW1wZXQ=
cFtpZV1jP2NjP2FuK2lubj8oPzp5fGllfGllcyk= cG9sYWNr cG9vZnRlcg== cG9waXNo cG9yY2hbIC1dbW9ua2V5
cG9ybg== cG9ybm9ncmFwaFx3Kg== cGFraQ== cGFuc3lbIC1dYm95 cGFwaXN0 cGFwb29zZQ== cGVuaXM= cGVuaXNlcw==
cGlja2FuaW4oPzpuP3l8bj9pZXMp cGlrZXk= cGltcA== cGlzcw== cGlzcyg/OmVzfGVkfGluZyk=
cHJvc3RpdHV0KD86ZXxlc3xlZHxpb24p cXVhZHJvb24= cmFnaGVhZA== cmFwKD86ZXxlZHxlc3xpc3R8aXN0c3xpbmcp
cmV0YXJkKD86ZWQpPyAoPzpib3l8Z2lybHxjaGlsZHxwZXJzb258bWFufHdvbWFufGtpZCk= cmVkLT9za2lu d29n d29w
d2Fuaw== d2Fuayg/OmVyfGVyc3xpbmcp d2V0YmFjaw== d2hpdGUgbWFuJ3MgYnVyZGVu d2hpdGUgdHJhc2g=
d2hvcig/OmV8ZWR8aW5nfGlzaHxlc29uKQ== dG93ZWxoZWFk dGVzdGljbGVzPw== dHJhbm55 dHJhbm5pZXM=
dHJvbGxvcA== dHVyZA== dHdhdA== dmFnaW5h eWlk eWlkZG8=
"""
