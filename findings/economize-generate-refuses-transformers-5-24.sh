#!/usr/bin/env bash
# Guess: economize 0.3.2, whose package asks for transformers 5.0 or newer, decodes with the newest.
# So it is: with transformers 5.24.0 every call of economize.integrations.generate.generate ends with
#   a ConfigError, since generate() there hands its decoding loops a keyword named "cache", and
#   economize refuses the inputs that it does not know. With transformers 5.23.0 it decodes.
# Versions: economize 0.3.2, transformers 5.24.0 and 5.23.0, torch 2.13.0 (CPU); 2026-11-28.
# Output seen:
#   economize 0.3.2 transformers 5.23.0 -> 1 tokens
#   economize 0.3.2 transformers 5.24.0 -> ConfigError: economize generate cannot forward the model inputs ['cache']; pass input_ids only
#   as described: it decodes with 5.23.0 and refuses with 5.24.0
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
cat > tiny.py <<'PY'
from importlib.metadata import version

import economize
import torch
from economize.errors import ConfigError
from economize.integrations.generate import generate
from economize.techniques.lookup import LookupConfig
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
    num_attention_heads=2, max_position_embeddings=64, eos_token_id=0, bos_token_id=None,
)).eval()
ids = torch.tensor([[3, 5, 3, 5, 3]])
settings = GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=0, pad_token_id=0)
try:
    text = generate(
        economize.apply(model, LookupConfig()), ids, attention_mask=torch.ones_like(ids),
        generation_config=settings, decoding=economize.DecodeConfig(cycle_length=4, verifier=None),
    )
    said = f"{text.shape[1] - ids.shape[1]} tokens"
except ConfigError as error:
    said = f"ConfigError: {error}"
print("economize", version("economize"), "transformers", version("transformers"), "->", said)
PY
said=""
for version in 5.23.0 5.24.0; do
  venv/bin/python -m pip install --quiet --only-binary :all: \
    economize==0.3.2 torch==2.13.0 transformers==$version numpy || exit 2
  said+=$(venv/bin/python tiny.py 2>/dev/null)$'\n'
done
printf '%s' "$said"
if [[ $said =~ 5\.23\.0\ -\>\ [0-9]+\ tokens ]] && [[ $said =~ 5\.24\.0\ -\>\ ConfigError.*cache ]]; then
  echo "as described: it decodes with 5.23.0 and refuses with 5.24.0"
else
  echo CHANGED; exit 1
fi
