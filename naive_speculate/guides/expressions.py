"""Regular expressions of Python, rewritten in characters and operators that every engine reads
alike. Python parses them, so their meaning is Python's; what a finite automaton cannot follow is
refused by name.
"""

import importlib
import re
import sys
import warnings
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

_compiler, _parser, _op = (
    importlib.import_module(f"re.{name}") for name in ("_compiler", "_parser", "_constants")
)

MAX_WIDTH = 10_000
"""The most characters that an expression may demand: forcing a million takes 0.4 s."""
MAX_REWRITTEN = 1_000_000  # characters of the result: `\\w` alone has some 10,000

_ANY = r"[\x{0}-\x{10FFFF}]"
_NONE = r"[^\x{0}-\x{10FFFF}]"
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


def rewritten(pattern: str, *, search: bool = False) -> str:
    r"""An expression for whole texts, without `^`, `$`, `\d` and the like.

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
        edge = f"{_ANY}*" if search else ""
        result = _Writer(pattern, tree.state, search).sequence(tree, tree.state.flags, edge, edge)
    except (re.error, OverflowError) as error:
        raise ValueError(f"does not parse, got {pattern!r:.80}: {error}") from None
    except RecursionError:
        raise ValueError(f"is nested too deep, got {pattern!r:.80}") from None
    if len(result) > MAX_REWRITTEN:
        raise ValueError(f"is too long with its sets of characters, got {pattern!r:.80}")
    return result


def literal(text: str) -> str:
    """An expression for exactly this text."""
    return "".join(map(_character, map(ord, text)))


def _character(code: int) -> str:
    letter = chr(code)
    return letter if letter.isascii() and letter.isalnum() else rf"\x{{{code:X}}}"


def _range(low: int, high: int) -> str:
    """Characters inside a set; no text holds surrogates."""
    if 0xD800 <= low <= 0xDFFF:
        low = 0xE000
    if 0xD800 <= high <= 0xDFFF:
        high = 0xD7FF
    if low >= high:
        return _character(low) if low == high else _NONE
    return f"{_character(low)}-{_character(high)}"


@lru_cache(maxsize=1)
def _every() -> str:
    """All characters."""
    return "".join(map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))))


@lru_cache(maxsize=8)
def _members(category: str, ascii_only: bool) -> str:
    r"""The characters of `\d`, `\s` or `\w` in Python."""
    runs = re.finditer(f"{category}+", _every()[: 128 if ascii_only else None])
    return "".join(_range(ord(run[0][0]), ord(run[0][-1])) for run in runs)


@lru_cache(maxsize=1)
def _cased() -> str:
    """Those that have another form in upper or lower case."""
    return "".join(letter for letter in _every() if letter.lower() != letter.upper())


class _Writer:
    """Writes the parts of one parsed expression. An edge is what may stand before or after the
    text of a part there; None inside the expression."""

    def __init__(self, pattern: str, state: Any, search: bool) -> None:
        self.pattern, self.state, self.search = pattern, state, search

    def sequence(
        self, parts: Iterable[Any], flags: int, before: str | None, after: str | None
    ) -> str:
        """Parts that follow one another, without the anchors at the expression's own ends."""
        parts = list(parts)
        while parts and before is not None and self._is_anchor(parts[0], _BEGINS, flags):
            before = ""
            del parts[0]
        while parts and after is not None and self._is_anchor(parts[-1], _ENDS, flags):
            after = ""
            del parts[-1]
        written = [before or "", after or ""]
        # a group that holds an anchor writes its own edge
        if before and parts and "AT_" in repr(parts[0]):
            written[0] = ""
        elif before is not None:
            before = ""
        if after and parts and "AT_" in repr(parts[-1]):
            written[1] = ""
        elif after is not None:
            after = ""
        last = len(parts) - 1
        written[1:1] = (
            self._part(
                part[0], part[1], flags, None if at else before, after if at == last else None
            )
            for at, part in enumerate(parts)
        )
        return "".join(written)

    def _part(
        self, operator: Any, argument: Any, flags: int, before: str | None, after: str | None
    ) -> str:
        if operator is _op.ANY:
            ends = r"\x{A}\x{D}\x{2028}\x{2029}" if self.search else r"\x{A}"
            return _ANY if flags & re.DOTALL else f"[^{ends}]"
        if operator is _op.NOT_LITERAL:
            return self._set([(_op.NEGATE, None), (_op.LITERAL, argument)], flags)
        if (
            operator is _op.LITERAL
            and not flags & re.IGNORECASE
            and not 0xD800 <= argument < 0xE000
        ):
            return _character(argument)
        if operator in (_op.LITERAL, _op.IN):
            return self._set(argument if operator is _op.IN else [(operator, argument)], flags)
        if operator is _op.BRANCH:
            ways = [self.sequence(way, flags, before, after) for way in argument[1]]
            return f"(?:{'|'.join(ways)})"
        if operator is _op.SUBPATTERN:
            _, added, removed, parts = argument
            return f"(?:{self.sequence(parts, (flags | added) & ~removed, before, after)})"
        if operator in (_op.MAX_REPEAT, _op.MIN_REPEAT):
            low, high, parts = argument
            most = "" if high is _op.MAXREPEAT else high
            return f"(?:{self.sequence(parts, flags, None, None)}){{{low},{most}}}"
        what = _REFUSED.get(operator, str(operator).lower())
        if operator is _op.AT:
            inside = argument in _BEGINS | _ENDS
            what = "^ and $ elsewhere than at its ends, and with the flag m"
            what = what if inside else r"\b and \B"
        raise ValueError(f"does not support {what}, got {self.pattern!r:.80}")

    def _is_anchor(self, part: tuple[Any, Any], anchors: set[Any], flags: int) -> bool:
        by_line = flags & re.MULTILINE and part[1] in (_op.AT_BEGINNING, _op.AT_END)
        return part[0] is _op.AT and part[1] in anchors and not by_line

    def _set(self, items: list[Any], flags: int) -> str:
        """One character of a set."""
        matcher = _compiler.compile(_parser.SubPattern(self.state, [(_op.IN, items)]), flags)
        if not matcher.search(_every()):
            raise ValueError(
                f"has a set without characters, got {self.pattern!r:.80}: leave it out"
            )
        negated = items[0][0] is _op.NEGATE
        inside = [self._item(item[0], item[1], flags, negated) for item in items[negated:]]
        if flags & re.IGNORECASE:
            inside += map(
                literal, matcher.findall(_cased()) if not negated else matcher.sub("", _cased())
            )
        return f"[{'^' * negated}{''.join(inside)}]"

    def _item(self, operator: Any, argument: Any, flags: int, negated: bool) -> str:
        if operator is not _op.CATEGORY:
            return _range(*argument) if operator is _op.RANGE else _range(argument, argument)
        name = str(argument).rpartition("_")[2][0].lower()
        inverse = "NOT" in str(argument)
        # the fewest characters where they are allowed, the most where they are forbidden
        fewest = self.search and negated == inverse
        members = _members(rf"\{name}", bool(flags & re.ASCII) or fewest)
        if self.search and not fewest and name == "s":
            members += r"\x{FEFF}"
        return f"[{'^' * inverse}{members}]"
