#!/usr/bin/env bash
# Guess: prompt_lookup_num_tokens copies the tokens that followed the same text before, whatever the
#   sampling options are; those decide only what is accepted.
# So it is: copied tokens are first tried with the logits processors on made-up logits, all equal to
#   one, to find forbidden tokens. top_p is one of the processors. Of equal probabilities it keeps
#   a share of top_p of the ids, chosen by nothing but the order in which ties are sorted, always
#   the same: with top_p=0.5 half of the vocabulary is never drafted, however probable, with 0.9 a
#   tenth (of 32,000 ids here 3,200 between 20,001 and 23,999), and a copy ends before the first
#   of them. The text's distribution is right; only drafts, and so the speed, are lost. top_k
#   and min_p hide nothing: they keep ties.
# Versions: transformers 5.24.0 (the newest on PyPI on this day; 5.23.0 does the same), torch 2.13.0
#   (CPU), numpy 2.4.6; 2026-11-28.
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  transformers==5.24.0 torch==2.13.0 numpy==2.4.6 || exit 2
cat > hidden.py <<'PY'
import sys
from importlib.metadata import version

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TopPLogitsWarper, logging

V, TEXTS, TOKENS = 64, 4, 30
torch.set_num_threads(1), logging.set_verbosity_error()
torch.manual_seed(1)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=V, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    max_position_embeddings=256, initializer_range=0.1, pad_token_id=0, bos_token_id=None,
    eos_token_id=None, tie_word_embeddings=False,
)).eval()
make = model._get_candidate_generator
drafted = []


def observed(**given):
    generator = make(**given)
    propose = generator.get_candidates

    def proposed(ids):
        candidates, logits = propose(ids)
        drafted.extend(candidates[0, ids.shape[1] :].tolist())
        return candidates, logits

    generator.get_candidates = proposed
    return generator


model._get_candidate_generator = observed
prompt = torch.arange(V).repeat(2)[None]  # each token has a continuation to copy


def drafts(**options):
    """The drafted tokens."""
    drafted.clear()
    for seed in range(TEXTS):
        torch.manual_seed(seed)
        model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=True, max_new_tokens=TOKENS,
            prompt_lookup_num_tokens=4, **({"top_k": 0} | options),
        )
    return list(drafted)


def hidden(top_p, size):
    """The ids that top_p takes away of equal logits."""
    kept = TopPLogitsWarper(top_p)(None, torch.ones(1, size))[0]
    return (kept == -torch.inf).nonzero().flatten().tolist()


print("transformers", version("transformers"), "torch", version("torch"))
print("of 32000 equal logits top_p=0.9 hides", len(many := hidden(0.9, 32000)), "ids, from",
      many[0], "to", many[-1])
shares = {0.9: hidden(0.9, V), 0.5: hidden(0.5, V)}
print(f"{V} tokens          drafted  of those that top_p=0.9 hides  top_p=0.5")
found = {}
for options in ({}, {"top_k": 5}, {"min_p": 0.1}, {"top_p": 0.9}, {"top_p": 0.5}):
    name = ", ".join(f"{key}={value}" for key, value in options.items()) or "no truncation"
    tokens = drafts(**options)
    found[name] = [len(tokens)] + [sum(token in ids for token in tokens) for ids in shares.values()]
    print(f"{name:17s}  {found[name][0]:7d}  {found[name][1]:29d}  {found[name][2]:9d}")
as_described = [len(ids) for ids in shares.values()] == [6, 32]
as_described &= found["top_p=0.9"][1] == 0 == found["top_p=0.5"][2]
as_described &= all(min(found[name]) > 10 for name in ("no truncation", "top_k=5", "min_p=0.1"))
as_described &= found["top_p=0.5"][0] < 0.7 * found["no truncation"][0]
print("as described: top_p hides drafts" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python hidden.py
