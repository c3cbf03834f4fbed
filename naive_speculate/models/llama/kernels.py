"""Whether a token's bits depend on its company with this processor's kernels.

Decoding with drafts computes a token in a pass over several, plain decoding alone. Both texts are
the same for certain only if a row's result does not depend on the other rows.
"""

from functools import lru_cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch

from naive_speculate.infer.ragged_cache import RaggedKVCache
from naive_speculate.models.llama.rounded import Rounding
from naive_speculate.models.llama.stored import weights_of
from naive_speculate.models.llama.weights import (
    LlamaWeights,
    default_rotary,
    layer_shapes,
    shape_in,
)

_CONFIG = SimpleNamespace(
    model_type="llama",
    vocab_size=512,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    rms_norm_eps=1e-5,
)
_SHAPE = shape_in(_CONFIG)
_PREFIX = 40
_WIDTHS = (2, 3, 4, 5, 9, 17)


@lru_cache
def row_difference(rounding: bool = False) -> float:
    """The largest difference between a token's logits computed alone and with others, in one row
    and in a batch, by a small random model with float32 weights or rounded ones. 0 is the
    promise: the same bits. Takes a tenth of a second."""
    from naive_speculate.models.llama.onnx_session import OnnxLlama  # onnxruntime is optional

    weights = _weights(Rounding() if rounding else None)
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


def _weights(rounding: Rounding | None) -> LlamaWeights:
    random = torch.Generator().manual_seed(0)
    sizes = {f"model.layers.0.{name}": size for name, size in layer_shapes(_CONFIG).items()}
    sizes["model.embed_tokens.weight"] = _SHAPE.vocab_size, _SHAPE.hidden_size
    state = {
        name: torch.randn(size, generator=random) / size[-1] ** 0.5
        for name, size in sizes.items()
        if len(size) > 1
    }
    norms = {name: torch.ones(size) for name, size in sizes.items() if len(size) == 1}
    norms["model.norm.weight"] = torch.ones(_SHAPE.hidden_size)
    return weights_of(state | norms, _SHAPE.num_layers, True, rounding)
