"""A list of words that do not belong in a classroom: slurs, outdated names of groups of people, and profanity.

The list is encoded, so that the repository does not spell them. ``WordList.encode`` gives the form of a new entry.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache


@dataclass(init=False, unsafe_hash=True, repr=False)
class WordList:
    """Finds listed words in a text: only whole words, with or without a plural or possessive "s".

    The entries are regular expressions, each over a case-folded word or a few words with single spaces between them; a
    `ValueError` if there is none, or one is not valid. `pattern` matches any of the words, plural and possessive included;
    `composed` is set where a word has letters that may be written as two characters, such as accented ones.
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
                raise ValueError(f"entries[{number}] is not a regular expression: {error}") from None
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
        """The list that ``encode`` wrote; line breaks may stand for its spaces. Raises `ValueError` if a part of ``text`` is
        not base64, or is not a regular expression."""
        try:
            return WordList(base64.b64decode(part.encode(), validate=True).decode() for part in text.split())
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ValueError(f"the word list is not base64: {error}") from None


def normalized(text: str) -> str:
    """``text`` as it is compared: case-folded, one way to write each letter, straight apostrophes, single spaces, nothing
    invisible."""
    if text.isascii():
        return re.sub(r"\s+", " ", text.lower())
    text = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    visible = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKC", visible))  # what was folded or stood apart may be one letter now


def masked(word: str) -> str:
    """A listed word in a form that can be reported: its first letter, and stars."""
    return word[0] + "*" * (len(word) - 1)


@cache
def classroom_words() -> WordList:
    """The list that ships."""
    return WordList(WordList.decode(_ENCODED).entries, "classroom")


def word_list(given: object) -> WordList:
    """A word list as it was given, or the one that ships by its name, "classroom". Raises `ValueError` if it is neither."""
    if isinstance(given, WordList):
        return given
    if given == "classroom":
        return classroom_words()
    hint = ": of a list of one's own, settings keep the name alone" if isinstance(given, str) else ""
    raise ValueError(f"filter_words must be None, 'classroom' or a WordList, got {given!r:.80}{hint}")


