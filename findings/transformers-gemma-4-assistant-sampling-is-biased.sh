#!/usr/bin/env bash
# Guess: with do_sample=True, generate(assistant_model=…) keeps the target's distribution, whatever
#   the assistant drafts.
# So it is: not with an assistant of Gemma 4. It drafts its most probable token, but the token is
#   judged as if it had been drawn from q, its distribution: accepted with probability min(1, p /
#   q), else replaced by a draw from max(p - q, 0). So the draft comes out with probability min(1,
#   p / q) where it should with p. (A draft chosen without chance has to be accepted with p, else
#   replaced by a draw from p without it.) Below, the text is far from the target's distribution,
#   and is what that rule predicts. The first token, which is never drafted, and plain sampling
#   are right; greedy decoding is not affected. Reported as issue 47932 of
#   huggingface/transformers, now closed; pull request 47961, which would have mended it, was
#   closed without a merge.
# Versions: transformers 5.24.0 (the newest on PyPI on this day), torch 2.13.0 (CPU), numpy 2.4.6;
#   2026-11-28.
# Output seen:
#   transformers 5.24.0 torch 2.13.0+cpu
#   total variation over 4000 draws of two tokens (chance: about 0.030)
#     plain, from the target             0.028
#     with an assistant, from the target 0.255
#        its first token alone           0.014
#        from what the rule predicts     0.026
#     the rule's, from the target, exact 0.263
#   greedy text with the assistant is the plain greedy text: True
#   as described: sampling with the assistant is biased
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  transformers==5.24.0 torch==2.13.0 numpy==2.4.6 || exit 2
cat > sample.py <<'PY'
import sys
from importlib.metadata import version

import torch
from transformers import (
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
)

V, H, DRAWS = 6, 16, 4000
IDS = torch.tensor([[1, 0, 1, 3]])
SIZES = dict(
    vocab_size=V, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, head_dim=8, global_head_dim=8, sliding_window=64, initializer_range=0.3,
    layer_types=["sliding_attention", "full_attention"], vocab_size_per_layer_input=0,
    hidden_size_per_layer_input=0, max_position_embeddings=64, pad_token_id=0, bos_token_id=None,
    eos_token_id=None,
)
torch.manual_seed(2)
torch.set_num_threads(1)
own = Gemma4TextConfig(hidden_size=H, num_kv_shared_layers=0, tie_word_embeddings=False, **SIZES)
target = Gemma4ForCausalLM(own).eval()
text = Gemma4TextConfig(hidden_size=12, num_kv_shared_layers=2, **SIZES)
config = Gemma4AssistantConfig(text_config=text, backbone_hidden_size=H)
assistant = Gemma4AssistantForCausalLM(config).eval()
assistant.generation_config.num_assistant_tokens = 1


@torch.no_grad()
def exact():
    """Probabilities of each pair of tokens: the target's, and those of the rule described above."""
    out = target(IDS, output_hidden_states=True, return_shared_kv_states=True, use_cache=True)
    state, first = out.hidden_states[-1][:, -1:], out.logits[0, -1].softmax(-1)
    right, wrong = torch.zeros(V, V), torch.zeros(V, V)
    for x in range(V):
        token = torch.tensor([[x]])
        p = target(torch.cat([IDS, token], 1)).logits[0, -1].softmax(-1)
        drafted = assistant(
            inputs_embeds=torch.cat([target.get_input_embeddings()(token), state], -1),
            position_ids=torch.tensor([[IDS.shape[1]]]), shared_kv_states=out.shared_kv_states,
        )
        q = drafted.logits[0, -1].softmax(-1)
        draft, rest = q.argmax(), (p - q).clamp(min=0)
        accepted = (p[draft] / q[draft]).clamp(max=1)
        second = (1 - accepted) * rest / rest.sum()
        second[draft] += accepted
        right[x], wrong[x] = first[x] * p, first[x] * second
    return right, wrong


def generated(**more):
    return target.generate(IDS, attention_mask=torch.ones_like(IDS), **more)


def sampled(first_seed, **more):
    """Frequencies of each pair of tokens over many seeds; generate takes one text at a time."""
    counts = torch.zeros(V, V)
    for seed in range(first_seed, first_seed + DRAWS):
        torch.manual_seed(seed)
        ids = generated(do_sample=True, top_k=0, max_new_tokens=3, **more)
        counts[ids[0, IDS.shape[1]], ids[0, IDS.shape[1] + 1]] += 1
    return counts / DRAWS


def distance(a, b):
    return float((a - b).abs().sum() / 2)


print("transformers", version("transformers"), "torch", version("torch"))
right, wrong = exact()
plain, drafted = sampled(0), sampled(10**6, assistant_model=assistant)
chance = float((2 * right * (1 - right) / torch.pi / DRAWS).sqrt().sum() / 2)
print(f"total variation over {DRAWS} draws of two tokens (chance: about {chance:.3f})")
print(f"  plain, from the target             {distance(plain, right):.3f}")
print(f"  with an assistant, from the target {distance(drafted, right):.3f}")
print(f"     its first token alone           {distance(drafted.sum(1), right.sum(1)):.3f}")
print(f"     from what the rule predicts     {distance(drafted, wrong):.3f}")
print(f"  the rule's, from the target, exact {distance(wrong, right):.3f}")
greedy = dict(do_sample=False, max_new_tokens=24)
same = generated(**greedy).equal(generated(assistant_model=assistant, **greedy))
print("greedy text with the assistant is the plain greedy text:", same)
near = max(distance(plain, right), distance(drafted.sum(1), right.sum(1)), distance(drafted, wrong))
as_described = same and near < 2 * chance and distance(drafted, right) > 5 * chance
print("as described: sampling with the assistant is biased" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python sample.py
