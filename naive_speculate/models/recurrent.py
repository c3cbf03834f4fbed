"""Causal language models of transformers whose state cannot be rolled back: recurrent layers
(Mamba, gated delta rule, short convolutions), alone or with attention.

Such a state summarises all earlier tokens; single tokens cannot be removed from it. Each row
keeps two states: one before the tokens of its last forward, and one after them. Rolling back
restores the first. The tokens that stay are computed again together with the next ones, in one
forward. Rows are computed one by one.

A short convolution's state is its last inputs. transformers' cache records them and crops them
exactly, so models whose recurrent layers are all of this kind keep one state and compute nothing
again.
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
    changes, and `now`, after all tokens; None where those after `before` must be replayed.

    A row that `crops` has no `before`. Its `now` may hold more than its tokens, `num_now`, and
    can be cropped to any number of them from `num_before` on.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.before: DynamicCache | None = None
        self.num_before = self.num_now = 0
        self.now: DynamicCache | None = None
        self.crops = False

    def get_num_tokens(self) -> int:
        """How many tokens it has."""
        return len(self.tokens)

    def keep(self, num_tokens: int) -> None:
        """Roll back to at most so many tokens."""
        if num_tokens >= len(self.tokens):
            return
        self.tokens = self.tokens[: max(0, num_tokens)]
        if num_tokens < max(1, self.num_before):
            self.before, self.num_before, self.now = None, 0, None
        elif not self.crops:
            self.now = None

    def settle(self) -> None:
        """Let the next tokens be rolled back to where the row is now."""
        if self.now is None:
            return
        if self.crops:
            self.now.crop(len(self.tokens) - self.num_now)
        else:
            self.before = copied(self.now)
        self.num_before = self.num_now = len(self.tokens)

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


def _can_crop(cache: DynamicCache) -> bool:
    """Whether a cache, after a forward, can take tokens out of all of its layers exactly.
    transformers crops the inputs of convolutions but leaves recurrent states as they are."""
    return hasattr(cache, "activate_past_recording") and bool(cache.is_croppable)


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
        self._together, self._crops = True, False
        self._takes_positions = "position_ids" in signature(model.forward).parameters

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
        self._crops = False
        self._crops = _can_crop(self._rolled_back(ids)[2])
        expected = (
            self.model(input_ids=torch.tensor([ids], device=self.device), use_cache=False)
            .logits[0]
            .float()
        )
        if together:
            self._together = False
            _, alone, _ = self._rolled_back(ids)
        self._together = together
        replayed, state, _ = self._rolled_back(ids)
        close = (replayed - expected).norm() <= tolerance(self.model.dtype) * (
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

    def _rolled_back(self, ids: list[int]) -> tuple[torch.Tensor, list[torch.Tensor], DynamicCache]:
        """Logits of a sequence whose last two tokens follow two that were rolled back, the
        states of its first recurrent layer, all float32, and its cache."""
        row = _Row()
        first, _ = self._read(row, ids[:-2], ())
        self._read(row, ids[:2], ())
        row.keep(len(ids) - 2)
        last, _ = self._read(row, ids[-2:], ())
        cache = cast(DynamicCache, row.now)
        layers = (
            layer for layer in cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)
        )
        kept = [
            each
            for layer in islice(layers, 1)
            for each in (*layer.conv_states.values(), *layer.recurrent_states.values())
        ]
        states = [each.float() for each in kept if each is not None]
        return torch.cat([first, last]).float(), states, cache

    def _read(
        self, row: _Row, token_ids: list[int], layers: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """A row reads tokens, after those that it must replay; logits `[num_tokens,
        vocab_size]`, and features or None."""
        behind = len(row.tokens) - row.num_before
        if (
            len(token_ids) > 1 or behind >= _MOST_REPLAYED or row.num_now > len(row.tokens)
        ):  # a drafter's single tokens are rolled back together
            row.settle()
        state, row.now = row.now, None  # a forward that fails leaves the state before it
        cropped_from, replayed, start = row.num_before, list[int](), len(row.tokens)
        if row.crops:
            row.num_before = 0  # after it everything is read again
        if state is None:
            state = self._new_state() if row.before is None else copied(row.before)
            replayed, start = row.tokens[row.num_before :], row.num_before
            if len(replayed) > _MOST_REPLAYED and not self._crops:
                self._compute_state(replayed, state, (), start)
                row.before, row.num_before, replayed, start = (
                    copied(state),
                    len(row.tokens),
                    [],
                    len(row.tokens),
                )
        logits, features = self._compute_state(replayed + token_ids, state, layers, start)
        if self._crops:
            row.crops, row.num_before = True, 0 if replayed else cropped_from
        row.tokens, row.now = row.tokens + token_ids, state
        row.num_now = len(row.tokens)
        return logits[len(replayed) :], None if features is None else features[len(replayed) :]

    def _new_state(self) -> DynamicCache:
        state = DynamicCache(config=self.config)
        if self._crops:
            state.activate_past_recording()
        return state

    def _compute_state(
        self, token_ids: list[int], state: DynamicCache, layers: Sequence[int], start: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits and features of tokens that follow a state, which moves on, after `start`
        tokens: in one forward, or one by one."""
        query = torch.tensor([token_ids], device=self.device)
        positions = torch.arange(start, start + len(token_ids), device=self.device)[None]
        size, parts = len(token_ids) if self._together or not start else 1, []
        for part, at in zip(query.split(size, dim=1), positions.split(size, dim=1), strict=True):
            options = {self._cache_argument: state} | (
                {"position_ids": at} if self._takes_positions else {}
            )
            with hidden_states(self.model, layers) as states:
                output = self.model(input_ids=part, use_cache=True, **options)
            parts.append((output.logits[0], [states[layer][0] for layer in layers]))
        logits = torch.cat([own for own, _ in parts])
        return logits, torch.cat([torch.cat(own, dim=-1) for _, own in parts]) if layers else None
