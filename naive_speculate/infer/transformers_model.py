"""Any causal language model of transformers with rollback-able attention caches, as a
`BatchLanguageModel`."""

import copy
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from typing import Any, cast

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, LinearAttentionCacheLayerMixin
from transformers.modeling_layers import GradientCheckpointingLayer

from naive_speculate.infer.end_tokens import HasEndTokens, end_tokens
from naive_speculate.infer.forward import (
    check_layers,
    check_query,
    forward_each_row,
    keeps_contract,
)
from naive_speculate.infer.ragged_cache import CacheRows, RaggedKVCache

_ATTENTION_KINDS = {"full_attention", "sliding_attention"}
_PROBE_TOKENS = 6
_PROBE_PADDING = 32
_log = logging.getLogger(__name__)


class TransformersLanguageModel(HasEndTokens):
    """Wraps a `PreTrainedModel`.

    Every forward gets explicit positions and attention masks. So rows of different lengths share
    one forward, and layers with a sliding window store all their keys (the mask applies the
    window) and can be rolled back. Some models ignore positions and masks (positions counted by
    the cache, ALiBi); they process rows of different lengths one by one. `probe` decides.

    Where the rotary frequencies depend on the sequence length (LongRoPE, dynamic NTK),
    `max_positions` is the length at which they change, since cached keys are invalid beyond it.

    Args:
        model: A decoder-only model, on its device, in its dtype. It stays in the mode it is in,
            training or not, and is always computed as in evaluation. Of a model that
            `torch.compile` made, the original is computed.

    Attributes:
        name: Its folder or Hub id, or its class.
        max_positions: Most tokens of a sequence; None where the configuration has no limit.
        load_mtp: Loads the multi-token prediction layers of its checkpoint as a draft head; None
            where it has none. `wrap` sets it.
        vocab_size, hidden_size, num_layers: Width of the logits, width of the hidden states,
            number of decoder layers.

    Raises:
        ValueError: If the model's state cannot be rolled back (see `RecurrentLanguageModel`), or
            it is not decoder-only, or none of transformers.
    """

    load_mtp: Callable[[], Any] | None = None
    _cache_name, _one_by_one_of = "a cache", "rows of different lengths"  # in messages

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = evaluating(pretrained(model))
        model = self.model
        self.name: str = model.name_or_path or type(model).__name__
        self.config = model.config.get_text_config(decoder=True)
        self.described = f"{self.name} ({self.config.model_type})"
        if model.config.is_encoder_decoder:
            raise ValueError(
                f"model {self.described} is an encoder-decoder; a decoder-only model is needed"
            )
        self.check_state()
        self.eos_token_ids  # noqa: B018 - raises if they are no token ids
        self.vocab_size: int = self.config.vocab_size
        self.hidden_size: int = self.config.hidden_size
        self.num_layers: int = self.config.num_hidden_layers
        layer_types = getattr(self.config, "layer_types", None)
        self._mixed_layers = layer_types is not None and "sliding_attention" in layer_types
        self._window: int | None = getattr(self.config, "sliding_window", None)
        if getattr(self.config, "use_sliding_window", True) is False or (
            layer_types is not None and not self._mixed_layers
        ):
            self._window = None
        self.max_positions = _max_positions(self.config)
        if self.max_positions != getattr(self.config, "max_position_embeddings", None):
            _log.warning(
                "%s is limited to %d positions, since its rotary frequencies change there",
                self.name,
                self.max_positions,
            )
        self._cache_argument = cache_argument(model)
        self._mode: bool | None = None  # what `probe` has decided

    def check_state(self) -> None:
        """Raise a `ValueError` if the model's state cannot be rolled back by removing keys and
        values."""
        if not rolls_back(self.model):
            raise ValueError(
                f"model {self.described} has a recurrent state: it cannot be rolled back; use"
                " `wrap`"
            )

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """All end-of-sequence tokens, see `end_tokens`; may be empty."""
        return end_tokens(
            getattr(self.model, "generation_config", None), self.model.config, self.name
        )

    @property
    def device(self) -> torch.device:
        """The device of the model's input."""
        return self.model.device

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def input_embeddings(self) -> torch.Tensor:
        """The embedding table, shape `[vocab_size, hidden_size]`."""
        return cast(torch.Tensor, self.model.get_input_embeddings().weight).detach()

    @property
    def output_embeddings(self) -> torch.Tensor:
        """The matrix before the logits, shape `[vocab_size, hidden_size]`."""
        return cast(torch.Tensor, self.model.get_output_embeddings().weight).detach()

    def new_cache(self, batch_size: int) -> RaggedKVCache:
        """An empty cache for `batch_size` rows."""
        return RaggedKVCache(batch_size)

    def recycle(self, cache: Any) -> None:
        """See `MakesCaches.recycle`; its caches are not kept."""

    @property
    def takes_lengths(self) -> bool:
        """Whether a forward computes each row alone; it then takes each row's number of tokens,
        and computes no padding."""
        self.probe()
        return not self._mode

    @keeps_contract
    @torch.no_grad()
    def forward(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: Any,
        *,
        num_logits: int | None = None,
        layers: Sequence[int] = (),
        lengths: Sequence[int] | None = None,
    ) -> Any:
        """See `BatchLanguageModel.forward`; the cache is of `new_cache`, a choice of its rows,
        or any `KVCache` if the state can be rolled back. `lengths`, if rows are computed one by
        one, are the tokens per row without padding.

        Raises:
            ValueError: If the query has another shape or other rows than the cache, the cache is
                of another kind, all rows exceed `max_positions`, a layer is missing, or the
                model's logits with a cache differ from those of its own forward (see `probe`).
        """
        check_query(query_token_ids)
        batch_size, num_new = query_token_ids.shape
        counts, takes_lengths = lengths or [num_new] * batch_size, self.takes_lengths
        rows = self._rows(kv_cache, batch_size)
        ends = [length + count for length, count in zip(rows.lengths, counts, strict=True)]
        reached = (max if takes_lengths else min)(ends)  # padding may exceed the last position
        if self.max_positions is not None and reached > self.max_positions:
            raise ValueError(
                f"query_token_ids reaches {reached} tokens, {self.name} can take"
                f" {self.max_positions}"
            )
        if takes_lengths:
            one = partial(self._compute_row, rows, num_logits or num_new, layers)
            logits, features = forward_each_row(query_token_ids, counts, num_logits, one)
            if isinstance(rows, CacheRows):
                rows.give(num_new)
        else:
            logits, features = self._compute(query_token_ids, rows, num_logits or 0, True, layers)
        return logits if features is None else (logits, features)

    def _rows(self, kv_cache: Any, batch_size: int) -> Any:
        return CacheRows.of(kv_cache, batch_size)

    def _compute_row(
        self, rows: Any, num_logits: int, layers: Sequence[int], index: int, token_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One row's forward over tokens `[num_tokens]`; see `forward_each_row`."""
        row = rows.cache.rows([rows.indices[index]])
        logits, features = self._compute(
            token_ids[None], row, min(num_logits, len(token_ids)), False, layers
        )
        return logits[0], None if features is None else features[0]

    @property
    def takes_trees(self) -> bool:
        """Whether the cache of a forward may be `TreeRows`: models that accept our masks take
        them."""
        return not self.takes_lengths

    def probe(self) -> None:
        """Decide by a few small forwards which of its two ways the model can go: whether it
        accepts our masks, for rows of different lengths, or only its own.

        The first forward calls it; call it earlier to do this while loading.

        Raises:
            ValueError: If neither gives the logits of the model's own forward over the whole
                sequence.
        """
        if self._mode is not None:
            return
        obstacles: list[str] = []
        for mode in (True, False):
            try:
                obstacle = self._obstacle(mode)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # a model may raise anything
                obstacle = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            if obstacle is None:
                self._mode = mode
                if not mode:
                    _log.info(
                        "%s processes %s one by one: %s",
                        self.name,
                        self._one_by_one_of,
                        obstacles[0],
                    )
                return
            obstacles.append(obstacle)
        raise ValueError(
            f"model {self.described} cannot be decoded with {self._cache_name}: {obstacles[-1]}"
        )

    def _obstacle(self, by_mask: bool) -> str | None:
        """Why the model cannot run with our masks (`by_mask`) or its own; None if its logits
        with and without a cache agree. With our masks they must agree about as well as with its
        own: the logits of a small model or of random weights depend little on positions, so that
        wrong ones are within their tolerance."""
        dtype, deviation = self.model.dtype, self._deviation(by_mask)
        allowed = tolerance(dtype)
        if by_mask and allowed >= deviation > rounding(dtype):
            allowed = min(allowed, max(rounding(dtype), 3 * self._deviation(False)))
        if deviation <= allowed:
            return None
        return "its logits are not those of its own forward" + (
            " for rows of different lengths" if by_mask else ""
        )

    @torch.no_grad()
    def _deviation(self, by_mask: bool) -> float:
        """How far its logits with a cache are from those without, as a share of their spread."""
        config, device = self.config, self.device
        ids = torch.tensor([probe_tokens(self)], device=device)
        count = ids.shape[1]
        expected = self.model(input_ids=ids, use_cache=False).logits[0].float()
        cache = self.new_cache(2)
        # the longer row's keys are zeros; local attention must not reach from its end to the other
        # row
        if by_mask:
            padding = _PROBE_PADDING + (getattr(config, "window_size", None) or 0)
            cache.lengths[0] = (
                padding if self.max_positions is None else min(padding, self.max_positions - count)
            )
        rows = cache.all_rows() if by_mask else cache.rows([1])
        parts = []
        for part in ids.split(max(1, count - 2), dim=1):
            query = part.expand(len(rows.indices), -1)
            parts.append(self._compute(query, rows, 0, by_mask)[0][-1].float())
        finite = expected.isfinite()
        difference = (torch.cat(parts) - expected)[finite].norm()
        spread = (expected - expected[finite].mean())[finite].norm()
        return float(difference / spread) if finite.any() and difference != 0 else 0.0

    def _compute(
        self,
        query_token_ids: torch.Tensor,
        rows: CacheRows,
        num_logits: int,
        by_mask: bool,
        layers: Sequence[int] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        num_new, device = query_token_ids.shape[1], query_token_ids.device
        layout: dict[str, Any] = {}
        if by_mask:
            positions = rows.positions(num_new, device)
            if self.max_positions is not None:
                positions = positions.clamp(
                    max=self.max_positions - 1
                )  # padding may exceed the last position
            layout = {
                "position_ids": positions,
                "attention_mask": self._masks(rows, num_new, device),
            }
        else:  # for models that derive positions and biases from such a mask
            layout = {
                "attention_mask": query_token_ids.new_ones(
                    len(rows.indices), rows.get_num_tokens() + num_new
                )
            }
        with hidden_states(self.model, layers) as states:
            store = RaggedStore(rows)
            output = self.model(
                input_ids=query_token_ids,
                use_cache=True,
                logits_to_keep=self._kept(num_logits, num_new) if layers else num_logits,
                **layout | {self._cache_argument: store},
            )
        rows.advance(num_new)
        logits = cast(torch.Tensor, output.logits)
        features = (
            torch.cat([states[layer].to(logits.device) for layer in layers], dim=-1)
            if layers
            else None
        )
        return logits, features

    def _kept(self, num_logits: int, num_new: int) -> int | torch.Tensor:
        """Which positions have logits. Where layers share keys and values, a number would leave
        the other positions out of these layers (transformers 5.23, Gemma 4), and so out of their
        hidden states."""
        if not num_logits or not getattr(self.config, "num_kv_shared_layers", 0):
            return num_logits
        return torch.arange(num_new - num_logits, num_new, device=self.device)

    def _masks(
        self, rows: CacheRows, num_new: int, device: torch.device
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        window = additive_mask(rows, num_new, device, self.model.dtype, self._window)
        if self._mixed_layers:
            return {
                "full_attention": additive_mask(rows, num_new, device, self.model.dtype),
                "sliding_attention": window,
            }
        return window


def cache_argument(module: nn.Module) -> str:
    """The name of a forward's cache: `cache` since transformers 5.24, and before it
    `past_key_values`, or `cache_params` in models without attention. Some forwards ignore names
    that they do not have."""
    taken = signature(module.forward).parameters
    return next((name for name in ("cache", "cache_params") if name in taken), "past_key_values")


def pretrained(model: Any) -> PreTrainedModel:
    """A model of transformers, the original one if `torch.compile` made it. Raises `ValueError`
    if it is something else."""
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            "model must be a causal language model of transformers (a PreTrainedModel),"
            f" got {type(model).__name__}"
        )
    return model


def evaluating(model: PreTrainedModel) -> PreTrainedModel:
    """The model, or if it is being trained, a copy of its modules in evaluation mode that shares
    its parameters and buffers."""
    if not any(module.training for module in model.modules()):
        return model
    copies: dict[nn.Module, nn.Module] = {}
    for module in model.modules():
        copies[module] = copy.copy(module)
        copies[module].training = False
    for module, own in copies.items():
        own.__dict__["_modules"] = {
            name: None if child is None else copies[child]
            for name, child in module._modules.items()
        }
    return cast(PreTrainedModel, copies[model])


def additive_mask(
    rows: CacheRows,
    num_new: int,
    device: torch.device,
    dtype: torch.dtype,
    window: int | None = None,
) -> torch.Tensor:
    """`CacheRows.mask` as numbers that are added to scores: 0 where attention is allowed, else
    the least number."""
    allowed = rows.mask(num_new, device, window)
    return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, torch.finfo(dtype).min)


def tolerance(dtype: torch.dtype) -> float:
    """How far the logits of two right forwards may be apart, as a share of their spread."""
    return 0.01 if dtype in (torch.float32, torch.float64) else 0.25


def rounding(dtype: torch.dtype) -> float:
    """How far the logits of two right forwards are apart by rounding alone in most models, as a
    share of their spread."""
    return 1e-4 if dtype in (torch.float32, torch.float64) else 0.02


def probe_tokens(model: TransformersLanguageModel) -> list[int]:
    """A few usual tokens, to compare forwards with and without a cache."""
    special = {getattr(model.config, "pad_token_id", None), *model.eos_token_ids}
    usual = [
        token for token in range(min(model.vocab_size, 4 * _PROBE_TOKENS)) if token not in special
    ] or [0]
    return (usual * _PROBE_TOKENS)[: min(_PROBE_TOKENS, model.max_positions or _PROBE_TOKENS)]


def rolls_back(model: PreTrainedModel) -> bool:
    """Whether the model's state is keys and values of attention only, from which the last tokens
    can be removed."""
    config = model.config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or []) - _ATTENTION_KINDS
    recurrent = getattr(model, "_is_stateful", False) or any(
        isinstance(layer, LinearAttentionCacheLayerMixin)
        for layer in DynamicCache(config=config).layers
    )
    return not (recurrent or kinds)


