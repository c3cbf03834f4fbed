#!/usr/bin/env bash
# Guess: with a regular expression, the tokens that outlines-core allows lead to every text that the
#   expression matches.
# So it is: where the text could end, a token is refused if the text could not end right after it.
#   So "[0-9]+(\.[0-9]+)?" gives "1" but not "1.5", "(ab)*" gives the empty text only, and the
#   regular expression that the package makes of the JSON schema {"type": "number"} gives no
#   fraction and no exponent. With ".5" as one token "1.5" is allowed: what a model may say
#   depends on how its tokenizer cuts the text, so draft and target with different tokenizers
#   decode under different rules. Nothing wrong is allowed, and places inside a larger expression,
#   such as a number in a list in brackets, are not affected, since the text cannot end there.
# Versions: outlines-core 0.2.14 (0.2.11 and 0.2.13 do the same); 2026-11-28.
# Output seen:
#   outlines-core 0.2.14
#   a JSON number is ((-)?(0|[1-9][0-9]*))(\.[0-9]+)?([eE][+-][0-9]+)?
#   a?b                       tokens a b             2 of    2 texts; 'ab' allowed
#   (ab)*                     tokens a b             1 of    3 texts; 'ab' missing
#   [0-9]+(\.[0-9]+)?         tokens 1 5 .          62 of  130 texts; '1.5' missing
#   [0-9]+(\.[0-9]+)?         tokens 1 5 . .5       96 of  130 texts; '1.5' allowed
#   a JSON number             tokens 1 5 . e -      92 of  204 texts; '1.5' missing
#   a JSON number             tokens 1 5 . e -      92 of  204 texts; '1e-5' missing
#   a JSON number in brackets tokens [ ] 1 5 .      18 of   18 texts; '[1.5]' allowed
#   \[[0-9](\.[0-9])?         tokens [ 1 .           1 of    2 texts; '[1.1' missing
#   <[0-9](\.[0-9])?>         tokens < > 1 .         2 of    2 texts; '<1.1>' allowed
#   as described: a text ends where it could end
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: outlines-core==0.2.14 || exit 2
cat > ends.py <<'PY'
import itertools
import re
import sys
from importlib.metadata import version

from outlines_core import Index, Vocabulary
from outlines_core.json_schema import build_regex_from_schema

END, LONGEST = 0, 5


def allowed(expression, tokens):
    """The texts of at most LONGEST characters that the index leads to."""
    ids = {token: [1 + place] for place, token in enumerate(tokens)}
    index, texts = Index(expression, Vocabulary(END, ids)), set()

    def walk(state, text):
        for token in index.get_allowed_tokens(state) or []:
            if token == END:
                texts.add(text)
            elif len(text + tokens[token - 1]) <= LONGEST:
                walk(index.get_next_state(state, token), text + tokens[token - 1])

    walk(index.get_initial_state(), "")
    return texts


def matched(expression, tokens):
    """The texts of at most LONGEST characters that Python's re matches."""
    letters = sorted(set("".join(tokens)))
    texts = (
        "".join(text) for size in range(LONGEST + 1) for text in itertools.product(letters, repeat=size)
    )
    return {text for text in texts if re.fullmatch(expression, text)}


print("outlines-core", version("outlines-core"))
number = build_regex_from_schema('{"type": "number"}')
print("a JSON number is", number)
CASES = [  # an expression, the tokens, a text that it matches, whether that text is allowed
    ("a?b", ["a", "b"], "ab", True),
    ("(ab)*", ["a", "b"], "ab", False),
    ("[0-9]+(\\.[0-9]+)?", ["1", "5", "."], "1.5", False),
    ("[0-9]+(\\.[0-9]+)?", ["1", "5", ".", ".5"], "1.5", True),
    (number, ["1", "5", ".", "e", "-"], "1.5", False),
    (number, ["1", "5", ".", "e", "-"], "1e-5", False),
    (f"\\[{number}\\]", ["[", "]", "1", "5", "."], "[1.5]", True),
    ("\\[[0-9](\\.[0-9])?", ["[", "1", "."], "[1.1", False),
    ("<[0-9](\\.[0-9])?>", ["<", ">", "1", "."], "<1.1>", True),
]
as_described = True
for expression, tokens, text, expected in CASES:
    texts, right = allowed(expression, tokens), matched(expression, tokens)
    shown = expression if len(expression) < 25 else "a JSON number" + " in brackets" * ("[" in tokens)
    print(f"{shown:25s} tokens {' '.join(tokens):12s} {len(texts):4d} of {len(right):4d} texts;",
          repr(text), "allowed" if text in texts else "missing")
    as_described &= text in right and (text in texts) == expected and texts <= right
print("as described: a text ends where it could end" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python ends.py
