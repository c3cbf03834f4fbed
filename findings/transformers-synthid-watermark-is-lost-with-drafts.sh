#!/usr/bin/env bash
# Guess: a text generated with watermarking_config=SynthIDTextWatermarkingConfig(…) has the watermark,
#   whether or not it was generated with drafts; greedy texts are equal.
# So it is: with drafts the watermark is lost, without a warning. Its logits processor keeps the
#   last tokens itself and takes one more from each call, but is called for every draft token too,
#   by the target and (the same object) by the assistant, and nothing takes rejected tokens back.
#   So the keys belong to other contexts than those that a detector sees. The mean of the g-values,
#   0.5 in a text without watermark, is about 0.5 with an assistant or early exit, and halfway with
#   prompt lookup. Greedy texts differ, too, even if the model drafts for itself. The other
#   watermark, WatermarkingConfig, keeps no state: its greedy texts are equal.
# Versions: transformers 5.24.0 (the newest on PyPI on this day; 5.23.0 does the same), torch 2.13.0
#   (CPU), numpy 2.4.6; 2026-11-28.
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  transformers==5.24.0 torch==2.13.0 numpy==2.4.6 || exit 2
cat > watermark.py <<'PY'
import sys
from importlib.metadata import version

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    SynthIDTextWatermarkingConfig,
    WatermarkingConfig,
    logging,
)

V, TEXTS, TOKENS = 64, 5, 40
torch.set_num_threads(1), logging.set_verbosity_error()


def tiny(seed, layers):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=V, hidden_size=32, intermediate_size=32, num_hidden_layers=layers,
        num_attention_heads=2, max_position_embeddings=128, initializer_range=0.1, pad_token_id=0,
        bos_token_id=None, eos_token_id=None, tie_word_embeddings=False,
    )).eval()


def texts(**more):
    """The generated tokens of each prompt, one seed for each."""
    found = []
    for seed in range(TEXTS):
        torch.manual_seed(seed)
        ids = torch.randint(1, V, (1, 6))
        options = dict(attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS)
        found.append(model.generate(ids, **options, **more)[:, ids.shape[1] :])
    return found


model, draft = tiny(1, 2), tiny(2, 1)
synthid = SynthIDTextWatermarkingConfig(keys=list(range(1000, 1020)), ngram_len=3)
other = WatermarkingConfig(bias=2.5, context_width=1)
detector = synthid.construct_processor(V, "cpu")
ways = {
    "plain": {},
    "a draft model": dict(assistant_model=draft),
    "the model itself": dict(assistant_model=model),
    "early exit": dict(assistant_early_exit=1),
    "prompt lookup": dict(prompt_lookup_num_tokens=4),
}
greedy, sampled = dict(do_sample=False), dict(do_sample=True, top_k=0)


def mean(found):
    return sum(float(detector.compute_g_values(text).float().mean()) for text in found) / TEXTS


def equal(config, way):
    pairs = zip(texts(watermarking_config=config, **greedy, **way), plain[id(config)])
    return sum(one.equal(two) for one, two in pairs)


print("transformers", version("transformers"), "torch", version("torch"))
none = mean(texts(**sampled))
print(f"mean g-value of sampled texts without watermark: {none:.2f}")
plain = {id(config): texts(watermarking_config=config, **greedy) for config in (synthid, other)}
print("drafts            g-value  greedy texts as plain: SynthID  the other watermark")
means, same, stateless = {}, {}, {}
for name, way in ways.items():
    means[name] = mean(texts(watermarking_config=synthid, **sampled, **way))
    same[name], stateless[name] = equal(synthid, way), equal(other, way)
    print(f"{name:16s}  {means[name]:7.2f}  {same[name]:25d} of {TEXTS}", end="")
    print(f"  {stateless[name]} of {TEXTS}")
drafted = [name for name in ways if name != "plain"]
as_described = abs(none - 0.5) < 0.05 and means["plain"] > 0.65
as_described &= all(abs(means[name] - 0.5) < 0.06 for name in drafted[:3])
as_described &= means["plain"] - means["prompt lookup"] > 0.05
as_described &= same["plain"] == TEXTS and all(same[name] < TEXTS / 2 for name in drafted)
as_described &= set(stateless.values()) == {TEXTS}
print("as described: with drafts the watermark is lost" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python watermark.py
