"""Finds JSON objects, and Python's print of them, among other text."""

import ast
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

MAX_DEPTH = 40
LONGEST = 200_000  # most characters of a Python print that spans several lines
# bounds of the work: failed looks per character on average, and attempts over several lines
PATIENCE, LINES = 8, 20
_BRACES = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[{}]""")


def objects(
    text: str, names: tuple[str, ...], depth: int = 0
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """All objects that have one of these names, each with its outermost enclosing object: of a text
    that is one JSON value, or contains any number of them or of Python's prints, on one line or
    several, or strings with such text."""
    if not any(name in text for name in names):
        return
    for value in _values(text, names):
        for part in value if isinstance(value, list | tuple) else (value,):
            yield from _within(part, part if isinstance(part, dict) else {}, names, depth)


def last_reports(
    text: str, names: tuple[str, ...], key: Callable[[dict[str, Any], dict[str, Any]], Any]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """As `objects`; of those with one key, as in a streamed response, the last. None is no key."""
    reports: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {}
    for number, (one, outermost) in enumerate(objects(text, names)):
        name = key(one, outermost)
        reports[number if name is None else str(name)] = one, outermost
    return list(reports.values())


def _values(text: str, names: tuple[str, ...]) -> Iterator[Any]:
    """The text itself, if it is one value; else every value that begins with a brace."""
    with contextlib.suppress(ValueError, RecursionError):
        yield json.loads(text)
        return
    decoder, at, patience, lines = json.JSONDecoder(), 0, PATIENCE * len(text) + LONGEST, LINES
    while (begin := text.find("{", at)) >= 0 and patience >= 0:
        at = begin + 1
        try:
            value, at = decoder.raw_decode(text, begin)
            yield value
            continue
        except json.JSONDecodeError as error:
            patience -= error.pos - begin
        except (ValueError, RecursionError):  # too deep, or a number with too many digits
            patience -= 1000
        line_end = newline if (newline := text.find("\n", begin)) >= 0 else len(text)
        end = _end(text, begin, line_end)
        patience -= (end or line_end) - begin
        if end is None and lines > 0 and line_end < len(text):
            lines -= 1
            end = _end(text, begin, begin + LONGEST)
        if end is not None and any(name in text[begin:end] for name in names):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                value, at = ast.literal_eval(text[begin:end]), end
                yield value


def _within(
    value: Any, outermost: dict[str, Any], names: tuple[str, ...], depth: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        yield from objects(value, names, depth + 1)
    elif isinstance(value, dict) and any(name in value for name in names):
        yield value, outermost
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _within(part, outermost, names, depth + 1)


def _end(text: str, begin: int, limit: int) -> int | None:
    """The index after the brace that closes the one at `begin`, ignoring quoted braces."""
    depth = 0
    for brace in _BRACES.finditer(text, begin, limit):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return brace.end()
    return None


def whole_numbers(values: Any, name: str) -> list[int]:
    """A missing list is empty. Raises `ValueError` with the name."""
    if not isinstance(values, list | tuple | None):
        raise ValueError(f"{name} must be a list of whole numbers, got {values!r:.40}")
    return [whole_number(value, name) for value in values or ()]


def whole_number(value: Any, name: str) -> int:
    """Raises `ValueError` with the name."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or value != int(value):
        raise ValueError(f"{name} must be a whole number from 0, got {value!r:.40}")
    return int(value)
