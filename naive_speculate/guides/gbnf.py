"""Grammars in GBNF, for llguidance.

llguidance's own reader makes words of the grammar's rules, and a word takes all that fits it: then
`("a" | "ab") "c"` does not allow "ac". So a grammar without recursion becomes one regular
expression, and any other is written character by character.
"""

import re
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter

from llguidance.gbnf_to_lark import (
    AlternativeNode,
    ASTNode,
    GbnfToLarkError,
    GrammarParser,
    LiteralNode,
    RegexNode,
    RepetitionNode,
    RuleRefNode,
    SequenceNode,
)

from naive_speculate.guides.expressions import MAX_WIDTH, characters, joined, literal, others

MAX_EXPRESSION = 100_000  # characters of a grammar as one expression; a longer one is not made

_HEX = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
_LETTER = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)|(.)", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_SPLIT_RULE = re.compile(r"\s*\n\s*\|")  # an alternative on a line of its own


def read(text: str) -> str:
    """The grammar in llguidance's own form, which begins with what the first rule holds.

    Raises:
        ValueError: If it does not parse; the message continues "grammar …".
    """
    try:
        rules = {
            name: rule.alternatives
            for name, rule in GrammarParser().parse(_SPLIT_RULE.sub(" |", _plain(text))).items()
        }
        used = {name: set(_names(rule)) for name, rule in rules.items()}
        for name in sorted({"root"}.union(*used.values()) - used.keys()):
            raise ValueError(f"does not parse, got {text!r:.80}: there is no rule {name!r}")
        expression = _expression(rules, used)
        return _lark(rules) if expression is None else f"/{expression}/"
    except RecursionError:
        raise ValueError(f"is nested too deep, got {text!r:.80}") from None
    except (GbnfToLarkError, IndexError) as error:
        raise ValueError(f"does not parse, got {text!r:.80}: {error}") from None


def _plain(text: str) -> str:
    """Characters instead of their codes; the reader drops leading zeros of a code."""

    def letter(match: re.Match[str]) -> str:
        code = int(match[2] or match[3] or match[4], 16)
        if code < 0x100:  # it may be a quote or a bracket
            return rf"{match[1]}\x{code:02x}"
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise ValueError(f"does not parse, got {text!r:.80}: {match[0]} is no character")
        return match[1] + chr(code)

    return _HEX.sub(letter, text)


def _names(node: ASTNode) -> list[str]:
    """The rules that a node names."""
    if isinstance(node, RuleRefNode):
        return [node.name]
    return [name for child in node.children() for name in _names(child)]


def _expression(rules: dict[str, ASTNode], used: dict[str, set[str]]) -> str | None:
    """The whole grammar as one regular expression; None if rules contain themselves, or it would
    be too long."""
    try:
        order = list(TopologicalSorter(used).static_order())
    except CycleError:
        return None
    written: dict[str, str] = {}
    for name in order:
        written[name] = _node(rules[name], written.__getitem__)
        if len(written[name]) > MAX_EXPRESSION:
            return None
    return written["root"]


def _lark(rules: dict[str, ASTNode]) -> str:
    """The grammar in llguidance's own form, each of its words one character."""
    names = {name: f"r{index}" for index, name in enumerate(rules)} | {"root": "start"}

    def set_of(expression: str) -> str:
        return f"/{expression}/ "

    written = {
        name: _node(rule, lambda used: names[used] + " ", set_of, "(")
        for name, rule in rules.items()
    }
    others_of = [f"{names[name]}: {body}" for name, body in written.items() if name != "root"]
    return "\n".join([written["root"], *others_of])


def _node(
    node: ASTNode,
    rule: Callable[[str], str],
    letter: Callable[[str], str] = str,
    group: str = "(?:",
) -> str:
    """A node's text: `rule` gives that of a rule, `letter` that of one character."""
    if isinstance(node, RuleRefNode):
        return rule(node.name)
    if isinstance(node, LiteralNode):
        letters = [letter(literal(one)) for one, _ in _letters(node.value)]
        return "".join(letters) or _empty(group)
    if isinstance(node, RegexNode):
        return letter(_set(node.rx))
    if isinstance(node, AlternativeNode):
        ways = [_node(way, rule, letter, group) for way in node.alternatives]
        return f"{group}{'|'.join(ways)})"
    if isinstance(node, RepetitionNode):
        if node.min_times > MAX_WIDTH:
            raise ValueError(f"may demand {MAX_WIDTH} repetitions, got {node.min_times}")
        most = "" if node.max_times is None else node.max_times
        inner = _node(node.node, rule, letter, group)
        return f"{group}{inner}){{{node.min_times},{most}}}"
    assert isinstance(node, SequenceNode)
    return "".join(_node(part, rule, letter, group) for part in node.nodes) or _empty(group)


def _empty(group: str) -> str:
    return '""' if group == "(" else ""


def _letters(text: str) -> list[tuple[str, bool]]:
    """The characters of a literal or a set, and whether each was escaped."""
    return [
        (chr(int(code, 16)), True)
        if code
        else (_CONTROLS.get(escaped, escaped), True)
        if escaped
        else (plain, False)
        for code, escaped, plain in _LETTER.findall(text)
    ]


def _set(text: str) -> str:
    """The characters of `[…]` or `.`, which is any character."""
    if text == ".":
        return characters([(0, 0x10FFFF)])
    letters = _letters(text[1:-1].replace("\\/", "/"))
    negated = letters[:1] == [("^", False)]
    letters = letters[negated:]
    ranges, index = [], 0
    while index < len(letters):
        low = high = letters[index][0]
        if index + 2 < len(letters) and letters[index + 1] == ("-", False):
            high = letters[index + 2][0]
            index += 2
        if low > high:
            raise ValueError(f"does not parse, got the range {low}-{high} in {text!r:.80}")
        ranges.append((ord(low), ord(high)))
        index += 1
    members = others(joined(ranges)) if negated else joined(ranges)
    if not members:
        raise ValueError(f"has a set without characters, got {text!r:.80}")
    return characters(members)
