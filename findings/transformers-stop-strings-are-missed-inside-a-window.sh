#!/usr/bin/env bash
# Guess: a greedy text with stop_strings, or with a stopping criterion of one's own, ends at the same
#   place with drafts as without.
# So it is: with prompt lookup a stop string that does not end at the last accepted token of a step
#   is not seen, and the text goes on, here to the most new tokens. Stopping criteria are asked once
#   per step, about its last token; only the end token and the greatest length are looked for inside
#   the accepted tokens. With an assistant, or early exit, criteria of one's own are missed in the
#   same way, and stop_strings end in a ValueError that asks for a tokenizer, though one was given:
#   the assistant's own generate gets the stop strings and not the tokenizer. With early exit that
#   error leaves the model cut to its first layers: later plain texts are other ones.
# Versions: transformers 5.24.0 (the newest on PyPI on this day), tokenizers 0.23.3, torch 2.13.0
#   (CPU), numpy 2.4.6; 2026-11-28.
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  transformers==5.24.0 tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6 || exit 2
cat > stop.py <<'PY'
import copy
import sys
from importlib.metadata import version

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    StoppingCriteriaList,
    logging,
)

V, PROMPT, TOKENS = 64, 140, 40
torch.set_num_threads(1), logging.set_verbosity_error()
torch.manual_seed(1)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=V, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
    max_position_embeddings=512, initializer_range=0.2, pad_token_id=0, bos_token_id=None,
    eos_token_id=None, tie_word_embeddings=False,
)).eval().double()
characters = Tokenizer(models.BPE({chr(48 + token): token for token in range(V)}, []))
characters.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=characters)
DRAFTS = {
    "none": {},
    "prompt lookup": {"prompt_lookup_num_tokens": 4},
    "assistant": {"assistant_model": copy.deepcopy(model)},
    "early exit": {"assistant_early_exit": 1},
}
layers = model.config.num_hidden_layers


def generated(ids, **options):
    options = {"do_sample": False, "max_new_tokens": TOKENS} | options
    return model.generate(ids, attention_mask=torch.ones_like(ids), **options)


def prompts():
    """Texts of the model itself, so that prompt lookup is right now and then."""
    for seed in range(6):
        ids = torch.randint(1, V, (1, 4), generator=torch.Generator().manual_seed(seed))
        yield generated(ids, max_new_tokens=PROMPT - 4)


class AfterPair(StoppingCriteria):
    """Ends a text after two tokens."""

    def __init__(self, pair):
        self.pair = pair

    def __call__(self, input_ids, scores, **_):
        return (input_ids[:, -2:] == self.pair).all(dim=-1)


def lengths(drafts, criteria):
    """The length of the text for each prompt and each place of the pair of tokens that ends it."""
    out = []
    for ids, pairs in CASES:
        for pair in pairs:
            stop = (
                {"stopping_criteria": StoppingCriteriaList([AfterPair(pair)])} if criteria
                else {"stop_strings": [tokenizer.decode(pair)], "tokenizer": tokenizer}
            )
            out.append(generated(ids, **stop, **DRAFTS[drafts]).shape[1] - PROMPT)
    return out


CASES = []
for ids in prompts():
    new = generated(ids)[0, PROMPT:]
    CASES.append((ids, [new[place : place + 2] for place in range(1, 9)]))
print("transformers", version("transformers"), "torch", version("torch"))
as_described = True
for criteria in (False, True):
    print("a criterion of one's own" if criteria else "stop_strings")
    plain = lengths("none", criteria)
    as_described &= max(plain) <= 10
    for drafts in list(DRAFTS)[1:]:
        try:
            found = lengths(drafts, criteria)
        except ValueError as error:
            print(f"  {drafts:14s} ValueError: {error}")
            as_described &= not criteria and drafts != "prompt lookup" and "tokenizer" in str(error)
            left = model.config.num_hidden_layers
            print(f"  {'':14s} afterwards the model has {left} of {layers} layers")
            as_described &= left == (1 if drafts == "early exit" else layers)
            model.config.num_hidden_layers = layers
            continue
        longer = [length for length, right in zip(found, plain) if length != right]
        print(f"  {drafts:14s} {len(longer)} of {len(plain)} texts go on; plain ones have at most "
              f"{max(plain)} tokens, these {min(longer, default=None)} to {max(longer, default=None)}")
        as_described &= len(longer) > 2 and max(longer) == TOKENS
        as_described &= criteria or drafts == "prompt lookup"
print("as described: what ends a text is missed inside a window" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python stop.py
