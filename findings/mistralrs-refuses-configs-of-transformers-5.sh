#!/usr/bin/env bash
# Guess: mistralrs loads a Llama in the Hub's layout whose config.json a current transformers wrote.
# So it is: transformers 5 writes the rotary base as rope_parameters.rope_theta, and mistralrs reads
#   rope_theta at the top level only: "missing field `rope_theta`". With that field added, the same
#   folder loads.
# Versions: mistralrs 0.9.5 (CPU), transformers 5.23.0, safetensors 0.8.0; 2026-11-28.
# Output seen:
#   mistralrs 0.9.5 transformers 5.23.0
#   config.json has {'rope_parameters': {'rope_theta': 10000.0, 'rope_type': 'default'}}
#   as written: missing field `rope_theta` at line 32 column 1
#   with rope_theta added: it loads
#   as described
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  mistralrs==0.9.5 transformers==5.23.0 safetensors==0.8.0 tokenizers==0.23.3 numpy || exit 2
cat > tiny.py <<'PY'
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from mistralrs import Architecture, Runner, Which
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, PreTrainedTokenizerFast

V, H, folder = 8, 64, Path("tiny")
config = LlamaConfig(
    vocab_size=V, hidden_size=H, intermediate_size=H, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=0,
    tie_word_embeddings=False, architectures=["LlamaForCausalLM"], dtype="float32",
)
config.save_pretrained(folder)
words = Tokenizer(models.BPE({"<e>": 0} | {chr(96 + i): i for i in range(1, V)}, []))
words.decoder = decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<e>").save_pretrained(folder)
random = np.random.default_rng(0)
shapes = {"model.embed_tokens": (V, H), "lm_head": (V, H)}
names = [f"self_attn.{one}_proj" for one in "qkvo"] + [f"mlp.{one}_proj" for one in ("gate", "up", "down")]
shapes |= {f"model.layers.0.{name}": (H, H) for name in names}
norms = ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm")
shapes |= {name: (H,) for name in norms}
weights = {f"{n}.weight": random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
save_file(weights, folder / "model.safetensors", {"format": "pt"})


def loaded():
    try:
        Runner(which=Which.Plain(model_id=str(folder.resolve()), arch=Architecture.Llama))
    except ValueError as error:
        return str(error).split("\n")[0]
    return "it loads"


print("mistralrs", version("mistralrs"), "transformers", version("transformers"))
path = folder / "config.json"
written = json.loads(path.read_text())
print("config.json has", {name: written[name] for name in written if "rope" in name})
as_written = loaded()
print("as written:", as_written)
path.write_text(json.dumps(written | {"rope_theta": written["rope_parameters"]["rope_theta"]}))
with_field = loaded()
print("with rope_theta added:", with_field)
as_described = "missing field `rope_theta`" in as_written and with_field == "it loads"
print("as described" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python tiny.py