_ENCODED = """
KD86YnVsbHxob3JzZXxkaXB8Y2hpY2tlbilzaGl0 KD86ZHVtYnxzbWFydHxiYWR8ZmF0KWFzcyg/OmVzKT8= Y29ja3N1Y2tcdyo= Y29vbGll Y29vbGllcw==
Y29vbHk= Y29vbg== Y29wdWxhdFx3Kg== Y2FmZnJlcz8= Y2FtZWxbIC1dam9ja2V5 Y2hpbmEtP21bYWVdbg== Y2hpbmVl Y2hpbmdbIC1dY2hvbmc=
Y2hpbms= Y2hpbmt5 Y2hyaXN0Wy0gXT9raWxsZXI= Y2x1c3RlcmZ1Y2s= Y2xpdG9yaXM= Y3JhcA== Y3JhcHB5 Y3JldGlu Y3JpcHBsZXM= Y3VudA== YWJv
YXJzZWhvbGU= YXNzaG9sZQ== YXVudCBqZW1pbWE= Ym9odW5r Ym9sbG9ja3M= Ym9vbmc= YmF3ZHk= YmFzdGFyZA== YmFzdGFyZHk= YmVhbmVy Yml0Y2g=
Yml0Y2goPzp5fGluZ3xlZCk= Yml0Y2hlcw== YmxhY2thbW9vcg== Ymxvdy0/XHM/am9i YnJvdGhlbA== YnVnZ2Vy YnVnZ2VyZWQ= YnVnZ2VyeQ==
Z1t5aV1wcyg/Onl8aWVzKQ== Z29kZGFtKD86bnxuZWR8bml0KT8= Z29sbGl3b2coPzpnfGdzKT8= Z29vaw== Z2FuZ1stIF0/cmFwKD86ZXxlZCk=
Z3JlYXNlYmFsbA== Z3Jpbmdv Z3lwcGVk ZG91Y2hlLT9iYWc= ZGFnbyg/OmU/cyk/ ZGFyayg/Onl8ZXl8aWV8aWVzfGV5cyk= ZGlja2hlYWQ= ZGlsZG8=
ZXJvdGljXHcq Zm9ybmljYXRcdyo= ZmFn ZmFnZyg/Om90fG90eT8p ZnVja1x3Kg== ZnVja3RhcmQ= ZnVr a2E/ZmY/aXJzPw== a2lrZQ== a3JhdXQ=
aG90dGVudG90 aG9tb3M= aG9ua2ll aG9ua3k= aGFsZlstIF0/Y2FzdGU= aGFsZlstIF0/YnJlZWQ= aGFuZC0/XHM/am9i aGFybG90 aGVhdGhlbnM=
aW1iZWNpbGU= aW5jZXN0 aW5jZXN0dW91cw== aW5mZXJpb3IgcmFjZQ== aW5qdW4= amFw amV3LT9ib3k= amV3ZXNz amVyay0/b2Zm amlnYWJvbw==
anVuZ2xlWyAtXWJ1bm4oPzp5fGllcyk= b2N0b3Jvb24= b3JnYXNt bGFkeWJveQ== bGVzYm8= bGlidGFyZA== bHVicmE= bW90aGVyZnVja1x3Kg==
bW9oYW1tZWRhbg== bW9sZXN0ZXI= bW9uZ29sb2lk bW9uZ3JlbCByYWNl bW9yb24= bWFob21ldGFu bWFzdHVyYmF0XHcq bXVsYXR0YQ==
bXVsYXR0byg/OmVzKT8= bXVzc2VsbWFu bmFuY3lbIC1dYm95 bmVncm8oPzplc3xpZCk/ bmVncmVzcyg/OmVzKT8= bmlnZ2VyXHcq bmlnZyg/OmF8YWh8dWgp
bmlncmE= c29kb20oPzp5fGl0ZXxpdGVzfGlzZXxpemUp c2F2YWdlcw== c2FtYm8= c2FuZFsgLV1uaWdnZXI= c2Nyb3R1bQ== c2VtZW4= c2hlLT9tYWxl
c2hlZW5pZXM= c2hpdA== c2hpdCg/OnN8dHl8dGluZ3xoZWFkfGhlYWRzfGhvbGV8aG9sZXMp c2thbms= c2x1dA== c2x1dHR5 c2xhbnQtP2V5ZXM/ZD8=
c2xvcGVbIC1dP2hlYWQ= c3Bhc3RpYw== c3Bheg== c3BpYyg/IVxXK2FuZFxXK3NwYW4p c3F1YXc= c3RydW1wZXQ=
cFtpZV1jP2NjP2FuK2lubj8oPzp5fGllfGllcyk= cG9sYWNr cG9vZnRlcg== cG9waXNo cG9yY2hbIC1dbW9ua2V5 cG9ybg== cG9ybm9ncmFwaFx3Kg==
cGFraQ== cGFuc3lbIC1dYm95 cGFwaXN0 cGFwb29zZQ== cGVuaXM= cGVuaXNlcw== cGlja2FuaW4oPzpuP3l8bj9pZXMp cGlrZXk= cGltcA== cGlzcw==
cGlzcyg/OmVzfGVkfGluZyk= cHJvc3RpdHV0KD86ZXxlc3xlZHxpb24p cXVhZHJvb24= cmFnaGVhZA== cmFwKD86ZXxlZHxlc3xpc3R8aXN0c3xpbmcp
cmV0YXJkKD86ZWQpPyAoPzpib3l8Z2lybHxjaGlsZHxwZXJzb258bWFufHdvbWFufGtpZCk= cmVkLT9za2lu d29n d29w d2Fuaw==
d2Fuayg/OmVyfGVyc3xpbmcp d2V0YmFjaw== d2hpdGUgbWFuJ3MgYnVyZGVu d2hpdGUgdHJhc2g= d2hvcig/OmV8ZWR8aW5nfGlzaHxlc29uKQ==
dG93ZWxoZWFk dGVzdGljbGVzPw== dHJhbm55 dHJhbm5pZXM= dHJvbGxvcA== dHVyZA== dHdhdA== dmFnaW5h eWlk eWlkZG8=
"""
