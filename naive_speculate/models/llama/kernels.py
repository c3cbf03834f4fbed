"""Whether a token's bits depend on its company with this processor's kernels.

Decoding with drafts computes a token in a pass over several, plain decoding alone. Both texts are
the same for certain only if a row's result does not depend on the other rows.
"""

from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch

from naive_speculate.infer.ragged_cache import RaggedKVCache
from naive_speculate.models.llama.blocks import in_blocks
from naive_speculate.models.llama.weights import (
    LlamaLayer,
    LlamaShape,
    LlamaWeights,
    default_rotary,
)

_SHAPE = LlamaShape(
    vocab_size=512,
    hidden_size=256,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    norm_epsilon=1e-5,
    windows=(None,),
)
_INNER, _PREFIX = 512, 40
_WIDTHS = (2, 3, 4, 5, 9, 17)


@lru_cache
def row_difference(bits: int | None = None) -> float:
    """The largest difference between a token's logits computed alone and with others, in one row
    and in a batch, by a small random model with float32 weights or of so many bits. 0 is the
    promise: the same bits. Takes a tenth of a second."""
    from naive_speculate.models.llama.onnx_session import OnnxLlama  # onnxruntime is optional

    weights = _weights(torch.Generator().manual_seed(0), bits)
    model = OnnxLlama(_SHAPE, weights, default_rotary(1e4, _SHAPE.head_dim, torch.device("cpu")))
    ends = [_PREFIX]
    for width in _WIDTHS:
        ends.append(ends[-1] + width)
    tokens = torch.arange(ends[-1])[None] * 31 % _SHAPE.vocab_size
    alone = _logits(model, tokens, [*range(_PREFIX, ends[-1] + 1)])
    together = [_logits(model, tokens.expand(rows, -1), ends) for rows in (1, 3)]
    return max(float((logits - alone).abs().max()) for logits in together)


def _logits(model: Any, tokens: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """The logits of the tokens from the first of `ends` on, in passes that end at each."""
    cache = RaggedKVCache(len(tokens))
    parts = []
    for begin, end in pairwise([0, *ends]):
        rows = cache.all_rows()
        rows.cache.require(_SHAPE, torch.float32, torch.device("cpu"))
        count = end - begin
        parts.append(model.forward(tokens[:, begin:end], rows, count)[0])
        rows.advance(count)
    return torch.cat(parts[1:], dim=1)


def _weights(random: torch.Generator, bits: int | None) -> LlamaWeights:
    def matrix(height: int, width: int) -> torch.Tensor:
        drawn = torch.randn(height, width, generator=random) / width**0.5
        return drawn if bits is None else in_blocks(drawn, bits)

    shape, ones = _SHAPE, torch.ones(_SHAPE.hidden_size)
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    layer = LlamaLayer(
        attention_norm=ones,
        qkv=matrix(queries + 2 * keys, shape.hidden_size),
        qkv_bias=None,
        q_norm=None,
        k_norm=None,
        output=matrix(shape.hidden_size, queries),
        output_bias=None,
        mlp_norm=ones,
        gate_up=matrix(2 * _INNER, shape.hidden_size),
        down=matrix(shape.hidden_size, _INNER),
    )
    embedding = matrix(shape.vocab_size, shape.hidden_size)
    return LlamaWeights(embedding=embedding, layers=[layer], norm=ones, head=embedding)
