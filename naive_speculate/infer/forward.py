"""Forwards of models that others wrote, held to what `LanguageModel` promises."""

import torch

from naive_speculate.infer.protocols import KVCache, LanguageModel


def forward(model: LanguageModel, query_token_ids: torch.Tensor, kv_cache: KVCache, **options: int) -> torch.Tensor:
    """`model.forward`, and a look at what came of it.

    Args:
        model: Computes.
        query_token_ids: int64, shape `[batch_size, num_query_tokens]`.
        kv_cache: Gains the query's keys and values.
        **options: `num_logits`, for a `BatchLanguageModel`.

    Returns:
        torch.Tensor: Shape `[batch_size, num_query_tokens or num_logits, vocab_size]`.

    Raises:
        ValueError: If the model did not add the query to the cache, or the logits are not of that shape.
    """
    before = kv_cache.get_num_tokens()
    logits = model.forward(query_token_ids, kv_cache, **options)
    batch_size, num_new = query_token_ids.shape
    wanted = (batch_size, options.get("num_logits", num_new))
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
    return logits
