#!/usr/bin/env bash
# Guess: a Llama that transformers 5 has saved is the same model in mlx-lm.
# So it is: transformers 5 writes the base of the rotary embedding as rope_parameters.rope_theta in
#   config.json. mlx-lm's Llama reads the older place, rope_theta, alone, and takes 10,000 where
#   there is none, without a warning. A model with another base (Llama 3: 500,000; SmolLM2:
#   100,000) runs with wrong rotations: its texts look fluent and are others. With rope_theta in
#   config.json as well, the logits are right. Some other models of mlx-lm read both places.
# Versions: mlx-lm 0.32.2, mlx 0.32.4, transformers 5.23.0; 2026-11-28.
# Output seen:
#   mlx-lm 0.32.2 mlx 0.32.4 transformers 5.23.0
#   config.json: {'rope_theta': None, 'rope_parameters': {'rope_theta': 500000.0, 'rope_type': 'default'}}
#   logits differ by 6.128640651702881 with the config as transformers 5 writes it
#   logits differ by 0.0 with rope_theta added
#   as described: rope_parameters is ignored
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3.12}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  mlx-lm==0.32.2 mlx==0.32.4 mlx-cpu==0.32.4 transformers==5.23.0 || exit 2
cat > rope.py <<'PY'
import json
import sys
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.utils import load_model
from transformers import LlamaConfig

print(*(f"{name} {version(name)}" for name in ("mlx-lm", "mlx", "transformers")))
folder, base = Path("model"), 500_000.0
LlamaConfig(
    vocab_size=64,
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    rope_parameters={"rope_type": "default", "rope_theta": base},
    architectures=["LlamaForCausalLM"],
).save_pretrained(folder)
written = json.loads((folder / "config.json").read_text())
print("config.json:", {key: written.get(key) for key in ("rope_theta", "rope_parameters")})
mx.random.seed(0)
right = Model(ModelArgs.from_dict(written | {"rope_theta": base}))
for name, value in tree_flatten(right.parameters()):
    if "norm" not in name:
        right.load_weights([(name, mx.random.normal(value.shape) * 0.2)], strict=False)
mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(right.parameters())))
text = mx.array([list(range(1, 33))])
expected = right(text)


def difference():
    """The largest difference of the saved model's logits from the expected ones."""
    model, _ = load_model(folder)
    return float(mx.abs(model(text) - expected).max())


as_written = difference()
(folder / "config.json").write_text(json.dumps(written | {"rope_theta": base}))
with_both = difference()
print("logits differ by", as_written, "with the config as transformers 5 writes it")
print("logits differ by", with_both, "with rope_theta added")
as_described = written.get("rope_theta") is None and as_written > 0.1 and with_both < 1e-4
print("as described: rope_parameters is ignored" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python rope.py
