"""What a check of somebody's input found, in one line that names the field."""

import re
from collections.abc import Mapping

from pydantic import ValidationError

_WORDS = {
    "Input should be": "must be",
    "Value error, ": "",
    ", got a number with a fractional part": "",
    "a valid integer": "a whole number",
    "a valid": "a",
}


def first_problem(error: ValidationError, names: Mapping[str, str] | None = None) -> str:
    """The first thing that is wrong with what pydantic checked; `names` are those of fields that have others than their own."""
    found = error.errors(include_url=False)[0]
    field = str(found["loc"][0])
    message = found["msg"].split(", unable to parse")[0]
    for old, new in _WORDS.items():
        message = message.replace(old, new)
    given = "and is empty" if found["input"] in (None, "") else f"got {found['input']!r:.80}"
    return f"{(names or {}).get(field, field)} {message}, {given}"


def in_labels(problem: object, labels: Mapping[str, str]) -> str:
    """What is wrong, with the page's labels in place of the names that programs use."""
    return re.sub("|".join(labels), lambda found: labels[found[0]], str(problem))
