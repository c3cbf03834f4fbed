"""Causal language models of transformers whose state cannot be rolled back: recurrent layers
(Mamba, gated delta rule, short convolutions), alone or with attention.

Such a state holds all tokens before it, and none can be taken out. Each row keeps two states:
one before the tokens of its last forward, and one after them. Rolling back restores the first.
The tokens that stay are computed again together with the next ones, in one forward. Rows are
computed one by one.
"""

from collections.abc import Sequence
from copy import copy
from inspect import signature
from itertools import islice
from typing import Any, cast

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from naive_speculate.infer.plain import PlainCache
from naive_speculate.infer.ragged_cache import Rows
from naive_speculate.infer.transformers_model import (
    TransformersLanguageModel,
    hidden_states,
    probe_tokens,
    tolerance,
)

_STATE_TOLERANCE = 0.02  # of the first recurrent layer, which rounds little in any dtype
# replayed tokens beyond which they get a forward of their own, after which they need no more replay
_MOST_REPLAYED = 16


class _Row:
    """One row's tokens and states: `before`, after the first `num_before` tokens, which nothing
    changes, and `now`, after all tokens; None where those after `before` must be replayed."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.before: DynamicCache | None = None
        self.num_before = 0
        self.now: DynamicCache | None = None

    def get_num_tokens(self) -> int:
        """How many tokens it has."""
        return len(self.tokens)

    def keep(self, num_tokens: int) -> None:
        """Roll back to at most so many tokens."""
        if num_tokens >= len(self.tokens):
            return
        self.tokens, self.now = self.tokens[: max(0, num_tokens)], None
        if num_tokens < self.num_before:
            self.before, self.num_before = None, 0

    def settle(self) -> None:
        """Let the next tokens be rolled back to where the row is now."""
        if self.now is not None:
            self.before, self.num_before = copied(self.now), len(self.tokens)

    def copied(self) -> "_Row":
        """An independent copy."""
        other = copy(self)
        other.tokens = list(self.tokens)
        other.now = None if self.now is None else copied(self.now)
        return other


def copied(cache: DynamicCache) -> DynamicCache:
    """A copy of a cache. Attention layers replace their keys and values, so these are shared;
    recurrent states are overwritten in place, so these are cloned."""
    other = copy(cache)
    other.layers = [copy(layer) for layer in cache.layers]
    for layer in other.layers:
        for name, value in vars(layer).items():
            if isinstance(value, dict):
                own = {
                    key: each.clone() if isinstance(each, torch.Tensor) else each
                    for key, each in value.items()
                }
                setattr(layer, name, own)
    return other


class StateCache(PlainCache):
    """A `BatchCache` of recurrent models: a `_Row` for each sequence."""

    make = _Row

    def copy_row(self, source: int, destination: int) -> None:
        self.caches[destination] = self.caches[source].copied()

    def keep(self, row: int, num_tokens: int) -> None:
        self.caches[row].keep(num_tokens)


class RecurrentLanguageModel(TransformersLanguageModel):
    """A model of transformers with recurrent layers, alone (Mamba) or with attention (hybrid);
    see `TransformersLanguageModel`.

    Some families start from nothing whenever they get several tokens at once. They read them one
    by one, which is as slow as plain decoding; `probe` decides. Every forward gets explicit
    positions, since Bamba would count them from 0 in each.
    """

    takes_lengths = True
    _cache_name, _one_by_one_of = "a cache of its state", "tokens"

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self._together = True
        taken = signature(model.forward).parameters
        # Models without attention name their state so.
        self._argument = "cache_params" if "cache_params" in taken else "past_key_values"
        self._takes_positions = "position_ids" in taken

    def check_state(self) -> None:
        """See `TransformersLanguageModel.check_state`; the state is kept, so that nothing has to
        be rolled back."""

    def new_cache(self, batch_size: int) -> Any:
        """An empty cache for `batch_size` rows."""
        return StateCache(batch_size)

    def _rows(self, kv_cache: Any, batch_size: int) -> Any:
        view = kv_cache.all_rows() if isinstance(kv_cache, StateCache) else kv_cache
        if not isinstance(view, Rows) or not isinstance(view.cache, StateCache):
            raise ValueError(
                f"kv_cache of {self.name} must be a StateCache, since its state is recurrent"
            )
        if len(view.indices) != batch_size:
            raise ValueError(
                f"query_token_ids has {batch_size} rows, kv_cache has {len(view.indices)}"
            )
        return view

    def _compute_row(
        self, rows: Any, num_logits: int, layers: Sequence[int], index: int, token_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self._read(rows.cache.caches[rows.indices[index]], token_ids.tolist(), layers)

    @torch.no_grad()
    def _obstacle(self, together: bool) -> str | None:
        """Why the model cannot continue from its state with several tokens (`together`), or with
        one; None if its logits, rolled back once, are those of its own forward over the whole
        sequence. Several tokens must leave the state that they leave one by one: where the
        logits depend little on the state, its loss is within their tolerance."""
        ids = probe_tokens(self)
        expected = (
            self.model(input_ids=torch.tensor([ids], device=self.device), use_cache=False)
            .logits[0]
            .float()
        )
        if together:
            self._together = False
            _, alone = self._rolled_back(ids)
        self._together = together
        found, state = self._rolled_back(ids)
        close = (found - expected).norm() <= tolerance(self.model.dtype) * (
            expected - expected.mean()
        ).norm()
        if not bool(close):
            return "its logits are not those of its own forward"
        if together and any(
            bool((a - b).norm() > _STATE_TOLERANCE * b.norm())
            for a, b in zip(state, alone, strict=True)
        ):
            return "its state after several tokens is not that after them one by one"
        return None

    def _rolled_back(self, ids: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Logits of a sequence whose last two tokens follow two that were rolled back, and the
        states of its first recurrent layer, all float32."""
        row = _Row()
        first, _ = self._read(row, ids[:-2], ())
        self._read(row, ids[:2], ())
        row.keep(len(ids) - 2)
        last, _ = self._read(row, ids[-2:], ())
        layers = (
            layer
            for layer in cast(DynamicCache, row.now).layers
            if isinstance(layer, LinearAttentionCacheLayerMixin)
        )
        kept = [
            each
            for layer in islice(layers, 1)
            for each in (*layer.conv_states.values(), *layer.recurrent_states.values())
        ]
        return torch.cat([first, last]).float(), [each.float() for each in kept if each is not None]

    def _read(
        self, row: _Row, token_ids: list[int], layers: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """A row reads tokens, after those that it must replay; logits `[num_tokens,
        vocab_size]`, and features or None."""
        behind = len(row.tokens) - row.num_before
        if (
            len(token_ids) > 1 or behind >= _MOST_REPLAYED
        ):  # a drafter's single tokens are rolled back together
            row.settle()
        state, row.now = row.now, None  # a forward that fails leaves the state before it
        replayed, start = list[int](), len(row.tokens)
        if state is None:
            state = DynamicCache(config=self.config) if row.before is None else copied(row.before)
            replayed, start = row.tokens[row.num_before :], row.num_before
            if len(replayed) > _MOST_REPLAYED:
                self._compute_state(replayed, state, (), start)
                row.before, row.num_before, replayed, start = (
                    copied(state),
                    len(row.tokens),
                    [],
                    len(row.tokens),
                )
        logits, features = self._compute_state(replayed + token_ids, state, layers, start)
        row.tokens, row.now = row.tokens + token_ids, state
        return logits[len(replayed) :], None if features is None else features[len(replayed) :]

    def _compute_state(
        self, token_ids: list[int], state: DynamicCache, layers: Sequence[int], start: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits and features of tokens that follow a state, which moves on, after `start`
        tokens: in one forward, or one by one."""
        query = torch.tensor([token_ids], device=self.device)
        positions = torch.arange(start, start + len(token_ids), device=self.device)[None]
        size, found = len(token_ids) if self._together or not start else 1, []
        for part, at in zip(query.split(size, dim=1), positions.split(size, dim=1), strict=True):
            options = {self._argument: state} | (
                {"position_ids": at} if self._takes_positions else {}
            )
            with hidden_states(self.model, layers) as states:
                output = self.model(input_ids=part, use_cache=True, **options)
            found.append((output.logits[0], [states[layer][0] for layer in layers]))
        logits = torch.cat([own for own, _ in found])
        return logits, torch.cat([torch.cat(own, dim=-1) for _, own in found]) if layers else None
