#!/usr/bin/env bash
# Guess: in generate(assistant_model=…) an assistant of Gemma 4, which has no keys and values of its
#   own, attends to the target's for the text so far, and to nothing else.
# So it is: before the first draft, and after an accepted one, its keys end before the last token of
#   the text, which the target has not read yet. After a rejected draft there is one more: the
#   rejected draft's key, at the place of the token that replaced it. So the next draft depends
#   on a token that is not in the text, and the logits are not those of the same text given as a
#   prompt. Greedy text stays right, since the target judges each draft; only the drafts change.
# Versions: transformers 5.24.0 (the newest on PyPI on this day), torch 2.13.0 (CPU), numpy 2.4.6;
#   2026-11-28.
# Output seen:
#   transformers 5.24.0 torch 2.13.0+cpu
#   tokens  keys  draft before  logits differ from the text's  with the rejected draft's key
#        5     4  none                                0.0e+00
#        6     6  rejected                            5.3e-01                       4.8e-07
#        8     7  accepted                            1.8e-07
#       10     9  accepted                            5.4e-07
#       11    11  rejected                            2.8e-02                       7.2e-07
#       12    12  rejected                            4.5e-01                       1.7e-06
#       14    13  accepted                            4.8e-07
#       15    15  rejected                            5.6e-02                       1.1e-06
#       16    16  rejected                            6.4e-01                       6.6e-07
#       18    17  accepted                            9.5e-07
#       19    19  rejected                            1.3e-02                       4.8e-07
#       20    20  rejected                            5.8e-01                       8.3e-07
#       22    21  accepted                            3.6e-07
#       24    23  accepted                            6.0e-07
#       25    25  rejected                            4.6e-02                       3.9e-07
#   greedy text with the assistant is the plain greedy text: True
#   as described: after a rejection, one key too many
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  transformers==5.24.0 torch==2.13.0 numpy==2.4.6 || exit 2
cat > keys.py <<'PY'
import sys
from importlib.metadata import version

import torch
from transformers import (
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
)

V, H = 6, 16
IDS = torch.tensor([[1, 0, 1, 3]])
SIZES = dict(
    vocab_size=V, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, head_dim=8, global_head_dim=8, sliding_window=64, initializer_range=0.3,
    layer_types=["sliding_attention", "full_attention"], vocab_size_per_layer_input=0,
    hidden_size_per_layer_input=0, max_position_embeddings=64, pad_token_id=0, bos_token_id=None,
    eos_token_id=None,
)
torch.manual_seed(2)
own = Gemma4TextConfig(hidden_size=H, num_kv_shared_layers=0, tie_word_embeddings=False, **SIZES)
target = Gemma4ForCausalLM(own).eval()
text = Gemma4TextConfig(hidden_size=12, num_kv_shared_layers=2, **SIZES)
config = Gemma4AssistantConfig(text_config=text, backbone_hidden_size=H)
assistant = Gemma4AssistantForCausalLM(config).eval()
assistant.generation_config.num_assistant_tokens = 1  # so each call of the assistant is one window


@torch.no_grad()
def logits(ids, extra=None):
    """The assistant's logits after ids, with the keys of all but the last token, and of extra."""
    read = ids[:, :-1] if extra is None else torch.cat([ids[:, :-1], extra], 1)
    out = target(read, output_hidden_states=True, return_shared_kv_states=True, use_cache=True)
    state = out.hidden_states[-1][:, ids.shape[1] - 2 : ids.shape[1] - 1]
    embedded = target.get_input_embeddings()(ids[:, -1:])
    drafted = assistant(
        inputs_embeds=torch.cat([embedded, state], -1), shared_kv_states=out.shared_kv_states,
        position_ids=torch.tensor([[ids.shape[1] - 1]]),
    )
    return drafted.logits[0, -1]


calls = []


def record(module, args, given, out):
    keys = {kind: pair[0].shape[2] for kind, pair in given["shared_kv_states"].items()}
    length = int(given["position_ids"]) + 1
    calls.append((length, keys["full_attention"], out.logits[0, -1].clone()))


def generated(**more):
    torch.manual_seed(2)
    return target.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=24, **more)


hook = assistant.register_forward_hook(record, with_kwargs=True)
ids = generated(assistant_model=assistant, do_sample=True, top_k=0)  # it accepts and rejects
hook.remove()
greedy = generated(do_sample=False)
same = greedy.equal(generated(assistant_model=assistant, do_sample=False))
print("transformers", version("transformers"), "torch", version("torch"))
print("tokens  keys  draft before  logits differ from the text's  with the rejected draft's key")
as_described, rejections, before, start = same, [], None, 0
for length, keys, seen in calls:
    clean = float((logits(ids[:, :length]) - seen).abs().max())
    rejected = before is not None and int(before) != int(ids[0, start])
    if rejected:
        more = float((logits(ids[:, :length], before.view(1, 1)) - seen).abs().max())
        rejections.append(clean)
        as_described &= keys == length and more < 1e-4
    else:
        as_described &= keys == length - 1 and clean < 1e-4
    name = "rejected" if rejected else "none" if before is None else "accepted"
    also = f"  {more:28.1e}" if rejected else ""
    print(f"{length:6d}  {keys:4d}  {name:12s}  {clean:29.1e}{also}")
    before, start = seen.argmax(), length
print("greedy text with the assistant is the plain greedy text:", same)
as_described &= len(rejections) > 2 and len(rejections) < len(calls) - 2 and max(rejections) > 0.1
print("as described: after a rejection, one key too many" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python keys.py
