"""Calls a model's forward, checks the results of one that may break the contract of
`LanguageModel`, and computes rows one by one."""

from collections.abc import Callable, Sequence
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import torch
from torch.nn.functional import pad

from naive_speculate.infer.protocols import KVCache, LanguageModel

Method = TypeVar("Method", bound=Callable[..., Any])
_KEEP_CONTRACT: set[Callable[..., Any]] = set()


def keeps_contract(method: Method) -> Method:
    """Mark a `forward` of this package, whose results need no check; one that overrides it
    does."""
    _KEEP_CONTRACT.add(method)
    return method


def forward_of(model: LanguageModel) -> Callable[..., Any]:
    """A model's `forward`, called as that of a `BatchLanguageModel`; results that may break the
    contract of `LanguageModel` are checked (see `checked`)."""
    own = model.forward
    trusted = isinstance(own, MethodType) and own.__func__ in _KEEP_CONTRACT
    return own if trusted else partial(checked, model)


def checked(
    model: Any,
    query_token_ids: torch.Tensor,
    kv_cache: KVCache,
    *,
    num_logits: int | None = None,
    layers: Sequence[int] = (),
    lengths: Sequence[int] | None = None,
) -> Any:
    """A model's `forward`, with its results checked: logits `[batch_size, num_query_tokens or
    num_logits, vocab_size]`, and with `layers` their hidden states `[batch_size,
    num_query_tokens, len(layers) * hidden_size]`.

    `num_logits`, `layers` and `lengths` are for a `BatchLanguageModel`; a model that takes
    lengths checks its own results, others do not get them. Raises `ValueError` if the model did
    not add the query to the cache, or a result is missing or of another shape.
    """
    before, (batch_size, num_new) = kv_cache.get_num_tokens(), query_token_ids.shape
    count = num_new if num_logits is None else num_logits
    name = f"{type(getattr(model.forward, '__self__', model)).__name__}.forward"
    options: dict[str, Any] = ({} if num_logits is None else {"num_logits": num_logits}) | (
        {"layers": layers} if layers else {}
    )
    if lengths is not None and model.takes_lengths:
        return model.forward(query_token_ids, kv_cache, lengths=lengths, **options)
    result = model.forward(query_token_ids, kv_cache, **options)
    logits, features = (
        result if layers and isinstance(result, tuple) and len(result) == 2 else (result, None)
    )
    if (
        not isinstance(logits, torch.Tensor)
        or logits.dim() != 3
        or logits.shape[:2] != (batch_size, count)
    ):
        raise ValueError(
            f"{name} must return the logits of every query position, shape [{batch_size}, {count},"
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
    return (logits, features) if layers else logits


def _described(result: Any) -> Any:
    return list(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__


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


def forward_each_row(
    query_token_ids: torch.Tensor,
    lengths: Sequence[int],
    num_logits: int | None,
    forward: Callable[[int, torch.Tensor], tuple[torch.Tensor, torch.Tensor | None]],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One forward per row of a query `[batch_size, num_new]`, over its first `lengths[index]`
    tokens; the others are padding, which gives zeros. `forward` takes a row's index and tokens,
    and returns logits of the last or all of them, `[num_tokens, vocab_size]`, and features or
    None; the result is stacked."""
    (batch_size, num_new), features = query_token_ids.shape, None
    count = num_new if num_logits is None else num_logits
    results = {
        index: forward(index, query_token_ids[index, :length])
        for index, length in enumerate(lengths)
        if length
    }
    own, states = next(iter(results.values()))
    logits = own.new_zeros(batch_size, count, own.shape[-1])
    if states is not None:
        features = states.new_zeros(batch_size, num_new, states.shape[-1])
    for index, (own, states) in results.items():
        padded = pad(own, (0, 0, 0, num_new - lengths[index]))[-count:]
        logits[index, count - len(padded) :] = padded
        if features is not None and states is not None:
            features[index, : len(states)] = states
    return logits, features
