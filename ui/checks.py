"""Errors in user input, as one line that names the field."""

import re
from collections.abc import Iterable, Mapping

from pydantic import ValidationError

MAX_DRAFT_TOKENS = 16
RANGES = {"num_draft_tokens": f"0 to {MAX_DRAFT_TOKENS}, or auto"}
"""What a field may be, in the same words wherever it is refused."""

_WORDS = {
    "Input should be": "must be",
    "Value error, ": "",
    ", got a number with a fractional part": "",
    "a valid integer": "a whole number",
    "a valid": "a",
}


def first_problem(error: ValidationError, names: Mapping[str, str] | None = None) -> str:
    """The first problem that pydantic found; `names` replace the names of some fields."""
    problem = error.errors(include_url=False)[0]
    field = str(problem["loc"][0])
    if field in RANGES:
        return out_of_range((names or {}).get(field, field), RANGES[field], problem["input"])
    message = problem["msg"].split(", unable to parse")[0]
    for old, new in _WORDS.items():
        message = message.replace(old, new)
    return f"{(names or {}).get(field, field)} {message}, {_shown(problem['input'])}"


def out_of_range(name: str, allowed: str, value: object) -> str:
    """The problem with a value outside its range."""
    return f"{name} must be {allowed}, {_shown(value)}"


def _shown(value: object) -> str:
    return "and is empty" if value in (None, "") else f"got {value!r:.80}"


def field_of(problem: object, fields: Iterable[str]) -> str:
    """The field that a problem names first; empty if it names none."""
    named = re.match(r"[a-z_]+", str(problem))
    return named[0] if named and named[0] in fields else ""


def in_labels(problem: object, labels: Mapping[str, str]) -> str:
    """The problem, with the page's labels instead of parameter names. A name without an
    underscore may also be a word of the sentence, so it is replaced at the beginning only. The
    value after "got" is the user's and stays."""
    said, got, value = str(problem).partition(", got ")
    names = "|".join(name if "_" in name else f"^{name}\\b" for name in labels)
    return re.sub(names, lambda match: labels[match[0]], said) + got + value
