"""Put a small model's weights into a wider and deeper one that computes the same function before it learns anything.

Function-preserving growth (Net2Net, Chen et al. 2016, arXiv 1511.05641; stacked layers as in LiGO, arXiv 2303.00980):
whatever *reads* a new channel, head or unit keeps its random weights, whatever *writes* to the old ones begins at zero.
"""

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM


def can_grow(small: LlamaForCausalLM, large: LlamaForCausalLM) -> bool:
    """Whether ``large`` has room for ``small``: same vocabulary and head size, no dimension smaller."""
    a, b = small.config, large.config
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    same = a.vocab_size == b.vocab_size and small.model.layers[0].self_attn.head_dim == large.model.layers[0].self_attn.head_dim
    return same and all(getattr(a, size) <= getattr(b, size) for size in sizes)


@torch.no_grad()
def grow(small: LlamaForCausalLM, large: LlamaForCausalLM) -> None:
    """Overwrite ``large``'s weights; added layers are copies of the one before them that at first add nothing."""
    scale = (small.config.hidden_size / large.config.hidden_size) ** 0.5  # the norm divides by the root of the *mean* square
    _widen(large.model.embed_tokens.weight, small.model.embed_tokens.weight, rest=0.0)
    _widen_norm(large.model.norm, small.model.norm, scale)
    have, want = len(small.model.layers), len(large.model.layers)
    sources = [index * have // want for index in range(want)]
    for index, (source, layer) in enumerate(zip(sources, large.model.layers, strict=True)):
        given = small.model.layers[source]
        _widen_norm(layer.input_layernorm, given.input_layernorm, scale)
        _widen_norm(layer.post_attention_layernorm, given.post_attention_layernorm, scale)
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            _widen(layer.get_parameter(f"{name}.weight"), given.get_parameter(f"{name}.weight"), rest=None)
        added = index > 0 and sources[index - 1] == source
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            weight = layer.get_parameter(f"{name}.weight")
            if added:
                weight.zero_()
            else:
                _widen(weight, given.get_parameter(f"{name}.weight"), rest=0.0)


def _widen(large: Tensor, small: Tensor, rest: float | None) -> None:
    """``small`` goes to the upper left corner of ``large``; what is beside it becomes ``rest``, or stays (None)."""
    if rest is not None:
        large.fill_(rest)
    large[: small.shape[0], : small.shape[1]] = small


def _widen_norm(large: nn.Module, small: nn.Module, scale: float) -> None:
    wide, narrow = large.get_parameter("weight"), small.get_parameter("weight")
    wide.fill_(narrow.mean().item() * scale)
    wide[: len(narrow)] = narrow * scale
