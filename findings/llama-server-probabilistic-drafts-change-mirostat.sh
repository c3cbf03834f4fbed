#!/usr/bin/env bash
# Guess: llama.cpp's probabilistic drafts (spec-draft-sampling) keep the distribution of whatever
#   samplers are set, as its usual drafts do.
# So it is: not with mirostat 2, whose truncation follows the tokens before. With probabilistic
#   drafts the third and fourth token of a text have another distribution than without, by far more
#   than chance; the first ones do not differ yet. With the usual drafts, which are compared with
#   the target's own draw, nothing differs, and without mirostat probabilistic drafts are right, too.
# Versions: llama.cpp's server in xllamacpp 2026.10.11549, numpy 2.4.6; 2026-11-28, x86-64 CPU.
# Output seen:
#   xllamacpp 2026.10.11549
#   difference from other seeds without drafts, standard deviations from chance, by token
#   temperature 1  no drafts        -0.8     0.5    -0.2    -0.2
#   temperature 1  usual drafts     -0.8    -0.3    -1.0    -0.6
#   temperature 1  probabilistic    -0.7    -1.2    -0.4     0.2
#   mirostat 2     no drafts        -0.6    -1.1    -0.7     0.4
#   mirostat 2     usual drafts     -0.1    -0.8    -0.5     1.1
#   mirostat 2     probabilistic     0.3     0.4    10.5    10.4
#   as described: mirostat is changed
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.4.6 || exit 2
cat > surprise.py <<'PY'
import sys
from importlib.metadata import version

import gguf
import numpy as np
import xllamacpp

WIDTH, TEXTS, PLACE, SIZE = 64, 3000, 3, 15
TOKENS = ["<e>", *"abcdefghijklmno"]
SIMPLE = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE


def write(path, seed):
    """A random Llama of one layer with 16 tokens."""
    random, w = np.random.default_rng(seed), gguf.GGUFWriter(path, "llama")
    w.add_vocab_size(16), w.add_context_length(256), w.add_embedding_length(WIDTH)
    w.add_block_count(1), w.add_feed_forward_length(WIDTH), w.add_head_count(2)
    w.add_layer_norm_rms_eps(1e-5), w.add_rope_dimension_count(WIDTH // 2)
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre("gpt-2"), w.add_token_list(TOKENS)
    w.add_token_types([3] + [1] * 15), w.add_array("tokenizer.ggml.merges", ["a b"])
    w.add_eos_token_id(0), w.add_add_bos_token(False)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        w.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    names = [f"blk.0.attn_{part}" for part in ("q", "k", "v", "output")]
    names += [f"blk.0.ffn_{part}" for part in ("gate", "up", "down")]
    for name in [*names, "token_embd", "output"]:
        rows = 16 if name in ("token_embd", "output") else WIDTH
        values = random.standard_normal((rows, WIDTH)).astype(np.float32) / 4
        w.add_tensor(f"{name}.weight", values)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def server(drafts=False, probabilistic=False):
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = "target.gguf", 256, 1
    params.warmup, params.verbosity, params.fit_params = False, 0, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    if drafts:
        params.speculative.types, draft = [SIMPLE], params.speculative.draft
        draft.mparams.path, draft.n_max, draft.probabilistic = "draft.gguf", 4, probabilistic
    return xllamacpp.Server(params)


def counts(where, first_seed, fields):
    """How often each token comes at each of the first places, over many seeds."""
    found = np.zeros((PLACE + 1, SIZE))
    body = {"prompt": [3, 5, 3, 5, 3, 1], "n_predict": 6, "temperature": 1.0, "ignore_eos": True}
    for seed in range(first_seed, first_seed + TEXTS):
        answer = where.handle_completions(body | {"seed": seed, "cache_prompt": False} | fields)
        for place, letter in enumerate(answer["choices"][0]["text"][: PLACE + 1]):
            found[place, ord(letter) - ord("a")] += 1
    return found


def excess(a, b):
    """The G statistic of two rows of counts, in standard deviations above its mean."""
    seen = a + b >= 10
    rows = np.array([[*row[seen], row[~seen].sum()] for row in (a, b)])
    rows = rows[:, rows.sum(axis=0) > 0]
    expected = np.outer(rows.sum(axis=1), rows.sum(axis=0)) / rows.sum()
    g = 2 * (rows * np.log(np.maximum(rows, 1e-9) / expected)).sum()
    freedom = max(rows.shape[1] - 1, 1)
    return float((g - freedom) / np.sqrt(2 * freedom))


write("target.gguf", 1), write("draft.gguf", 2)
print("xllamacpp", version("xllamacpp"))
plain, usual, judged = server(), server(drafts=True), server(drafts=True, probabilistic=True)
mirostat, found = {"mirostat": 2, "mirostat_tau": 1.5, "mirostat_eta": 1.0}, {}
for name, fields in (("temperature 1", {}), ("mirostat 2", mirostat)):
    own = counts(plain, 0, fields)
    others = (plain, usual, judged)
    seeds = (10**5, 2 * 10**5, 3 * 10**5)
    for kind, where, seed in zip(("no drafts", "usual drafts", "probabilistic"), others, seeds):
        tokens = counts(where, seed, fields)
        found[name, kind] = [excess(mine, theirs) for mine, theirs in zip(own, tokens)]
print("difference from other seeds without drafts, standard deviations from chance, by token")
for (name, kind), values in found.items():
    print(f"{name:14s} {kind:14s}", "  ".join(f"{value:6.1f}" for value in values))
wrong = found.pop(("mirostat 2", "probabilistic"))
as_described = max(max(values) for values in found.values()) < 5 and wrong[PLACE] > 8
print("as described: mirostat is changed" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python surprise.py
