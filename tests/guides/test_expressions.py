"""Regular expressions of guides mean what they mean in Python, or are refused by name."""

import json
import re

import pytest

from naive_speculate.guides.expressions import rewritten
from tests.guides.raw_bytes import allows

EXPRESSIONS = [
    "a*b", "(^a|b)c", "(a|b$)", "^a|b$", "^(a|b)$", r"\Aab\Z", "a.b", "(?s)a.b", r"\W", r"\w+",
    r"\D", r"[^\s]", r"[^\W\d]", "(?i)k", "(?i)[a-k]", "(?i)[^s]", "(?i)straße", r"(?a)\w",
    "(?x) a  b # c", "(?i:a)b", "(?P<x>a)b", "a??b+?", "a{,2}b", r"[\]\[^-]", r"\x41\u00e9", "^$",
    "(a|)", r"[\d\-]",
]  # fmt: skip
TEXTS = [
    "", "a", "b", "ab", "ac", "bc", "A", "aab", "Ab", "b ", "a\nb", "a\n", "\n", "é", "٣", "3", "_",
    "\u00a0", "K", "k", "ſ", "S", "straße", "STRASSE", "]", "-", "Aé", "zza", "azz", "zb", "bz",
    "\x85", "a\u2028b",
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_allows_exactly_the_texts_that_it_matches_in_python(expression):
    for text in TEXTS:
        expected = re.fullmatch(expression, text) is not None
        assert allows({"regex": expression}, text) is expected, text


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_rewritten_pattern_of_a_schema_matches_only_where_the_pattern_does(expression):
    guide = {"json": {"type": "string", "pattern": expression}}
    matched = [text for text in TEXTS if allows(guide, json.dumps(text, ensure_ascii=False))]
    assert all(re.search(expression, text) for text in matched)
    assert matched or expression in (r"(?x) a  b # c",)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("(a|b$)c", r"\^ and \$ elsewhere than at its ends"),
        ("a(^b)?", r"\^ and \$ elsewhere than at its ends"),
        ("(?m)^a$", "with the flag m"),
        (r"\ba", r"\\b and \\B"),
        ("(?=a)a", "look-ahead and look-behind"),
        ("(?<!a)b", "look-ahead and look-behind"),
        (r"(a)\1", "references to groups"),
        ("(?P<n>a)(?P=n)", "references to groups"),
        ("a++", "possessive repetitions"),
        ("(?>a)", "atomic groups"),
        (r"[^\s\S]", "a set without characters"),
        (r"\p{L}", r"bad escape \\p"),
    ],
)
def test_what_no_automaton_follows_is_refused_by_name(expression, said):
    with pytest.raises(ValueError, match=said):
        rewritten(expression)
