#!/usr/bin/env bash
# Guess: greedy text with a draft model is the plain greedy text, or mlx-lm refuses the model.
# So it is: for models with sliding windows (Gemma 3, gpt-oss, Cohere 2, a Llama with such layers)
#   the text is right until it and its drafts fill the window, and another one from there on,
#   without a warning. Rejected drafts are taken out of the cache by trim_prompt_cache. mlx-lm asks
#   once, before the first token, whether the cache can be trimmed; a rotating cache can until it is
#   full. Then trim_prompt_cache does nothing, and rejected drafts stay as keys. With a window that
#   the text does not fill the texts are equal, and also if the draft model is the target, since
#   nothing is rejected then.
# Versions: mlx-lm 0.32.2, mlx 0.32.4, mlx-cpu 0.32.4; 2026-11-28.
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3.12}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  mlx-lm==0.32.2 mlx==0.32.4 mlx-cpu==0.32.4 transformers==5.23.0 || exit 2
cat > window.py <<'PY'
import importlib
import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import generate_step, speculative_generate_step

V, PROMPT, TOKENS, TEXTS, WINDOW = 64, 6, 40, 6, 16
BASE = dict(
    vocab_size=V, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-5, max_position_embeddings=512,
    rope_theta=10000.0, tie_word_embeddings=False,
)
SLIDING = {
    "llama": {"layer_types": ["sliding_attention", "full_attention"]},
    "gemma3_text": {"sliding_window_pattern": 2, "query_pre_attn_scalar": 32},
    "gpt_oss": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "cohere2": {"sliding_window_pattern": 2, "layer_norm_eps": 1e-5, "logit_scale": 1.0,
                "attention_bias": False, "layer_norm_bias": False},
}
mx.set_default_device(mx.cpu)


def noisy(model, size):
    noise = lambda p: p + mx.random.normal(p.shape) * size if p.ndim > 1 else p
    model.update(tree_map(noise, model.parameters()))
    mx.eval(model.parameters())
    return model


def made(name, noise, **more):
    """A model of random weights; the same but for a little noise for each call."""
    module = importlib.import_module("mlx_lm.models." + name)
    mx.random.seed(3)
    config = module.ModelArgs.from_dict(BASE | {"model_type": name} | more)
    return noisy(noisy(module.Model(config), 0.3), noise)


def texts(name, window, draft_noise=0.03):
    """How many texts with drafts are plain ones, where the others differ, accepted drafts."""
    more = SLIDING[name] | {"sliding_window": window}
    target, draft = made(name, 0, **more), made(name, draft_noise, **more)
    same, first, accepted = 0, [], 0
    for seed in range(TEXTS):
        prompt = mx.random.randint(1, V, (PROMPT,), key=mx.random.key(seed))
        plain = [int(token) for token, _ in generate_step(prompt, target, max_tokens=TOKENS)]
        steps = list(speculative_generate_step(prompt, target, draft, num_draft_tokens=3, max_tokens=TOKENS))
        drafted = [int(token) for token, _, _ in steps]
        accepted += sum(from_draft for *_, from_draft in steps)
        same += drafted == plain
        first += [PROMPT + i for i in range(TOKENS) if drafted[i] != plain[i]][:1]
    return same, min(first, default=None), accepted


print("mlx-lm", version("mlx-lm"), "mlx", version("mlx"))
as_described = True
for name in SLIDING:
    wide, narrow, itself = texts(name, 128), texts(name, WINDOW), texts(name, WINDOW, 0.0)
    print(f"{name:12s} texts as without drafts, of {TEXTS}: window 128: {wide[0]} ({wide[2]} accepted), "
          f"window {WINDOW}: {narrow[0]} (first other token at {narrow[1]}), "
          f"window {WINDOW} and the target as its draft: {itself[0]}")
    as_described &= wide[0] == TEXTS == itself[0] and narrow[0] < TEXTS / 2
    as_described &= narrow[1] is not None and narrow[1] >= WINDOW - 3 and 0 < wide[2] < TEXTS * TOKENS * 0.7
print("as described: past the window the text is another one" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python window.py
