"""Regular expressions of Python, rewritten in characters and operators that every engine reads
alike.

Python parses them, so their meaning is Python's. What a finite automaton cannot follow, or would
follow in another sense, is refused by name.
"""

import importlib
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

_parser: Any = importlib.import_module("re._parser")
_op: Any = importlib.import_module("re._constants")

MAX_WIDTH = 10_000
"""The most characters that an expression may demand: forcing a million takes 0.4 s."""
MAX_REWRITTEN = 1_000_000  # characters of the result: `\\w` alone has some 10,000

Ranges = list[tuple[int, int]]
"""Code points, as ranges that include both ends, sorted and apart from each other."""
_Edge = Literal["inside", "open", "anchored"]
"""Where a part begins or ends: inside the expression, at its end where any text may follow, or
at its end where none may."""

_LAST = sys.maxunicode
_SURROGATES = (0xD800, 0xDFFF)  # no text holds them
ANYTHING = r"[\x{0}-\x{10FFFF}]*"
_BEGINS = {_op.AT_BEGINNING, _op.AT_BEGINNING_STRING}
_ENDS = {_op.AT_END, _op.AT_END_STRING}
_REFUSED = {
    _op.ASSERT: "look-ahead and look-behind",
    _op.ASSERT_NOT: "look-ahead and look-behind",
    getattr(_op, "FAILURE", None): "look-ahead and look-behind",
    _op.GROUPREF: "references to groups",
    _op.GROUPREF_EXISTS: "conditions on groups",
    _op.ATOMIC_GROUP: "atomic groups",
    _op.POSSESSIVE_REPEAT: "possessive repetitions",
}
_CATEGORIES = {
    _op.CATEGORY_DIGIT: (r"\d", False),
    _op.CATEGORY_NOT_DIGIT: (r"\d", True),
    _op.CATEGORY_SPACE: (r"\s", False),
    _op.CATEGORY_NOT_SPACE: (r"\s", True),
    _op.CATEGORY_WORD: (r"\w", False),
    _op.CATEGORY_NOT_WORD: (r"\w", True),
}


def rewritten(pattern: str, *, search: bool = False) -> str:
    r"""An expression for whole texts, without `^`, `$`, `\d` and the like: sets of characters in
    brackets, `(?:…)`, `|` and repetitions.

    With `search`, the text need only contain a match, as in a JSON schema. There Python and
    ECMAScript differ in `.`, `\d`, `\s` and `\w`; a text of the result matches in both.

    Raises:
        ValueError: If it does not parse, or holds what is not supported; the message continues
            "regex …".
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = _parser.parse(pattern)
        if (width := tree.getwidth()[0]) > MAX_WIDTH:
            raise ValueError(
                f"may demand {MAX_WIDTH} characters of a text, got {pattern!r:.80}, which demands"
                f" {width}"
            )
        edge: _Edge = "open" if search else "anchored"
        result = _Writer(pattern, search).sequence(tree, tree.state.flags, edge, edge)
    except (re.error, OverflowError) as error:
        raise ValueError(f"does not parse, got {pattern!r:.80}: {error}") from None
    except RecursionError:
        raise ValueError(f"is nested too deep, got {pattern!r:.80}") from None
    if len(result) > MAX_REWRITTEN:
        raise ValueError(f"is too long with its sets of characters, got {pattern!r:.80}")
    return result


def literal(text: str) -> str:
    """An expression for exactly this text."""
    return "".join(characters([(ord(letter), ord(letter))]) for letter in text)


def characters(ranges: Iterable[tuple[int, int]]) -> str:
    """An expression for one character of these."""
    first, last = _SURROGATES
    parts = [
        part
        for low, high in ranges
        for part in ((low, min(high, first - 1)), (max(low, last + 1), high))
        if part[0] <= part[1]
    ]
    if len(parts) == 1 and parts[0][0] == parts[0][1]:
        letter = chr(parts[0][0])
        return letter if letter.isascii() and letter.isalnum() else rf"\x{{{ord(letter):X}}}"
    return "[" + "".join(rf"\x{{{low:X}}}-\x{{{high:X}}}" for low, high in parts) + "]"


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same code points, sorted, neighbouring ranges as one."""
    merged: Ranges = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def others(ranges: Ranges) -> Ranges:
    """All other code points."""
    ends = [-1, *(high for _, high in ranges)]
    starts = [*(low for low, _ in ranges), _LAST + 1]
    return [
        (end + 1, start - 1) for end, start in zip(ends, starts, strict=True) if end + 1 < start
    ]


@lru_cache(maxsize=8)
def _members(category: str, ascii_only: bool) -> tuple[tuple[int, int], ...]:
    r"""The code points of `\d`, `\s` or `\w` in Python."""
    every = "".join(map(chr, range(128 if ascii_only else _LAST + 1)))
    return tuple((run.start(), run.end() - 1) for run in re.finditer(f"{category}+", every))


@lru_cache(maxsize=1)
def _cased() -> str:
    """All characters that have another form in upper or lower case."""
    return "".join(
        letter for letter in map(chr, range(_LAST + 1)) if letter.lower() != letter.upper()
    )