def _max_positions(config: Any) -> int | None:
    """Number of positions, at most the length at which rotary frequencies change."""
    limits = [getattr(config, "max_position_embeddings", None)]
    parameters = getattr(config, "rope_parameters", None) or {}
    for rope in (parameters, *parameters.values()):  # one set, or one for each kind of layer
        if (
            isinstance(rope, dict) and rope.get("rope_type") == "longrope"
        ):  # dynamic NTK changes at max_position_embeddings
            limits.append(rope.get("original_max_position_embeddings"))
    return min((limit for limit in limits if limit is not None), default=None)


class RaggedStore(Cache):
    """The cache of transformers' attention layers: writes in place, at each row's end."""

    def __init__(self, rows: CacheRows) -> None:
        super().__init__(layers=[])
        self.rows = rows

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *_: Any, **__: Any) -> Any:
        return self.rows.write(layer_idx, key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.rows.get_num_tokens()

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.get_seq_length(layer_idx) + query_length, 0


@contextmanager
def hidden_states(
    model: PreTrainedModel, layers: Sequence[int]
) -> Iterator[dict[int, torch.Tensor]]:
    """A context in which this thread's forward of a decoder-only model stores the residual
    stream after so many decoder layers, 0 for the embeddings, in a dictionary. Raises
    `ValueError` if a layer does not exist, or the layers cannot be found.

    Hooks are needed: transformers' `output_hidden_states` returns the last one only after the
    final norm.
    """
    by_layer: dict[int, torch.Tensor] = {}
    if not layers:
        yield by_layer
        return
    modules = _decoder_layers(model)
    check_layers(layers, len(modules))
    thread = threading.get_ident()  # other threads may use the model at the same time

    def store(layer: int, states: Any) -> None:
        if threading.get_ident() == thread:
            by_layer[layer] = states[0] if isinstance(states, tuple) else states

    def store_input(_module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        store(0, inputs or options.get("hidden_states"))

    with ExitStack() as hooks:
        for layer in set(layers):
            if layer == 0:
                hook = modules[0].register_forward_pre_hook(store_input, with_kwargs=True)
            else:
                hook = modules[layer - 1].register_forward_hook(
                    lambda _, _inputs, output, layer=layer: store(layer, output)
                )
            hooks.callback(hook.remove)
        yield by_layer


def _decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    for module in model.get_decoder().modules():
        if isinstance(module, nn.ModuleList) and all(
            isinstance(layer, GradientCheckpointingLayer) for layer in module
        ):
            return list(module)
    raise ValueError(f"layers: {type(model).__name__} has no list of decoder layers")
