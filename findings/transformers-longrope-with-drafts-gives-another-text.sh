#!/usr/bin/env bash
# Guess: greedy text is the same with drafts as without for every rotary embedding, also where a
#   text passes the length that a model was first trained for.
# So it is: not for LongRoPE (Phi-3 and Phi-4-mini with long contexts). Its frequencies change for
#   the whole text when that passes original_max_position_embeddings. Plain generate throws its
#   cache away there and computes the text anew: it is the text of a decoding without any cache.
#   With drafts the cache stays, and its keys keep the short frequencies. So the text changes where
#   it crosses, and from there on depends on the drafts, even if the model drafts for itself. No
#   warning. Texts that end before that length, or whose prompt is longer, are the same, and so are
#   all if short and long factors are equal. (With rope_type dynamic plain text itself depends on
#   the cache.)
# Versions: transformers 5.24.0 (the newest on PyPI on this day), torch 2.13.0 (CPU), numpy 2.4.6;
#   2026-11-28.
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  transformers==5.24.0 torch==2.13.0 numpy==2.4.6 || exit 2
cat > rope.py <<'PY'
import copy
import sys
from importlib.metadata import version

import torch
from transformers import Phi3Config, Phi3ForCausalLM, logging

V, TEXTS, BORDER = 64, 6, 40
torch.set_num_threads(1), logging.set_verbosity_error()
ROPES = {
    "longrope": {"short_factor": [1.0] * 8, "long_factor": [1.0 + i for i in range(8)]},
    "equal": {"short_factor": [2.0] * 8, "long_factor": [2.0] * 8},
}
LENGTHS = {"before": (12, 26), "across": (30, 40), "beyond": (60, 30)}  # prompt, new tokens


def made(kind):
    """A small Phi 3 in float64, which rounding cannot move to another token."""
    torch.manual_seed(1)
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": BORDER}
    return Phi3ForCausalLM(Phi3Config(
        vocab_size=V, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, initializer_range=0.4, pad_token_id=0,
        bos_token_id=None, eos_token_id=None, max_position_embeddings=160,
        original_max_position_embeddings=BORDER, rope_parameters=rope | ROPES[kind],
    )).eval().double()


def same(kind, prompt, tokens):
    """How many of TEXTS texts equal the plain ones."""
    model = made(kind)
    noisy, itself = copy.deepcopy(model), copy.deepcopy(model)
    torch.manual_seed(7)
    for parameter in noisy.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    ways = {
        "no cache": {"use_cache": False}, "assistant": {"assistant_model": noisy},
        "itself": {"assistant_model": itself}, "prompt lookup": {"prompt_lookup_num_tokens": 4},
    }
    equal = dict.fromkeys(ways, 0)
    for seed in range(TEXTS):
        ids = torch.randint(1, V, (1, 6), generator=torch.Generator().manual_seed(seed))
        ids = ids.repeat(1, prompt // 6)
        options = dict(attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens)
        plain = model.generate(ids, **options)
        for way, more in ways.items():
            equal[way] += plain.equal(model.generate(ids, **options, **more))
    return equal


print("transformers", version("transformers"), "torch", version("torch"))
as_described = True
for kind in ROPES:
    for name, (prompt, tokens) in LENGTHS.items():
        equal = same(kind, prompt, tokens)
        print(f"{kind:8s} from {prompt} to {prompt + tokens} tokens ({name:6s} {BORDER}):",
              f"of {TEXTS} texts as plain", equal)
        drafted = [equal[way] for way in ("assistant", "itself", "prompt lookup")]
        as_described &= equal["no cache"] == TEXTS
        if kind == "longrope" and name == "across":
            as_described &= max(drafted) < TEXTS
        else:
            as_described &= min(drafted) == TEXTS
print("as described: across that length drafts change the text" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python rope.py
