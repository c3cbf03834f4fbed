"""Grammars in GBNF, for llguidance.

llguidance's own reader makes words of the grammar's rules, and a word takes all that fits it: then
`("a" | "ab") "c"` does not allow "ac". So a grammar without recursion becomes one regular
expression, and any other is written character by character.
"""

import re
from collections.abc import Callable

from naive_speculate.guides.expressions import MAX_WIDTH, literal, rewritten

MAX_EXPRESSION = 100_000  # characters of a grammar as one expression; a longer one is not made
MAX_DEPTH = 200  # brackets inside brackets

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#.*) | (?P<head>[\w-]+)\s*::= | (?P<name>[\w-]+) | (?P<mark>[()|])
    | "(?P<text>(?:[^"\\]|\\.)*)" | (?P<set>\[(?:[^]\\]|\\.)*]|\.) | (?P<times>[*+?]|{\d*,?\d*})
    """,
    re.VERBOSE,
)
_LETTER = re.compile(r"\\x(..)|\\u(.{4})|\\U(.{8})|\\(.)|(.)", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}

_Rules = dict[str, list[tuple[str, str]]]
"""Of each rule the kinds and values of its tokens; a text or set is written as an expression for
each of its characters, with spaces between them."""


def read(text: str) -> str:
    """The grammar in llguidance's own form, which begins with what the first rule holds.

    Raises:
        ValueError: If it does not parse; the message continues "grammar …".
    """
    try:
        rules = _rules(text)
        used = {value for rule in rules.values() for kind, value in rule if kind == "name"}
        for name in sorted({"root", *used} - rules.keys()):
            raise ValueError(f"there is no rule {name!r}")
        times = {value for rule in rules.values() for kind, value in rule if kind == "times"}
        expression = _expression(rules, "root", {})
    except RecursionError:
        raise ValueError(f"is nested too deep, got {text!r:.80}") from None
    except ValueError as error:
        raise ValueError(f"does not parse, got {text!r:.80}: {error}") from None
    for least in (int(number[0]) for each in times if (number := re.search(r"\d+", each))):
        if least > MAX_WIDTH:
            raise ValueError(f"may demand {MAX_WIDTH} repetitions, got {least}")
    if expression is not None:
        return f"/{expression}/"
    names = {name: f"r{index}" for index, name in enumerate(rules)} | {"root": "start"}
    bodies = {
        names[name]: _joined(
            rule, names.__getitem__, lambda text: re.sub(r"(\S+)", r"/\1/", text), '""'
        )
        for name, rule in rules.items()
    }
    return "\n".join([bodies.pop("start"), *(f"{name}: {bodies[name]}" for name in bodies)])


def _rules(text: str) -> _Rules:
    rules: _Rules = {}
    rule: list[tuple[str, str]] = []
    at = depth = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        kind = token.lastgroup if token else None
        if token is None or kind is None or (kind not in ("space", "head") and not rules):
            raise ValueError(f"Expected {'a part' if rules else '::='} at {text[at:]!r:.20}")
        at, value = token.end(), token[kind]
        if kind == "head":
            rule = rules[value] = []
        elif kind == "text":
            rule.append((kind, " ".join(literal(letter) for letter, _ in _letters(value))))
        elif kind == "set":
            rule.append(("text", rewritten(_set(value))))
        elif kind != "space":
            rule.append((kind, value.replace("{,", "{0,")))
        alone = len(rule) < 2 or rule[-2][0] == "times" or rule[-2][1] in ("(", "|")
        if kind == "times" and alone:
            raise ValueError(f"{value} repeats nothing")
        if kind == "mark":
            depth += {"(": 1, ")": -1}.get(value, 0)
        if depth > MAX_DEPTH:
            raise RecursionError
        if depth < 0 or (depth and (kind == "head" or at == len(text))):
            raise ValueError("a bracket has no partner")
    return rules


def _letters(text: str) -> list[tuple[str, bool]]:
    """The characters of a text or a set, and whether each was escaped."""
    return [
        (chr(int(code, 16)), True)
        if (code := letter[1] or letter[2] or letter[3])
        else (_CONTROLS.get(letter[4], letter[4]) or letter[5], letter[5] is None)
        for letter in _LETTER.finditer(text)
    ]


def _set(text: str) -> str:
    """A set as Python writes it."""
    if text == ".":
        return "(?s:.)"
    letters = [
        letter if letter in "^-" and not escaped else rf"\U{ord(letter):08x}"
        for letter, escaped in _letters(text[1:-1])
    ]
    return f"[{''.join(letters)}]"


def _expression(rules: _Rules, name: str, written: dict[str, str | None]) -> str | None:
    """A rule as a regular expression; None if it contains itself, or would be too long."""
    if name not in written:
        written[name] = None  # while it is written
        used = [value for kind, value in rules[name] if kind == "name"]
        if None not in [_expression(rules, each, written) for each in used]:
            expression = _joined(
                rules[name], lambda each: str(written[each]), lambda text: text.replace(" ", "")
            )
            written[name] = expression if len(expression) <= MAX_EXPRESSION else None
    return written[name]


def _joined(
    rule: list[tuple[str, str]],
    name: Callable[[str], str],
    text: Callable[[str], str],
    empty: str = "",
) -> str:
    """A rule with its names and texts as these write them; `empty` begins each alternative."""
    parts = [empty]
    for kind, value in rule:
        if kind == "mark":
            parts.append(value + (f" {empty}" if empty and value != ")" else ""))
        elif kind == "times":
            parts[-1] += value
        else:
            parts.append(f"({(name if kind == 'name' else text)(value) or empty})")
    return (" " if empty else "").join(parts)
