"""Protocols of language models, caches and inference engines. Nothing has to inherit from them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from naive_speculate.infer.rows import BatchCache
from naive_speculate.sampling.strategy import SampleStrategy, TokenSampler


class KVState(NamedTuple):
    """Keys and values of one transformer layer.

    Attributes:
        keys, values: Shape `[batch_size, num_attention_heads, num_tokens, head_dim]`.
    """

    keys: torch.Tensor
    values: torch.Tensor


class PrefillOutput(NamedTuple):
    """Output of `Inferencer.prefill`.

    Attributes:
        token_ids: The new token ids, int64, shape `[batch_size, 1]`.
        token_logits: The logits at the query positions, shape `[batch_size, num_query_tokens,
            vocab_size]`.
    """

    token_ids: torch.Tensor
    token_logits: torch.Tensor


class DecodeOutput(NamedTuple):
    """Output of `Inferencer.decode`.

    Attributes:
        token_ids: The new token ids, int64, shape `[batch_size, num_generated_tokens]`.
        token_logits: What the new tokens were sampled from, shape `[batch_size,
            num_generated_tokens, vocab_size]`.
    """

    token_ids: torch.Tensor
    token_logits: torch.Tensor


@runtime_checkable
class KVCache(Protocol):
    """Stores the keys and values of every layer, for the tokens that a model has processed."""

    def update(self, kv_states: Sequence[KVState]) -> None:
        """Append the keys and values of new tokens, one entry per layer; all tensors have the
        same shape."""

    def get_kv_states(self) -> list[KVState]:
        """The stored keys and values, one entry per layer; `[]` before the first update."""

    def get_num_tokens(self) -> int:
        """Number of tokens stored."""

    def crop(self, num_tokens_crop: int) -> None:
        """Remove the last `num_tokens_crop` tokens. Raises `ValueError` if it is negative or
        exceeds the number of stored tokens."""


@runtime_checkable
class LanguageModel(Protocol):
    """Computes logits for tokens, given a cache of the tokens before them."""

    @property
    def eos_token_id(self) -> int:
        """Id of the end-of-sequence token in the model's configuration. Raises `ValueError` if
        the configuration has none."""

    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache) -> torch.Tensor:
        """Compute the logits at every query position and add the query's keys and values to the
        cache.

        Args:
            query_token_ids: int64, shape `[batch_size, num_query_tokens]`; the tokens that
                follow the cached ones.
            kv_cache: Holds the keys and values of all tokens before the query.

        Returns:
            torch.Tensor: Shape `[batch_size, num_query_tokens, vocab_size]`; position i gives
                the logits of token i + 1.
        """


@runtime_checkable
class BatchLanguageModel(LanguageModel, Protocol):
    """A language model that decodes rows of different lengths in one forward.

    Its `forward` takes a cache of `new_cache` or some of its rows. An optional method
    `recycle(cache)` takes back a cache whose rows are all free.
    """

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""

    @property
    def max_positions(self) -> int | None:
        """Most tokens of a sequence; None if there is no limit."""

    @property
    def device(self) -> torch.device:
        """Where the logits are."""

    def new_cache(self, batch_size: int) -> BatchCache:
        """A cache for `batch_size` rows."""

    def forward(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: KVCache,
        *,
        num_logits: int | None = None,
        layers: Sequence[int] = (),
    ) -> Any:
        """See `LanguageModel.forward`; with two more arguments.

        Args:
            query_token_ids, kv_cache: As there.
            num_logits: Number of last positions with logits; None for all.
            layers: Hidden states to return: i for the residual stream after i decoder layers,
                from the embeddings (0) to the input of the final norm.

        Returns:
            torch.Tensor: The logits; with `layers`, a pair of logits and features: the hidden
                states at every query position, concatenated in the order of `layers`, shape
                `[batch_size, num_query_tokens, len(layers) * hidden_size]`, in the model's
                dtype.

        Raises:
            ValueError: If a layer does not exist.
        """


class Inferencer(Protocol):
    """Processes tokens and generates new ones with a sampling strategy."""

    def prefill(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: KVCache,
        sample_strategy: SampleStrategy | TokenSampler,
    ) -> PrefillOutput:
        """Process the query in parallel and generate one token.

        Args:
            query_token_ids: int64, shape `[batch_size, num_query_tokens]`, at least one token.
            kv_cache: Holds the tokens before the query; gains the query's.
            sample_strategy: How the new token is chosen from the last position's logits.
        """

    def decode(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: KVCache,
        max_new_tokens: int,
        sample_strategy: SampleStrategy | TokenSampler,
    ) -> DecodeOutput:
        """Process one token and generate up to `max_new_tokens` more, one by one.

        Stops at `max_new_tokens` or at an end-of-sequence token, which is part of the output;
        with several rows, when every row has had one. The cache gains the query and all new
        tokens but the last, which is not processed.

        Args:
            query_token_ids: int64, shape `[batch_size, 1]`.
            kv_cache: Holds the tokens before the query.
            max_new_tokens: Limit on new tokens, positive.
            sample_strategy: How tokens are chosen.

        Raises:
            ValueError: If `max_new_tokens` is not positive.
        """
