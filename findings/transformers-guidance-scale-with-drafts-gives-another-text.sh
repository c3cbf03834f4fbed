#!/usr/bin/env bash
# Guess: greedy text with guidance_scale (classifier-free guidance) is the same with drafts as
#   without.
# So it is: another text, even if the model drafts for itself, and no warning. The logits processor
#   of guidance decodes the text without its prompt in a cache of its own, and adds one token to
#   it at each call. It is called for each draft token, by the target and (the same object) by the
#   assistant, and rejected tokens stay in the cache. Plain text is what guidance means: the greedy
#   text computed anew for each token, from two forwards without a cache. With early exit it ends in
#   an IndexError.
# Versions: transformers 5.24.0 (the newest on PyPI on this day; 5.23.0 does the same), torch 2.13.0
#   (CPU), numpy 2.4.6; 2026-11-28.
# Output seen:
#   transformers 5.24.0 torch 2.13.0+cpu
#   drafts            equal texts of 5: with guidance  without
#   plain                                           5        5
#   a draft model                                   0        5
#   the model itself                                0        5
#   prompt lookup                                   0        5
#   early exit                             IndexError        5
#   as described: with drafts the guided text is another
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  transformers==5.24.0 torch==2.13.0 numpy==2.4.6 || exit 2
cat > guidance.py <<'PY'
import sys
from importlib.metadata import version

import torch
from transformers import LlamaConfig, LlamaForCausalLM, logging

V, SCALE, TEXTS, TOKENS = 64, 1.7, 5, 20
torch.set_num_threads(1), logging.set_verbosity_error()


def tiny(seed, layers):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=V, hidden_size=32, intermediate_size=32, num_hidden_layers=layers,
        num_attention_heads=2, max_position_embeddings=64, initializer_range=0.5, pad_token_id=0,
        bos_token_id=None, eos_token_id=None, tie_word_embeddings=False,
    )).eval()


@torch.no_grad()
def by_definition(ids):
    """Greedy: the log-probabilities without the prompt, plus the scaled difference to those with
    it. Without the prompt means: from its last token on."""
    start = ids.shape[1] - 1
    for _ in range(TOKENS):
        given = model(ids).logits[0, -1].log_softmax(-1)
        free = model(ids[:, start:]).logits[0, -1].log_softmax(-1)
        best = (free + SCALE * (given - free)).argmax()
        ids = torch.cat([ids, best.view(1, 1)], 1)
    return ids


def generated(ids, **more):
    options = dict(attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS)
    return model.generate(ids, **options, **more)


def equal(scale, way):
    """How many texts are those of the definition; without guidance, those without drafts."""
    count = 0
    for seed in range(TEXTS):
        ids = torch.randint(1, V, (1, 6), generator=torch.Generator().manual_seed(seed))
        right = by_definition(ids) if scale else generated(ids)
        try:
            count += generated(ids, guidance_scale=scale, **way).equal(right)
        except IndexError:
            return "IndexError"
    return count


print("transformers", version("transformers"), "torch", version("torch"))
model, draft = tiny(1, 2), tiny(2, 1)
ways = {
    "plain": {},
    "a draft model": dict(assistant_model=draft),
    "the model itself": dict(assistant_model=model),
    "prompt lookup": dict(prompt_lookup_num_tokens=4),
    "early exit": dict(assistant_early_exit=1),
}
print(f"drafts            equal texts of {TEXTS}: with guidance  without")
found = {name: (equal(SCALE, way), equal(None, way)) for name, way in ways.items()}
for name, (guided, without) in found.items():
    print(f"{name:16s}  {guided!s:>31s}  {without:7d}")
as_described = found["plain"] == (TEXTS, TEXTS) and found["early exit"] == ("IndexError", TEXTS)
for name in ("a draft model", "the model itself", "prompt lookup"):
    as_described &= found[name][0] < TEXTS / 2 and found[name][1] == TEXTS
print("as described: with drafts the guided text is another" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python guidance.py
