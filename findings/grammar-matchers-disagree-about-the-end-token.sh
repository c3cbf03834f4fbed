#!/usr/bin/env bash
# Guess: a token that a grammar library allows can be given to it, and taken back: so a window of
#   drafts that contains the end token is checked token by token, and rejected tokens are rolled back.
# So it is: for the end token each library does something else. All four allow it after "ab" in
#   "ab" and in "ab?c*". Then
#   - xgrammar takes it and takes it back;
#   - llguidance takes it in "ab?c*". In "ab", where nothing can follow, validate_tokens and
#     try_consume_tokens count 0 tokens, consume_token returns True and counts nothing, so the next
#     rollback(1) takes back the b instead, and consume_tokens returns False and leaves an error;
#   - outlines-core never takes it: accepts_tokens is False and advance raises ValueError. And
#     is_finished() is True as soon as the text could end, also where more may follow;
#   - lm-format-enforcer takes it as empty text: after it the same tokens are allowed as before it,
#     so a draft after the end token passes.
# Versions: xgrammar 0.2.8, llguidance 1.9.1, outlines-core 0.2.14, lm-format-enforcer 0.11.3,
#   tokenizers 0.23.3, transformers 5.24.0, torch 2.13.0 (CPU), numpy 2.4.6; 2026-11-28.
# Output seen:
#   {'xgrammar': '0.2.8', 'llguidance': '1.9.1', 'outlines-core': '0.2.14', 'lm-format-enforcer': '0.11.3'}
#   XGrammar   ab    allowed [0], takes the end: True, allowed after it: None, one step back: [0]
#   XGrammar   ab?c* allowed [0, 3], takes the end: True, allowed after it: None, one step back: [0, 3]
#   LLGuidance ab    allowed [0], takes the end: True, allowed after it: None, one step back: [2]
#   LLGuidance ab?c* allowed [0, 3], takes the end: True, allowed after it: None, one step back: [0, 3]
#   Outlines   ab    allowed [0], takes the end: False, allowed after it: None, one step back: [0]
#   Outlines   ab?c* allowed [0, 3], takes the end: False, allowed after it: None, one step back: [0, 3]
#   Enforcer   ab    allowed [0], takes the end: True, allowed after it: [0], one step back: [0]
#   Enforcer   ab?c* allowed [0, 3], takes the end: True, allowed after it: [0, 3], one step back: [0, 3]
#   llguidance ab: validate_tokens, try_consume_tokens, consume_tokens of the end: 0 0 False
#   llguidance ab?c*: validate_tokens, try_consume_tokens, consume_tokens of the end: 1 1 True
#   outlines-core is finished, though c may follow: True
#   as described
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  xgrammar==0.2.8 llguidance==1.9.1 outlines-core==0.2.14 lm-format-enforcer==0.11.3 \
  tokenizers==0.23.3 transformers==5.24.0 torch==2.13.0 numpy==2.4.6 || exit 2
cat > end.py <<'PY'
import sys
from importlib.metadata import version

import llguidance
import xgrammar
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from lmformatenforcer import RegexParser, TokenEnforcer
from lmformatenforcer.tokenenforcer import TokenEnforcerTokenizerData
from outlines_core import Guide, Index, Vocabulary
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

TOKENS = ["<end>", "a", "b", "c"]
END, A, B, C = range(4)


def in_mask(mask):
    return [token for token in range(len(TOKENS)) if int(mask[0][0]) >> token & 1]


class XGrammar:
    def __init__(self, expression):
        info = xgrammar.TokenizerInfo(TOKENS, xgrammar.VocabType.RAW, stop_token_ids=[END])
        compiled = xgrammar.GrammarCompiler(info).compile_regex(expression)
        self.matcher = xgrammar.GrammarMatcher(compiled)

    def allowed(self):
        mask = xgrammar.allocate_token_bitmask(1, len(TOKENS))
        self.matcher.fill_next_token_bitmask(mask)
        return in_mask(mask)

    def take(self, token):
        return self.matcher.accept_token(token)

    def back(self):
        self.matcher.rollback(1)


