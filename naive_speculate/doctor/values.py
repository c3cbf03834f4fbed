"""JSON, and what Python prints of the same, found among other lines."""

import ast
import contextlib
import json
import math
from collections.abc import Iterator
from typing import Any

MAX_DEPTH = 40
PATIENCE = 200
"""How often a value that goes over several lines is looked for in vain."""


def objects(text: str, names: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """All objects in a text that have one of these names, each with the outermost object around it.

    The text may be one JSON value, one a line (also behind "data: " or a log's beginning), or what Python prints of such.
    """
    if not any(name in text for name in names):
        return
    for value in _values(text):
        outermost = value if isinstance(value, dict) else {}
        yield from ((found, outermost) for found in _within(value, names, 0))


def _values(text: str) -> Iterator[Any]:
    """The text itself, if it is one value; else what begins with a line's first brace, on one line or several."""
    with contextlib.suppress(ValueError, RecursionError):
        yield json.loads(text)
        return
    decoder, at, in_vain = json.JSONDecoder(), 0, 0
    while (begin := text.find("{", at)) >= 0:
        line_end = end if (end := text.find("\n", begin)) >= 0 else len(text)
        line, at = text[begin:line_end], line_end
        with contextlib.suppress(ValueError, RecursionError):
            yield decoder.raw_decode(line)[0]
            continue
        if in_vain < PATIENCE:
            try:
                value, at = decoder.raw_decode(text, begin)
                yield value
                continue
            except (ValueError, RecursionError):
                in_vain += 1
        yield _printed(line)


def _within(value: Any, names: tuple[str, ...], depth: int) -> Iterator[dict[str, Any]]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        if any(name in value for name in names):
            yield value
        else:
            for part in value.values():
                yield from _within(part, names, depth + 1)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _within(part, names, depth + 1)


def _printed(line: str) -> Any:
    """What Python prints of a value; None where it is none."""
    try:
        return ast.literal_eval(line.strip()) if "'" in line else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def whole_number(value: Any, name: str) -> int:
    """A count, or a `ValueError` that names it."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or value != int(value):
        raise ValueError(f"{name} must be a whole number from 0, got {value!r:.40}")
    return int(value)
