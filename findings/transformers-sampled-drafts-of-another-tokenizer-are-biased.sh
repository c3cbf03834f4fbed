#!/usr/bin/env bash
# Guess: generate(assistant_model=…, tokenizer=…, assistant_tokenizer=…, do_sample=True) keeps the
#   target's distribution: its documentation calls this universal speculative decoding, and the
#   method is lossless.
# So it is: not if the assistant's tokenizer has a token that the target's lacks, which is the usual
#   case. Then the assistant's head is reduced to the shared tokens, in the order in which
#   get_vocab() lists them. q, its distribution, is carried over to the target's tokens as if that
#   order were the order of ids. Tokenizers list their vocabulary in an order that differs from one
#   object to the next, so q belongs to other tokens than the drafts were drawn from, and the bias
#   is another each time. Below, the text is far from the target's distribution and is what that
#   mistake predicts. With a vocabulary that is listed in the order of ids, sampling is right.
#   Greedy text, which takes another path, is right, too.
# Versions: transformers 5.24.0 (the newest on PyPI on this day; 5.23.0 has it, too), tokenizers
#   0.23.3, torch 2.13.0 (CPU), numpy 2.4.6; 2026-11-28.
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: \
  transformers==5.24.0 tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6 || exit 2
cat > sample.py <<'PY'
import sys
from importlib.metadata import version

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, logging

DRAWS = 1000
OWN = ["<e>", " ", "a", "b", "c", "d", "e", "f"]
OTHER = ["<e>", "f", "e", "d", "c", " ", "b", "a", "x", "y"]  # two tokens more
V, IDS = len(OWN), torch.tensor([[2, 3, 4, 2, 3]])
torch.set_num_threads(1), logging.set_verbosity_error()


def tiny(size, seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=size, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=256, initializer_range=0.4, pad_token_id=0,
        bos_token_id=None, eos_token_id=None, tie_word_embeddings=False,
    )).eval()


class Listed(PreTrainedTokenizerFast):
    """Lists its vocabulary in one order of ids, which stays as it is."""

    order = None

    def get_vocab(self):
        listed = super().get_vocab()
        if self.order is None:
            return listed
        return dict(sorted(listed.items(), key=lambda item: self.order.index(item[1])))


def tokenizer_of(words, kind=PreTrainedTokenizerFast):
    made = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    made.decoder = decoders.Fuse()
    return kind(tokenizer_object=made, eos_token="<e>")


def probs(model, ids):
    with torch.no_grad():
        return model(ids).logits[0, -1].softmax(-1)


def predicted(order):
    """The first token's distribution if q is carried over in the order of ids."""
    shared = [i for i in order if OTHER[i] in OWN]
    q = probs(tiny(len(OTHER), 2), torch.tensor([[OTHER.index(OWN[i]) for i in IDS[0]]]))[shared]
    q = q / q.sum()
    drawn, stated = torch.zeros(V), torch.zeros(V)
    drawn[[OWN.index(OTHER[i]) for i in shared]] = q
    stated[[OWN.index(OTHER[i]) for i in sorted(shared)]] = q
    accepted, rest = drawn * (target / stated).clamp(max=1), (target - stated).clamp(min=0)
    return accepted + (1 - accepted.sum()) * rest / rest.sum()


def sampled(**more):
    """Frequencies of the first token; generate takes one text at a time."""
    counts = torch.zeros(V)
    torch.manual_seed(0)
    for _ in range(DRAWS):
        ids = generated(do_sample=True, top_k=0, max_new_tokens=2, **more)
        counts[ids[0, IDS.shape[1]]] += 1
    return counts / DRAWS


def generated(**more):
    return model.generate(IDS, attention_mask=torch.ones_like(IDS), **more)


def with_drafts(theirs):
    """The assistant is made anew, since generate changes it."""
    return dict(assistant_model=tiny(len(OTHER), 2), tokenizer=own, assistant_tokenizer=theirs)


def distance(a, b):
    return float((a - b).abs().sum() / 2)


def chance(p):
    """The total variation to expect of draws from p itself."""
    return float((2 * p * (1 - p) / torch.pi / DRAWS).sqrt().sum() / 2)


print("transformers", version("transformers"), "tokenizers", version("tokenizers"))
own, model = tokenizer_of(OWN), tiny(V, 1)
target = probs(model, IDS)
orders = [list(tokenizer_of(OTHER).get_vocab().values()) for _ in range(40)]
print("three tokenizers of one vocabulary list its ids as", *orders[:3], sep="\n  ")
as_listed, by_id = tokenizer_of(OTHER, Listed), tokenizer_of(OTHER, Listed)
as_listed.order = max(orders, key=lambda order: distance(predicted(order), target))
by_id.order = sorted(range(len(OTHER)))
plain, wrong, right = sampled(), sampled(**with_drafts(as_listed)), sampled(**with_drafts(by_id))
expected = predicted(as_listed.order)
print(f"total variation of a text's first token, {DRAWS} draws (chance: about {chance(target):.3f}")
print(f"  from the target, {chance(expected):.3f} from what the mistake predicts)")
print(f"  plain, from the target                               {distance(plain, target):.3f}")
print(f"  with drafts, from the target                         {distance(wrong, target):.3f}")
print(f"     from what the mistake predicts                    {distance(wrong, expected):.3f}")
print(f"  with drafts, listed in the order of ids, from target {distance(right, target):.3f}")
greedy = dict(do_sample=False, max_new_tokens=24)
same = generated(**greedy).equal(generated(**greedy, **with_drafts(as_listed)))
print("greedy text with drafts is the plain greedy text:", same)
as_described = same and distance(wrong, expected) < 3 * chance(expected)
as_described &= max(distance(plain, target), distance(right, target)) < 3 * chance(target)
as_described &= distance(wrong, target) > 10 * chance(target)
print("as described: sampling with such drafts is biased" if as_described else "CHANGED")
sys.exit(0 if as_described else 1)
PY
venv/bin/python sample.py
