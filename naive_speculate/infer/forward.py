"""Calls a model's forward and checks the results against the contract of `LanguageModel`."""

from collections.abc import Sequence
from typing import Any

import torch

from naive_speculate.infer.protocols import KVCache, LanguageModel


def forward(
    model: LanguageModel,
    query_token_ids: torch.Tensor,
    kv_cache: KVCache,
    num_logits: int | None = None,
    layers: Sequence[int] = (),
) -> tuple[torch.Tensor, Any]:
    """`model.forward`, with its results checked: logits `[batch_size, num_query_tokens or
    num_logits, vocab_size]`, and with `layers` their hidden states `[batch_size,
    num_query_tokens, len(layers) * hidden_size]`, else None.

    `num_logits` and `layers` are for a `BatchLanguageModel`. Raises `ValueError` if the model
    did not add the query to the cache, or a result is missing or of another shape.
    """
    before, (batch_size, num_new) = kv_cache.get_num_tokens(), query_token_ids.shape
    wanted, name = num_new if num_logits is None else num_logits, f"{type(model).__name__}.forward"
    options: dict[str, Any] = ({} if num_logits is None else {"num_logits": num_logits}) | (
        {"layers": layers} if layers else {}
    )
    found: Any = model.forward(query_token_ids, kv_cache, **options)
    logits, features = (
        found if layers and isinstance(found, tuple) and len(found) == 2 else (found, None)
    )
    if (
        not isinstance(logits, torch.Tensor)
        or logits.dim() != 3
        or logits.shape[:2] != (batch_size, wanted)
    ):
        raise ValueError(
            f"{name} must return the logits of every query position, shape [{batch_size}, {wanted},"
            f" vocab_size], got {_described(logits)}"
        )
    if (gained := kv_cache.get_num_tokens() - before) != num_new:
        raise ValueError(
            f"{name} must add the query's {num_new} tokens to kv_cache, with"
            f" kv_cache.update([KVState(keys, values), ...]); it added {gained}"
        )
    shape = list(features.shape) if isinstance(features, torch.Tensor) else []
    if layers and (len(shape) != 3 or shape[:2] != [batch_size, num_new] or shape[2] % len(layers)):
        raise ValueError(
            f"{name} must return logits and hidden states for layers={list(layers)}, shape"
            f" [{batch_size}, {num_new}, {len(layers)} * hidden_size], got {_described(features)}"
        )
    return logits, features


def _described(found: Any) -> Any:
    return list(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__


def check_query(query_token_ids: torch.Tensor) -> None:
    """Raise a `ValueError` for a query that is not `[batch_size, num_query_tokens]` with at
    least one token."""
    if query_token_ids.dim() != 2 or query_token_ids.shape[1] == 0:
        shape = list(query_token_ids.shape)
        raise ValueError(
            f"query_token_ids must have shape [batch_size, num_query_tokens > 0], got {shape}"
        )


def checked_num_logits(num_logits: int | None, num_new: int) -> int:
    """The number of last positions with logits, all for None; a `ValueError` if the query has
    fewer."""
    if num_logits is not None and not 1 <= num_logits <= num_new:
        raise ValueError(
            f"num_logits must be between 1 and the query's {num_new} tokens, got {num_logits}"
        )
    return num_new if num_logits is None else num_logits


def check_layers(layers: Sequence[int], num_layers: int) -> None:
    """Raise a `ValueError` for layers that do not exist."""
    for layer in layers:
        if not 0 <= layer <= num_layers:
            raise ValueError(
                f"layers must be between 0 (the embeddings) and {num_layers}, got {layer}"
            )