class LLGuidance:
    def __init__(self, expression):
        vocabulary = Tokenizer(models.BPE({name: id for id, name in enumerate(TOKENS)}, []))
        vocabulary.decoder = decoders.ByteLevel()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, eos_token="<end>")
        grammar = llguidance.LLMatcher.grammar_from_regex(expression)
        self.matcher = llguidance.LLMatcher(from_tokenizer(tokenizer), grammar, log_level=0)

    def allowed(self):
        mask = allocate_token_bitmask(1, len(TOKENS))
        fill_next_token_bitmask(self.matcher, mask)
        return in_mask(mask)

    def take(self, token):
        return self.matcher.consume_token(token)

    def back(self):
        self.matcher.rollback(1)


class Outlines:
    def __init__(self, expression):
        ids = {name: [id] for id, name in enumerate(TOKENS) if id}
        self.guide = Guide(Index(expression, Vocabulary(END, ids)))

    def allowed(self):
        return sorted(self.guide.get_tokens())

    def take(self, token):
        accepts = self.guide.accepts_tokens([token])
        try:
            self.guide.advance(token)
        except ValueError:
            assert not accepts
            return False
        return True

    def back(self):
        self.guide.rollback_state(1)


class Enforcer:
    """It is asked with the whole text each time, so taking back is asking with the shorter text."""

    def __init__(self, expression):
        text = lambda ids: "".join(TOKENS[id] for id in ids if id)
        regular = [(id, name, False) for id, name in enumerate(TOKENS) if id]
        data = TokenEnforcerTokenizerData(regular, text, END, False, len(TOKENS))
        self.enforcer = TokenEnforcer(data, RegexParser(expression))
        self.text = []
        self.allowed()

    def allowed(self):
        return sorted(self.enforcer.get_allowed_tokens(self.text).allowed_tokens)

    def take(self, token):
        valid = token in self.allowed()
        self.text.append(token)
        return valid

    def back(self):
        self.text.pop()


def after(library, expression):
    """After a, b: the allowed tokens, if it takes the end, what is allowed after one step back."""
    matcher = library(expression)
    for token in (A, B):
        assert matcher.take(token)
    before, taken = matcher.allowed(), matcher.take(END)
    after_end = matcher.allowed() if taken and library is Enforcer else None
    if taken:
        matcher.back()
    return before, taken, after_end, matcher.allowed()


def counted(expression):
    """llguidance's other calls about the end after a, b, and what a step back does then."""
    matcher = LLGuidance(expression)
    matcher.take(A), matcher.take(B)
    valid = matcher.matcher.validate_tokens([END])
    tried = LLGuidance(expression)
    tried.take(A), tried.take(B)
    return valid, tried.matcher.try_consume_tokens([END]), matcher.matcher.consume_tokens([END])


print({name: version(name) for name in ("xgrammar", "llguidance", "outlines-core", "lm-format-enforcer")})
EXPECTED = {  # after a, b: allowed; is the end taken; allowed after it; allowed one step back
    (XGrammar, "ab"): ([END], True, None, [END]),
    (XGrammar, "ab?c*"): ([END, C], True, None, [END, C]),
    (LLGuidance, "ab"): ([END], True, None, [B]),
    (LLGuidance, "ab?c*"): ([END, C], True, None, [END, C]),
    (Outlines, "ab"): ([END], False, None, [END]),
    (Outlines, "ab?c*"): ([END, C], False, None, [END, C]),
    (Enforcer, "ab"): ([END], True, [END], [END]),
    (Enforcer, "ab?c*"): ([END, C], True, [END, C], [END, C]),
}
as_described = True
for (library, expression), expected in EXPECTED.items():
    seen = after(library, expression)
    print(f"{library.__name__:10s} {expression:5s} allowed {seen[0]}, takes the end: {seen[1]}, "
          f"allowed after it: {seen[2]}, one step back: {seen[3]}")
    as_described &= seen == expected
for expression, expected in {"ab": (0, 0, False), "ab?c*": (1, 1, True)}.items():
    seen = counted(expression)
    print(f"llguidance {expression}: validate_tokens, try_consume_tokens, consume_tokens of the end:", *seen)
    as_described &= seen == expected
guide = Outlines("ab?c*")
guide.take(A), guide.take(B)
print("outlines-core is finished, though c may follow:", guide.guide.is_finished())
as_described &= guide.guide.is_finished() and C in guide.allowed()
print("as described" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python end.py
