"""Tiny random models for tests."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def tiny_llama(num_layers: int, seed: int, positions: int = 200) -> LlamaForCausalLM:
    """A random Llama with large weights, so that its distributions are far from uniform."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        eos_token_id=None,
        bos_token_id=None,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()
