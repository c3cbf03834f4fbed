#!/usr/bin/env bash
# Guess: get_allowed_tokens(text) depends on the text alone, so after a step that accepted several
#   drafts it can be asked about the longer text at once.
# So it is: a text is taken for the continuation of an earlier one only if the text without its last
#   token was asked about before. Else it is taken for a new prompt, without an error, and the
#   grammar begins anew: after "ab" of "abcd" it allows a again. That answer is kept: asked token by
#   token afterwards, the same enforcer still gives it, and then takes the right c for wrong and
#   ends the text. One that was asked in order is right. So an engine has to ask about each
#   token of a window, in order; a single one left out costs the grammar.
# Versions: lm-format-enforcer 0.11.3; 2026-11-28.
# Output seen:
#   lm-format-enforcer 0.11.3
#   asked after (0, 1, 2, 3, 4) tokens of abcd; allowed: {0: 'a', 1: 'b', 2: 'c', 3: 'd', 4: 'end'}
#   asked after (0, 2) tokens of abcd; allowed: {0: 'a', 2: 'a'}
#   asked after (0, 2, 1, 2, 3) tokens of abcd; allowed: {0: 'a', 2: 'a', 1: 'b', 3: 'end'}
#   as described
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: lm-format-enforcer==0.11.3 || exit 2
cat > order.py <<'PY'
import sys
from importlib.metadata import version

from lmformatenforcer import RegexParser, TokenEnforcer
from lmformatenforcer.tokenenforcer import TokenEnforcerTokenizerData

TOKENS = ["", "a", "b", "c", "d", "x"]
X = 5


def enforcer():
    regular = [(token, text, False) for token, text in enumerate(TOKENS) if token]
    text = lambda ids: "".join(TOKENS[token] for token in ids)
    data = TokenEnforcerTokenizerData(regular, text, 0, False, len(TOKENS))
    return TokenEnforcer(data, RegexParser("abcd"))


def asked(order):
    """The answers about a prompt and the first tokens of abcd, so many as in the order."""
    one, answers = enforcer(), {}
    for count in order:
        allowed = one.get_allowed_tokens([X, X, 1, 2, 3, 4][: 2 + count]).allowed_tokens
        answers[count] = "".join(TOKENS[token] or "end" for token in allowed)
    return answers


print("lm-format-enforcer", version("lm-format-enforcer"))
EXPECTED = {
    (0, 1, 2, 3, 4): {0: "a", 1: "b", 2: "c", 3: "d", 4: "end"},
    (0, 2): {0: "a", 2: "a"},
    (0, 2, 1, 2, 3): {0: "a", 1: "b", 2: "a", 3: "end"},
}
as_described = True
for order, expected in EXPECTED.items():
    answers = asked(order)
    print("asked after", order, "tokens of abcd; allowed:", answers)
    as_described &= answers == expected
print("as described" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python order.py
