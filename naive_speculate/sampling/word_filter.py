"""Bans tokens that would complete a listed word, however the word is split over tokens.

A token is banned even where letters may follow, so no text ends in a listed word, wherever it is cut. The bans depend on the
text before alone, so speculation stays lossless for the filtered target. Of that text only the end counts with which a listed
word may begin; mostly it is empty. Tokens lead from one such end to the next, and the bans after each end are computed once.
"""

import codecs
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import NamedTuple

import regex
import torch

from naive_speculate.sampling.words import WordList, normalized
from naive_speculate.text import num_shared

_PROMPT_TOKENS = 64  # a listed word may begin in so many tokens at the end of a prompt

_LETTER = "ꙮ"  # stands for the end of a word with which no listed one begins

_LAST = "\U0010ffff"


class End(NamedTuple):
    """The end of a text, as far as the bans depend on it."""

    text: str = ""  # the normalised end that may begin a listed word; else empty, or `_LETTER` within a word
    rest: bytes = b""  # the bytes of an incomplete character


class FilterTable:
    """The tokens that a word list bans after each end of a text, from each token's bytes; special tokens have none. Threads may
    share one."""

    def __init__(self, words: WordList, token_bytes: Mapping[int, bytes], vocab_size: int) -> None:
        self._words = words
        self._bytes = {token: form for token, form in token_bytes.items() if form and token < vocab_size}
        self._beginning = regex.compile(words.pattern)
        texts = {token: form.decode(errors="replace") for token, form in self._bytes.items()}
        spelled = sorted((normalized(text), token) for token, text in texts.items())
        self._texts, self._tokens = [text for text, _ in spelled], [token for _, token in spelled]
        self._inside = [token for token, form in self._bytes.items() if form[0] & 0xC0 == 0x80]
        self._alone = {start: {token for text, token in spelled if self._found(start + text)} for start in ("", _LETTER)}
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
        """The tokens that complete a word at the end of a text, of those from `first` to `last` in the order of their texts,
        which share the first `shared` letters."""
        while first < last:
            prefix = self._texts[first][: shared + 1]
            if len(prefix) == shared:  # it is no longer than what they share
                first += 1
                continue
            after = bisect(self._texts, prefix + _LAST, first, last)
            text = normalized(end.text + prefix)
            if self._found(text, end.text):
                yield from (token for token in self._tokens[first:after] if self._completes(end, token))
            elif len(self._open(text)) > len(text) - len(end.text):
                yield from self._completing(end, first, after, shared + 1)
            first = after

    def _completes(self, end: End, token: int) -> bool:
        return self._found(end.text + (end.rest + self._bytes[token]).decode(errors="replace"), end.text)

    def _found(self, text: str, before: str = "") -> bool:
        """Whether a text has listed words that `before` has not."""
        return bool(self._words.places(text) - self._words.places(before))

    def _open(self, text: str) -> str:
        """The end of a normalised text that may begin a listed word."""
        ends = (text, text[:-1]) if self._words.composed else (text,)  # what follows may change the last letter
        for start in range(len(text)):
            if start == 0 or not text[start - 1].isalnum():
                for end in ends:
                    found = self._beginning.fullmatch(end, start, partial=True)
                    if found and found.partial:
                        return text[start:]
        return _LETTER if text[-1:].isalnum() else ""


class WordFilter:
    """Follows one sequence through a table. Any history may be given: it rolls back to the part shared with the last one."""

    def __init__(self, table: FilterTable, prompt_token_ids: Sequence[int]) -> None:
        self._table = table
        self._ends = [reduce(table.after, prompt_token_ids[-_PROMPT_TOKENS:], End())]  # by number of generated tokens
        self._tokens: list[int] = []

    def banned(self, history: list[int]) -> torch.Tensor:
        """The banned tokens after the generated ones: int64, shape `[count]`."""
        shared = num_shared(self._tokens, history)
        del self._tokens[shared:], self._ends[shared + 1 :]
        for token in history[shared:]:
            self._tokens.append(token)
            self._ends.append(self._table.after(self._ends[-1], token))
        return self._table.banned(self._ends[-1])
