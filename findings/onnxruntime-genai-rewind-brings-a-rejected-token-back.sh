#!/usr/bin/env bash
# Guess: a Generator of onnxruntime-genai can check drafts: append_tokens them, read the logits, and
#   rewind_to(n) to keep n tokens; the text then goes on as if the others had never been there.
# So it is: token_count() is n then, but the next call of generate_next_token first puts the token
#   back that stood at place n, the first rejected draft, and adds its own after it: n + 2 tokens,
#   and another text. get_logits() after a rewind puts it back, too (n + 1 tokens), and gives the
#   logits after it. If the generator had chosen that token itself, greedily, the text is the same
#   and only the count shows it. append_tokens after a rewind is right, so a window can be rejected
#   by rewinding to n - 1 and appending the last kept token again. And after append_tokens of several
#   tokens get_logits has the last one's only, (1, 1, vocabulary): one pass judges no window.
# Versions: onnxruntime-genai 0.18.0, onnxruntime 1.31.1, onnx 1.23.2, onnx-ir 1.1.0, transformers
#   5.24.0, torch 2.13.0 (CPU), numpy 2.4.6; 2026-11-28.
# Output seen:
#   onnxruntime-genai 0.18.0 onnxruntime 1.31.1
#   6 of 6: tokens that it chose, taken back: text as plain
#   0 of 6: drafts taken back: text as plain
#   6 of 6: drafts taken back: n tokens
#   6 of 6: then one more call: n + 2 tokens, the first is the draft
#   6 of 6: then get_logits: n + 1 tokens, logits after the draft
#   6 of 6: drafts taken back to n - 1, the last one appended: text as plain
#   logits after three appended tokens: {(1, 1, 60)}
#   as described: a rejected token comes back
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  onnxruntime-genai==0.18.0 onnxruntime==1.31.1 onnx==1.23.2 onnx-ir==1.1.0 tokenizers==0.23.3 \
  transformers==5.24.0 torch==2.13.0 numpy==2.4.6 || exit 2
cat > rewind.py <<'PY'
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import onnxruntime_genai
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, logging

V, PROMPT, TOKENS, TEXTS = 60, 8, 24, 6
logging.set_verbosity_error(), torch.manual_seed(1)
LlamaForCausalLM(LlamaConfig(
    vocab_size=V, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.2, pad_token_id=0,
    bos_token_id=1, eos_token_id=2, tie_word_embeddings=False,
)).save_pretrained("llama")
characters = Tokenizer(models.BPE({chr(48 + token): token for token in range(V)}, []))
characters.decoder = decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=characters, eos_token="2").save_pretrained("llama")
build = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", "llama", "-i", "llama"]
subprocess.run(build + ["-o", "onnx", "-p", "fp32", "-e", "cpu"], check=True, capture_output=True)
model = onnxruntime_genai.Model("onnx")


def started(ids):
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=PROMPT + TOKENS + 16)
    generator = onnxruntime_genai.Generator(model, params)
    append(generator, ids)
    return generator


def append(generator, ids):
    generator.append_tokens(np.array([ids], dtype=np.int32))


def text(generator):
    """The text with so many greedy tokens that it has TOKENS after the prompt."""
    while not generator.is_done() and generator.token_count() < PROMPT + TOKENS:
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)]


def logits(generator):
    return np.array(generator.get_logits())[0, -1]


print("onnxruntime-genai", version("onnxruntime-genai"), "onnxruntime", version("onnxruntime"))
counts = dict.fromkeys(
    ("tokens that it chose, taken back: text as plain", "drafts taken back: text as plain",
     "drafts taken back: n tokens", "then one more call: n + 2 tokens, the first is the draft",
     "then get_logits: n + 1 tokens, logits after the draft",
     "drafts taken back to n - 1, the last one appended: text as plain"), 0)
own_chosen, own_drafts, kept, two, read, careful_text = counts
shapes = set()
for seed in range(TEXTS):
    random = np.random.default_rng(seed)
    prompt = random.integers(3, V, PROMPT).tolist()
    plain = text(started(prompt))
    drafts = [3 + (plain[PROMPT] - 2) % (V - 3), *random.integers(3, V, 2).tolist()]  # a wrong first
    chosen = started(prompt)
    for _ in range(10):
        chosen.generate_next_token()
    chosen.rewind_to(PROMPT + 4)
    counts[own_chosen] += text(chosen) == plain

    drafted, asked = started(prompt), started(prompt)
    for generator in (drafted, asked):
        append(generator, drafts)
        shapes.add(tuple(generator.get_logits().shape))
        generator.rewind_to(PROMPT)
    counts[kept] += drafted.token_count() == PROMPT
    drafted.generate_next_token()
    counts[two] += drafted.token_count() == PROMPT + 2 and drafted.get_sequence(0)[PROMPT] == drafts[0]
    counts[own_drafts] += text(drafted) == plain
    after_draft = logits(started([*prompt, drafts[0]]))
    counts[read] += np.abs(logits(asked) - after_draft).max() < 1e-3 and asked.token_count() == PROMPT + 1

    careful = started(prompt)
    append(careful, drafts)
    careful.rewind_to(PROMPT - 1)
    append(careful, prompt[-1:])
    counts[careful_text] += text(careful) == plain
for name, count in counts.items():
    print(f"{count} of {TEXTS}: {name}")
print("logits after three appended tokens:", shapes)
as_described = counts.pop(own_drafts) == 0 and shapes == {(1, 1, V)}
as_described &= set(counts.values()) == {TEXTS}
print("as described: a rejected token comes back" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python rewind.py
