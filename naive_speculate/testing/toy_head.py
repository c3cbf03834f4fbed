"""A small random target with a draft head or a block drafter, in float64."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from naive_speculate.infer.head.block import BlockHead
from naive_speculate.infer.head.model import DraftHead, Head
from naive_speculate.infer.head.weights import HeadWeights
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.infer.llama.weights import LlamaLayer, LlamaShape, RotaryTable
from naive_speculate.pair import ModelPair
from naive_speculate.testing.toys import EOS

_WIDTH, _HEADS, _HEAD_DIM = 8, 2, 4


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
            num_attention_heads=_HEADS,
            max_position_embeddings=64,
            initializer_range=0.6,
            bos_token_id=None,
            eos_token_id=EOS,
        )
        target = LlamaLanguageModel.from_transformers(LlamaForCausalLM(config).double(), "torch")
        return ModelPair(target, head=_head(vocab_size, vocab_size - 1, adds, block))


def _head(vocab_size: int, num_tokens: int, adds: bool, block: bool) -> Head:
    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64) * 0.5 + (1 if len(shape) == 1 else 0)

    def layer(read: int) -> LlamaLayer:
        return LlamaLayer(
            attention_norm=random(d),
            qkv=random(3 * d, read),
            qkv_bias=None,
            q_norm=None,
            k_norm=None,
            output=random(d, d),
            output_bias=None,
            mlp_norm=random(d),
            gate_up=random(24, d),
            down=random(d, 12),
        )

    d = _WIDTH
    layers = [layer(d), layer(d)] if adds or block else [layer(2 * d)]
    weights = HeadWeights(
        embedding=random(vocab_size, d),
        input_norm=None,
        fuse=random(d, 3 * d),
        hidden_norm=random(d),
        state_projection=random(d, d) if adds else None,
        layers=layers,
        norm=random(d),
        head=random(num_tokens, d),
        token_ids=torch.arange(num_tokens),
        norm_before_residual=False,
    )
    shape = LlamaShape(num_tokens, d, len(layers), _HEADS, _HEADS, _HEAD_DIM, 1e-6, (None,) * len(layers))
    rotary = RotaryTable(1e4 ** -(torch.arange(0, _HEAD_DIM, 2) / _HEAD_DIM), 1.0)
    if block:
        return BlockHead(weights, shape, rotary, (0, 1, 2), "toy block", block_size=4, mask_token_id=0)
    return DraftHead(weights, shape, rotary, (0, 1, 2), "toy head")