class _Writer:
    """Writes the parts of one parsed expression."""

    def __init__(self, pattern: str, search: bool) -> None:
        self.pattern, self.search = pattern, search

    def sequence(self, parts: Iterable[Any], flags: int, begin: _Edge, end: _Edge) -> str:
        """Parts that follow one another. Anchors at the expression's own ends are dropped; text
        that may precede or follow is written where no anchor forbids it."""
        parts = list(parts)
        while parts and begin != "inside" and self._is_anchor(parts[0], _BEGINS, flags):
            begin = "anchored"
            del parts[0]
        while parts and end != "inside" and self._is_anchor(parts[-1], _ENDS, flags):
            end = "anchored"
            del parts[-1]
        before = after = ""
        if begin == "open" and not (parts and _anchors(parts[0])):
            before, begin = ANYTHING, "anchored"
        if end == "open" and not (parts and _anchors(parts[-1])):
            after, end = ANYTHING, "anchored"
        written = [
            self._part(
                operator,
                argument,
                flags,
                begin if index == 0 else "inside",
                end if index == len(parts) - 1 else "inside",
            )
            for index, (operator, argument) in enumerate(parts)
        ]
        return before + "".join(written) + after

    def _part(self, operator: Any, argument: Any, flags: int, begin: _Edge, end: _Edge) -> str:
        if operator in (_op.LITERAL, _op.NOT_LITERAL, _op.IN, _op.ANY):
            ranges = self._set(operator, argument, flags)
            if not ranges:
                raise ValueError(
                    f"has a set without characters, got {self.pattern!r:.80}: leave it out"
                )
            return characters(ranges)
        if operator is _op.BRANCH:
            ways = [self.sequence(way, flags, begin, end) for way in argument[1]]
            return f"(?:{'|'.join(ways)})"
        if operator is _op.SUBPATTERN:
            _, added, removed, parts = argument
            return f"(?:{self.sequence(parts, (flags | added) & ~removed, begin, end)})"
        if operator in (_op.MAX_REPEAT, _op.MIN_REPEAT):
            low, high, parts = argument
            most = "" if high is _op.MAXREPEAT else high
            inner = self.sequence(parts, flags, "inside", "inside")
            return f"(?:{inner}){{{low},{most}}}"
        if operator is _op.AT:
            if argument in _BEGINS | _ENDS:
                what = "^ and $ elsewhere than at its ends, and with the flag m"
            else:
                what = r"\b and \B"
            raise self._refused(what)
        raise self._refused(_REFUSED.get(operator, str(operator).lower()))

    def _refused(self, what: str) -> ValueError:
        return ValueError(f"does not support {what}, got {self.pattern!r:.80}")

    def _is_anchor(self, part: tuple[Any, Any], anchors: set[Any], flags: int) -> bool:
        by_line = flags & re.MULTILINE and part[1] in (_op.AT_BEGINNING, _op.AT_END)
        return part[0] is _op.AT and part[1] in anchors and not by_line

    def _set(self, operator: Any, argument: Any, flags: int) -> Ranges:
        """The code points that one character of the text may be."""
        if operator is _op.ANY:
            line_ends = "\n\r\u2028\u2029" if self.search else "\n"
            excluded = "" if flags & re.DOTALL else line_ends
            return others(joined((ord(letter), ord(letter)) for letter in excluded))
        items: Sequence[Any] = [(_op.LITERAL, argument)] if operator is not _op.IN else argument
        negated = operator is _op.NOT_LITERAL or items[0][0] is _op.NEGATE
        ranges = joined(
            part
            for item in items
            if item[0] is not _op.NEGATE
            for part in self._item(item, flags, negated)
        )
        if flags & re.IGNORECASE:
            inside = "".join(rf"\U{low:08x}-\U{high:08x}" for low, high in ranges)
            kept = re.IGNORECASE | (flags & re.ASCII)
            alike = re.findall(f"[{inside}]", _cased(), kept) if inside else []
            ranges = joined([*ranges, *((ord(letter), ord(letter)) for letter in alike)])
        return others(ranges) if negated else ranges

    def _item(self, item: tuple[Any, Any], flags: int, negated: bool) -> Iterator[tuple[int, int]]:
        operator, argument = item
        if operator is _op.CATEGORY:
            category, inverse = _CATEGORIES[argument]
            # the fewest characters where they are allowed, the most where they are forbidden
            fewest = self.search and negated == inverse
            members = list(_members(category, bool(flags & re.ASCII) or fewest))
            if self.search and not fewest and category == r"\s":
                members.append((0xFEFF, 0xFEFF))
            yield from others(joined(members)) if inverse else members
        else:
            yield argument if operator is _op.RANGE else (argument, argument)


def _anchors(part: tuple[Any, Any]) -> bool:
    """Whether a group or an alternative holds an anchor, so that it writes its own ends."""
    operator, argument = part
    if operator is _op.SUBPATTERN:
        return any(inner[0] is _op.AT or _anchors(inner) for inner in argument[3])
    if operator is _op.BRANCH:
        return any(inner[0] is _op.AT or _anchors(inner) for way in argument[1] for inner in way)
    return False
