#!/usr/bin/env bash
# Guess: drafts change which random number decides which token, so a sampled text with a seed is
#   another with drafts than without; only its distribution is the same.
# So it is: in llama.cpp's server it is the same text, letter for letter, whatever is drafted. The
#   target draws its own token at every place, with the same random numbers as without drafts, and
#   a draft is kept if it is that token. So plain text and text with drafts can be compared for a
#   seed, not only greedy text. It is so for a stateful sampler (mirostat), penalties and a grammar,
#   too. Only with probabilistic drafts (spec-draft-sampling), which are judged by p / q, is it
#   another text.
# Versions: llama.cpp's server in xllamacpp 2026.10.11549; 2026-11-28, x86-64 CPU.
# Output seen:
#   xllamacpp 2026.10.11549
#   texts of 20 that are those without drafts (accepted draft tokens)
#   temperature 1       drafts 20 (290)  probabilistic drafts  0 (274)
#   top-p 0.9           drafts 20 (293)  probabilistic drafts  0 (271)
#   repetition penalty  drafts 20 (214)  probabilistic drafts  0 (269)
#   mirostat 2          drafts 20 (289)  probabilistic drafts  0 (267)
#   a grammar           drafts 20 (25)  probabilistic drafts  0 (92)
#   as described: a seed's text is the same with drafts
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.4.6 || exit 2
cat > seeds.py <<'PY'
import sys
from importlib.metadata import version

import gguf
import numpy as np
import xllamacpp

WIDTH, TOKENS, SEEDS = 32, ["<e>", *"abcdefghijklmno"], 20
SIMPLE = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE


def write(path, noise):
    """A random Llama of one layer with 16 tokens; noise makes another one that is near it."""
    random, other = np.random.default_rng(7), np.random.default_rng(8)
    w = gguf.GGUFWriter(path, "llama")
    w.add_vocab_size(16), w.add_context_length(128), w.add_embedding_length(WIDTH)
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
        shape = (16 if name in ("token_embd", "output") else WIDTH, WIDTH)
        values = random.standard_normal(shape) + noise * other.standard_normal(shape)
        w.add_tensor(f"{name}.weight", (values / 4).astype(np.float32))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def server(drafts=False, probabilistic=False):
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = "target.gguf", 128, 1
    params.warmup, params.verbosity, params.fit_params = False, 0, False
    if drafts:
        params.speculative.types, draft = [SIMPLE], params.speculative.draft
        draft.mparams.path, draft.n_max, draft.probabilistic = "draft.gguf", 4, probabilistic
    return xllamacpp.Server(params)


def texts(where, **fields):
    """The text of each seed, and how many draft tokens were accepted in all."""
    found, accepted = [], 0
    body = {"prompt": [3, 5, 3, 5, 3, 1], "n_predict": 24, "temperature": 1.0, "ignore_eos": True}
    for seed in range(SEEDS):
        answer = where.handle_completions(body | {"seed": seed, "cache_prompt": False} | fields)
        found.append(answer["choices"][0]["text"])
        accepted += answer["timings"].get("draft_n_accepted", 0)
    return found, accepted


write("target.gguf", 0.0), write("draft.gguf", 0.3)
print("xllamacpp", version("xllamacpp"))
plain, drafted, judged = server(), server(drafts=True), server(drafts=True, probabilistic=True)
ways = {
    "temperature 1": {},
    "top-p 0.9": {"top_p": 0.9},
    "repetition penalty": {"repeat_penalty": 1.3},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 2.0},
    "a grammar": {"grammar": "root ::= [a-f]*"},
}
print(f"texts of {SEEDS} that are those without drafts (accepted draft tokens)")
as_described = True
for name, fields in ways.items():
    own, (same, accepted) = texts(plain, **fields)[0], texts(drafted, **fields)
    other, kept = texts(judged, **fields)
    equal, others = (sum(map(str.__eq__, own, found)) for found in (same, other))
    print(f"{name:18s}  drafts {equal:2d} ({accepted})  probabilistic drafts {others:2d} ({kept})")
    as_described &= equal == SEEDS and others < SEEDS / 2
    as_described &= len(set(own)) > SEEDS / 2 and accepted > SEEDS
print("as described: a seed's text is the same with drafts" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python seeds.py
