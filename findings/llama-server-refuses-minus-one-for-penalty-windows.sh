#!/usr/bin/env bash
# Guess: a request may set repeat_last_n or dry_penalty_last_n to -1, "as many tokens as the context
#   has". The server's README said so for years, and clients still send it.
# So it is: such a request is refused with status 400 ("Value must be between 0 <= value"). The newest
#   README does not list -1 any more. Other fields take -1: n_keep, seed, top_k. A client that wants
#   a penalty over the whole text has to send a number, such as the context's size.
# Versions: llama.cpp's server in xllamacpp 2026.10.11549; 2026-11-28, x86-64 CPU.
# Output seen:
#   xllamacpp 2026.10.11549
#   repeat_last_n        -1: Field 'repeat_last_n': Value must be between 0 <= value <= 2147483647, but got -1
#   dry_penalty_last_n   -1: Field 'dry_penalty_last_n': Value must be between 0 <= value <= 2147483647, but got -1
#   n_keep               -1: taken
#   seed                 -1: taken
#   top_k                -1: taken
#   as described
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.4.6 || exit 2
cat > ask.py <<'PY'
import sys
from importlib.metadata import version

import gguf
import numpy as np
import xllamacpp

WIDTH, TOKENS = 32, ["<e>", *"abcdefghijklmno"]


def write(path):
    """A random Llama of one layer with 16 tokens."""
    random, w = np.random.default_rng(7), gguf.GGUFWriter(path, "llama")
    w.add_vocab_size(16), w.add_context_length(128), w.add_embedding_length(WIDTH)
    w.add_block_count(1), w.add_feed_forward_length(WIDTH), w.add_head_count(2)
    w.add_layer_norm_rms_eps(1e-5), w.add_rope_dimension_count(WIDTH // 2)
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre("gpt-2"), w.add_token_list(TOKENS)
    w.add_token_types([3] + [1] * 15), w.add_array("tokenizer.ggml.merges", ["a b"])
    w.add_eos_token_id(0), w.add_add_bos_token(False)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        w.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    square = ("q", "k", "v", "output")
    names = [f"blk.0.attn_{part}" for part in square]
    names += [f"blk.0.ffn_{part}" for part in ("gate", "up", "down")]
    for name in [*names, "token_embd", "output"]:
        rows = 16 if name in ("token_embd", "output") else WIDTH
        values = random.standard_normal((rows, WIDTH)).astype(np.float32) / 4
        w.add_tensor(f"{name}.weight", values)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


write("tiny.gguf")
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = "tiny.gguf", 128, 1
params.warmup, params.verbosity, params.fit_params = False, 0, False
server = xllamacpp.Server(params)
print("xllamacpp", version("xllamacpp"))
refused = {}
for field in ("repeat_last_n", "dry_penalty_last_n", "n_keep", "seed", "top_k"):
    body = {"prompt": [1, 2, 3], "n_predict": 4, "temperature": 1.0, field: -1}
    answer = server.handle_completions(body)
    refused[field] = "error" in answer
    print(f"{field:20s} -1:", answer["error"]["message"] if refused[field] else "taken")
expected = ["repeat_last_n", "dry_penalty_last_n"]
as_described = [field for field, no in refused.items() if no] == expected
print("as described" if as_described else "CHANGED")
sys.exit(not as_described)
PY
venv/bin/python ask.py
