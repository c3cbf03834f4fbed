#!/usr/bin/env bash
# Guess: generate() leaves the models that it is given as they were.
# So it is: not an assistant with another tokenizer, when sampling. The assistant's head is replaced
#   by one of the shared tokens alone, and its embeddings by a wrapper that expects the ids of
#   that head; both stay when generate has ended. Afterwards the assistant alone gives another
#   text or raises an error, as the order of the shared tokens has it, and it cannot be saved. And
#   the translation is kept by the pair of tokenizers, not by the model: a second assistant with
#   the same tokenizer is not changed, but is taken for changed, and raises an error. In both cases
#   the way out is to load assistant and tokenizer anew. With one tokenizer for both models all of
#   this works.
# Versions: transformers 5.24.0 (the newest on PyPI on this day), tokenizers 0.23.3, torch 2.13.0
#   (CPU), numpy 2.4.6; 2026-11-28.
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  transformers==5.24.0 tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6 || exit 2
cat > changed.py <<'PY'
import sys
from importlib.metadata import version

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, logging

OWN = ["<e>", " ", "a", "b", "c", "d", "e", "f"]
OTHER = ["<e>", "f", "e", "d", "c", " ", "b", "a", "x", "y"]  # two tokens more
torch.set_num_threads(1), logging.set_verbosity_error(), logging.disable_progress_bar()


def tiny(size, seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=size, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=256, pad_token_id=0, bos_token_id=None,
        eos_token_id=None, tie_word_embeddings=False,
    )).eval()


def tokenizer_of(words):
    made = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<e>")


def generated(model, **more):
    ids = torch.tensor([[2, 3, 4, 2, 3]])
    made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, **more)
    return made[0, ids.shape[1] :].tolist()


def result(act, *given, **more):
    try:
        return act(*given, **more) or "works"
    except Exception as error:
        return f"{type(error).__name__}: {str(error):.60}"


def sampling(assistant, both):
    generated(target, assistant_model=assistant, do_sample=True, **both)


def tried(size, other):
    """What works with an assistant before and after sampling with it, and then with another."""
    both = dict(tokenizer=own, assistant_tokenizer=other) if other else {}

    def uses(model):
        return {
            "alone": result(generated, model, do_sample=False),
            "saved": result(model.save_pretrained, "saved"),
        }

    first = tiny(size, 2)
    before, sizes = uses(first), [first.get_output_embeddings().weight.shape[0]]
    found = {"sampling with it": result(sampling, first, both)}
    sizes.append(sum(weight.shape[0] for weight in first.get_output_embeddings().parameters()))
    after = uses(first)
    found["sampling with a second one"] = result(sampling, tiny(size, 3), both)
    print(f"  tokens that its head knows: {sizes[0]}, then {sizes[1]}")
    for name in before:
        print(f"  {name}: {before[name]}\n    after sampling: {after[name]}")
    for name, said in found.items():
        print(f"  {name}: {said}")
    return list(before.values()), list(after.values()), list(found.values()), sizes


print("transformers", version("transformers"), "tokenizers", version("tokenizers"))
own, target = tokenizer_of(OWN), tiny(len(OWN), 1)
print("an assistant with the target's tokenizer")
same = tried(len(OWN), None)
print("an assistant with another tokenizer")
changed = tried(len(OTHER), tokenizer_of(OTHER))
as_described = same[0] == same[1] and set(same[2]) == {"works"} and same[3] == [8, 8]
as_described &= changed[0][0] != changed[1][0] and (changed[0][1] == "works" != changed[1][1])
as_described &= changed[2][0] == "works" != changed[2][1] and changed[3] == [10, 8]
print("as described: the assistant is changed" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python changed.py
