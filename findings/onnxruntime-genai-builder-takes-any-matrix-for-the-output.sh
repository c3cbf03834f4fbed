#!/usr/bin/env bash
# Guess: the model builder of onnxruntime-genai exports a Llama whose ONNX logits are the model's, or
#   refuses it.
# So it is: it takes every matrix with as many rows as the vocabulary has tokens for the output matrix,
#   at the place where it meets it. So if the vocabulary is as large as the hidden size, the feed-forward
#   size or the size of all keys, the graph's logits are made of a state in the first layer. The
#   export ends without a warning, and the file runs. All other layers are in the file and are
#   computed for nothing. With one token more it is right. Models that are made small for tests and
#   drafts often have equal sizes.
# Versions: onnxruntime-genai 0.18.0, onnxruntime 1.31.1, onnx 1.23.2, onnx-ir 1.1.0, tokenizers
#   0.23.3, transformers 5.24.0, torch 2.13.0 (CPU), numpy 2.4.6; 2026-11-28.
# Output seen:
#   {'onnxruntime-genai': '0.18.0', 'onnxruntime': '1.31.1', 'onnx-ir': '1.1.0', 'transformers': '5.24.0'}
#   vocabulary 65, hidden 64, feed-forward 96, heads of keys 2: logits differ by 3.4e-06, made of /model/layers.2/final_norm_layernorm/output_0
#   vocabulary 64, hidden 64, feed-forward 96, heads of keys 2: logits differ by 5.5e+00, made of /model/layers.0/post_attention_layernorm/output_0
#   vocabulary 96, hidden 64, feed-forward 96, heads of keys 2: logits differ by 6.0e+00, made of /model/layers.0/post_attention_layernorm/output_0
#   vocabulary 97, hidden 64, feed-forward 96, heads of keys 2: logits differ by 3.8e-06, made of /model/layers.2/final_norm_layernorm/output_0
#   vocabulary 32, hidden 64, feed-forward 96, heads of keys 1: logits differ by 6.0e+00, made of /model/layers.0/post_attention_layernorm/output_0
#   vocabulary 33, hidden 64, feed-forward 96, heads of keys 1: logits differ by 2.3e-06, made of /model/layers.2/final_norm_layernorm/output_0
#   as described
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  onnxruntime-genai==0.18.0 onnxruntime==1.31.1 onnx==1.23.2 onnx-ir==1.1.0 tokenizers==0.23.3 \
  transformers==5.24.0 torch==2.13.0 numpy==2.4.6 || exit 2
cat > output.py <<'PY'
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, logging

logging.set_verbosity_error()
IDS = [[5, 6, 7, 8, 9]]


def exported(vocabulary, hidden, inner, kv_heads):
    """How far the ONNX logits are from the model's, and what the logits are computed from."""
    folder = f"v{vocabulary}h{hidden}i{inner}k{kv_heads}"
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=kv_heads, max_position_embeddings=64,
        initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        tie_word_embeddings=False,
    )).eval()
    model.save_pretrained(folder)
    letters = Tokenizer(models.BPE({chr(48 + token): token for token in range(vocabulary)}, []))
    PreTrainedTokenizerFast(tokenizer_object=letters, eos_token="2").save_pretrained(folder)
    build = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", folder, "-i", folder]
    out = folder + "-onnx"
    subprocess.run(build + ["-o", out, "-p", "fp32", "-e", "cpu"], check=True, capture_output=True)
    session = onnxruntime.InferenceSession(out + "/model.onnx")
    feed = {"input_ids": np.array(IDS), "attention_mask": np.ones((1, len(IDS[0])), np.int64)}
    empty = np.zeros((1, kv_heads, 0, hidden // 2), np.float32)
    feed |= {one.name: empty for one in session.get_inputs() if one.name.startswith("past")}
    with torch.no_grad():
        right = model(torch.tensor(IDS)).logits[0].numpy()
    nodes = onnx.load(out + "/model.onnx", load_external_data=False).graph.node
    source = next(node.input[0] for node in nodes if "logits" in node.output)
    return float(np.abs(session.run(["logits"], feed)[0][0] - right).max()), source


print({name: version(name) for name in ("onnxruntime-genai", "onnxruntime", "onnx-ir", "transformers")})
as_described = True
for sizes, wrong in [  # vocabulary, hidden size, feed-forward size, heads of keys and values
    ((65, 64, 96, 2), False), ((64, 64, 96, 2), True), ((96, 64, 96, 2), True), ((97, 64, 96, 2), False),
    ((32, 64, 96, 1), True), ((33, 64, 96, 1), False),
]:
    distance, source = exported(*sizes)
    print("vocabulary %d, hidden %d, feed-forward %d, heads of keys %d:" % sizes,
          f"logits differ by {distance:.1e}, made of {source}")
    as_described &= (distance > 0.1) == wrong and (distance < 1e-3) != wrong
    as_described &= ("final_norm" in source) != wrong
print("as described" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python output.py
