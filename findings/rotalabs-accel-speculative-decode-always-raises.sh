#!/usr/bin/env bash
# Guess: rotalabs_accel.speculative.speculative_decode decodes a prompt, as its documentation's
#   example does.
# So it is: every call ends with a TypeError before the first draft. Its helper draft_tokens calls
#   sample_from_logits(…, use_sampling=…), and that function takes no such argument. Only
#   functions of a single position, such as rejection_sample, can be used.
# Versions: rotalabs-accel 1.1.1, transformers 5.23.0, torch 2.13.0 (CPU); 2026-11-28.
# Output seen:
#   rotalabs-accel 1.1.1 torch 2.13.0+cpu
#   sample_from_logits takes ['logits', 'temperature', 'top_k', 'top_p', 'min_tokens_to_keep']
#   speculative_decode: sample_from_logits() got an unexpected keyword argument 'use_sampling'
#   as described: it always raises
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  rotalabs-accel==1.1.1 torch==2.13.0 transformers==5.23.0 numpy tokenizers || exit 2
cat > tiny.py <<'PY'
import inspect
import sys
from importlib.metadata import version

import torch
from rotalabs_accel.speculative import SpeculativeConfig, core, speculative_decode
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

words = Tokenizer(models.WordLevel({"<e>": 0, "a": 1, "b": 2, "c": 3}, unk_token="<e>"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<e>")


def tiny(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=4, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=64, eos_token_id=0, bos_token_id=None,
    )).eval()


print("rotalabs-accel", version("rotalabs-accel"), "torch", version("torch"))
print("sample_from_logits takes", list(inspect.signature(core.sample_from_logits).parameters))
config, said = SpeculativeConfig(max_new_tokens=4), "no error"
try:
    speculative_decode(tiny(1), tiny(2), tokenizer, "a", config, torch.device("cpu"))
except TypeError as error:
    said = str(error)
print("speculative_decode:", said)
as_described = "use_sampling" in said
print("as described: it always raises" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python tiny.py
