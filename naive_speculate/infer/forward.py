"""Calls a model's forward and checks the results against the contract of `LanguageModel`."""

from collections.abc import Sequence
from typing import Any

import torch

from naive_speculate.infer.protocols import BatchLanguageModel, KVCache, LanguageModel


def forward(
    model: LanguageModel, query_token_ids: torch.Tensor, kv_cache: KVCache, num_logits: int | None = None
) -> torch.Tensor:
    """`model.forward`, with its results checked: logits `[batch_size, num_query_tokens or num_logits, vocab_size]`.
    `num_logits` is for a `BatchLanguageModel`. Raises `ValueError` if the model did not add the query to the cache, or the
    logits are not of that shape."""
    return _checked(model, query_token_ids, kv_cache, num_logits)[0]


def forward_with_features(
    model: BatchLanguageModel,
    query_token_ids: torch.Tensor,
    kv_cache: KVCache,
    layers: Sequence[int],
    num_logits: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `forward`, with the hidden states of at least one layer. Returns logits, shape
    `[batch_size, num_query_tokens or num_logits, vocab_size]`, and features, shape
    `[batch_size, num_query_tokens, len(layers) * hidden_size]`. Raises `ValueError` as `forward`, or if the model returns no
    hidden states, or none of that shape."""
    logits, features = _checked(model, query_token_ids, kv_cache, num_logits, layers=layers)
    shape = list(features.shape) if isinstance(features, torch.Tensor) else []
    if features is None or len(shape) != 3 or shape[:2] != list(query_token_ids.shape) or shape[2] % len(layers):
        batch_size, num_new = query_token_ids.shape
        raise ValueError(
            f"{type(model).__name__}.forward must return logits and hidden states for layers={list(layers)}, shape "
            f"[{batch_size}, {num_new}, {len(layers)} * hidden_size], got {shape or type(features).__name__}"
        )
    return logits, features


def check_query(query_token_ids: torch.Tensor) -> None:
    """Raise a `ValueError` for a query that is not `[batch_size, num_query_tokens]` with at least one token."""
    if query_token_ids.dim() != 2 or query_token_ids.shape[1] == 0:
        shape = list(query_token_ids.shape)
        raise ValueError(f"query_token_ids must have shape [batch_size, num_query_tokens > 0], got {shape}")


def checked_num_logits(num_logits: int | None, num_new: int) -> int:
    """The number of last positions with logits, all for None; a `ValueError` if the query has fewer."""
    if num_logits is not None and not 1 <= num_logits <= num_new:
        raise ValueError(f"num_logits must be between 1 and the query's {num_new} tokens, got {num_logits}")
    return num_new if num_logits is None else num_logits


def check_layers(layers: Sequence[int], num_layers: int) -> None:
    """Raise a `ValueError` for layers that do not exist."""
    for layer in layers:
        if not 0 <= layer <= num_layers:
            raise ValueError(f"layers must be between 0 (the embeddings) and {num_layers}, got {layer}")


def _checked(
    model: Any, query_token_ids: torch.Tensor, kv_cache: KVCache, num_logits: int | None, **options: Sequence[int]
) -> tuple[torch.Tensor, Any]:
    """Logits, and the model's other result."""
    before, (batch_size, num_new) = kv_cache.get_num_tokens(), query_token_ids.shape
    wanted = (batch_size, num_new if num_logits is None else num_logits)
    found = model.forward(query_token_ids, kv_cache, **options, **({} if num_logits is None else {"num_logits": num_logits}))
    logits, features = found if options and isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(logits, torch.Tensor) or logits.dim() != 3 or logits.shape[:2] != wanted:
        got = list(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ValueError(
            f"{type(model).__name__}.forward must return the logits of every query position, shape "
            f"[{wanted[0]}, {wanted[1]}, vocab_size], got {got}"
        )
    if (gained := kv_cache.get_num_tokens() - before) != num_new:
        raise ValueError(
            f"{type(model).__name__}.forward must add the query's {num_new} tokens to kv_cache, with kv_cache.update([KVState("
            f"keys, values), ...]); it added {gained}"
        )
    return logits, features
