#!/usr/bin/env bash
# Guess: include_prompt_in_result of ctranslate2's Generator decides whether the result begins with
#   the prompt, and nothing else.
# So it is: it decides what the penalties see. With it (the default) repetition_penalty and
#   no_repeat_ngram_size look at prompt and text, though not at the prompt's first token; without it
#   they look at the text alone: the same prompt and options give another greedy text. static_prompt,
#   which is never shown, is not seen either. And max_length counts the prompt's tokens, but its
#   first, with it, and not without it. Without penalties the texts are equal. So before a text of
#   ctranslate2 is compared with another engine's, this option has to be known.
# Versions: ctranslate2 4.8.5, numpy 2.4.6; 2026-11-28.
# Output seen:
#   ctranslate2 4.8.5
#   no penalty: 8 of 8 texts equal; with the prompt shown 8 use a token of it, else 8; static prompt as hidden: True; lengths differ by {1}
#   {'repetition_penalty': 1.5}: 0 of 8 texts equal; with the prompt shown 6 use a token of it, else 8; static prompt as hidden: True; lengths differ by {1}
#   {'no_repeat_ngram_size': 1}: 0 of 8 texts equal; with the prompt shown 0 use a token of it, else 8; static prompt as hidden: True; lengths differ by {1}
#   as described: penalties see a prompt that is shown
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: ctranslate2==4.8.5 numpy==2.4.6 || exit 2
cat > shown.py <<'PY'
import sys
from importlib.metadata import version

import ctranslate2
import numpy as np
from ctranslate2.specs import Activation, TransformerDecoderModelSpec

V, H, HEADS, LAYERS, PROMPT, TOKENS, TEXTS = 60, 64, 2, 2, 12, 30, 8
random = np.random.default_rng(1)


def matrix(spec, *shape):
    spec.weight = (random.standard_normal(shape) * 0.2).astype(np.float32)


def norm(spec):
    spec.gamma = np.ones(H, np.float32)


spec = TransformerDecoderModelSpec.from_config(
    LAYERS, HEADS, activation=Activation.SWISH, pre_norm=True, ffn_glu=True, rms_norm=True,
    rotary_dim=0, rotary_interleave=False, num_heads_kv=HEADS,
)
spec.decoder.scale_embeddings = False
matrix(spec.decoder.embeddings, V, H), matrix(spec.decoder.projection, V, H)
norm(spec.decoder.layer_norm)
for layer in spec.decoder.layer:
    norm(layer.self_attention.layer_norm), norm(layer.ffn.layer_norm)
    matrix(layer.self_attention.linear[0], 3 * H, H), matrix(layer.self_attention.linear[1], H, H)
    for part in (layer.ffn.linear_0, layer.ffn.linear_0_noact, layer.ffn.linear_1):
        matrix(part, H, H)
spec.register_vocabulary([f"t{token}" for token in range(V)])
spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = "t0", "t1", "t2"
spec.config.layer_norm_epsilon = 1e-6
spec.validate(), spec.save(".")
generator = ctranslate2.Generator(".", compute_type="float32", inter_threads=1, intra_threads=1)


def text(prompt, shown, first=0, **options):
    """The greedy text after the prompt, of which the first tokens may be a static prompt."""
    if first:
        options["static_prompt"] = prompt[:first]
    result = generator.generate_batch(
        [prompt[first:]], include_prompt_in_result=shown, sampling_topk=1, end_token=[],
        max_length=TOKENS + PROMPT * shown, **options,
    )
    return result[0].sequences[0][PROMPT * shown :]


PROMPTS = [[f"t{token}" for token in random.integers(3, V, PROMPT)] for _ in range(TEXTS)]
print("ctranslate2", version("ctranslate2"))
as_described = True
for options in ({}, {"repetition_penalty": 1.5}, {"no_repeat_ngram_size": 1}):
    shown = [text(prompt, True, **options) for prompt in PROMPTS]
    hidden = [text(prompt, False, **options) for prompt in PROMPTS]
    static = [text(prompt, False, 6, **options) for prompt in PROMPTS]
    pairs = list(zip(shown, hidden, PROMPTS))
    same = sum(one[:TOKENS] == other[:TOKENS] for one, other, _ in pairs)
    repeats = [sum(bool(set(one[index]) & set(one[2][1:])) for one in pairs) for index in (0, 1)]
    lengths = {len(one) - len(other) for one, other, _ in pairs}
    print(f"{options or 'no penalty'}: {same} of {TEXTS} texts equal; with the prompt shown {repeats[0]} "
          f"use a token of it, else {repeats[1]}; static prompt as hidden: {static == hidden}; "
          f"lengths differ by {lengths}")
    as_described &= same == TEXTS if not options else same < TEXTS / 2
    as_described &= static == hidden and repeats[1] == TEXTS and lengths == {1}
    as_described &= "no_repeat_ngram_size" not in options or repeats[0] == 0
print("as described: penalties see a prompt that is shown" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python shown.py
