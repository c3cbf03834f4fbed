"""A small random target with a draft head or a block drafter, in float64."""

from dataclasses import replace

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from naive_speculate.infer.head.block import BlockHead
from naive_speculate.infer.head.model import DraftHead, Head
from naive_speculate.infer.head.weights import HeadWeights
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.infer.llama.stored import StoredLlama
from naive_speculate.pair import ModelPair
from naive_speculate.testing.toys import EOS

_WIDTH = 8


def pair_with_head(vocab_size: int, seed: int, adds: bool = False, block: bool = False) -> ModelPair:
    """A Llama of two layers and a head that has all tokens but the last. `adds`: whether the head has two layers and adds the
    target's states to its embeddings; otherwise it is EAGLE-3. `block`: whether it is a block drafter of two layers, for three
    draft tokens."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=_WIDTH,
            intermediate_size=12,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=64,
            initializer_range=0.6,
            bos_token_id=None,
            eos_token_id=EOS,
        )
        target, other = LlamaForCausalLM(config).double(), LlamaForCausalLM(config).double()
        head = _head(StoredLlama.of(other), adds, block)
        return ModelPair(LlamaLanguageModel.from_transformers(target, "torch"), head=head)


def _head(llama: StoredLlama, adds: bool, block: bool) -> Head:
    """A head with the weights of a Llama, and random ones for what a Llama lacks."""

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64) * 0.5

    d, own, num_tokens = _WIDTH, llama.weights, llama.shape.vocab_size - 1
    layers = own.layers if adds or block else [replace(own.layers[0], qkv=random(3 * d, 2 * d))]
    weights = HeadWeights(
        embedding=own.embedding,
        layers=layers,
        norm=own.norm,
        head=own.head[:num_tokens],
        fuse=random(d, 3 * d),
        hidden_norm=own.norm,
        state_projection=random(d, d) if adds else None,
        token_ids=torch.arange(num_tokens),
    )
    shape = replace(llama.shape, vocab_size=num_tokens, windows=(None,) * len(layers))
    if block:
        return BlockHead(weights, shape, llama.rotary, (0, 1, 2), "toy block", block_size=4, mask_token_id=0)
    return DraftHead(weights, shape, llama.rotary, (0, 1, 2), "toy head")
