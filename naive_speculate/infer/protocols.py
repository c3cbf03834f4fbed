"""Protocols of language models, caches and inference engines. Nothing has to inherit from them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from naive_speculate.infer.ragged_cache import BatchCache
from naive_speculate.infer.ragged_cache import KVCache as KVCache
from naive_speculate.infer.ragged_cache import KVState as KVState
from naive_speculate.sampling.strategy import SampleStrategy, TokenSampler


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
class MakesCaches(Protocol):
    """What computes over a cache of its own kind: a language model, or a draft head."""

    @property
    def device(self) -> torch.device:
        """Where the logits are."""

    def new_cache(self, batch_size: int) -> BatchCache:
        """A cache for `batch_size` rows."""

    def recycle(self, cache: Any) -> None:
        """Take back a cache of `new_cache` whose rows are all free, for a later one; a model may
        ignore it."""


@runtime_checkable
class BatchLanguageModel(LanguageModel, MakesCaches, Protocol):
    """A language model that decodes rows of different lengths in one forward.

    Its `forward` takes a cache of `new_cache` or some of its rows. `as_batch_model` completes a
    model that has `new_cache`, `device`, `vocab_size` and `max_positions` only: such a model
    takes neither lengths nor trees, and its caches are not recycled.
    """

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""

    @property
    def max_positions(self) -> int | None:
        """Most tokens of a sequence; None if there is no limit."""

    @property
    def takes_lengths(self) -> bool:
        """Whether `forward` leaves out the padding after each row's `lengths`."""

    @property
    def takes_trees(self) -> bool:
        """Whether the cache of a forward may be `TreeRows`."""

    def forward(
        self,
        query_token_ids: torch.Tensor,
        kv_cache: KVCache,
        *,
        num_logits: int | None = None,
        layers: Sequence[int] = (),
        lengths: Sequence[int] | None = None,
    ) -> Any:
        """See `LanguageModel.forward`; with three more arguments.

        Args:
            query_token_ids, kv_cache: As there.
            num_logits: Number of last positions with logits; None for all.
            layers: Hidden states to return: i for the residual stream after i decoder layers,
                from the embeddings (0) to the input of the final norm.
            lengths: The tokens per row without padding; None for all. A model may compute and
                store padding nevertheless (see `takes_lengths`).

        Returns:
            torch.Tensor: The logits; with `layers`, a pair of logits and features: the hidden
                states at every query position, concatenated in the order of `layers`, shape
                `[batch_size, num_query_tokens, len(layers) * hidden_size]`, in the model's
                dtype.

        Raises:
            ValueError: If a layer does not exist.
        """


@runtime_checkable
class Head(Protocol):
    """What drafts from what the target computed: a draft head, a block drafter, an assistant.

    Attributes:
        role: Its name among a pair's models: "head", "block" or "assistant".
        name: Its folder or Hub id.
        layers: The target's hidden states that it reads; see `BatchLanguageModel.forward`.
        num_parameters: Number of parameters without embeddings.
    """

    @property
    def role(self) -> str: ...

    name: str
    layers: tuple[int, ...]
    num_parameters: int

    def check_target(self, target: Any) -> None:
        """Raise a `ValueError` naming the difference if it was made for another target."""


class Translation(Protocol):
    """From a target's tokens to those of a draft with another tokenizer.

    Attributes:
        to_draft: The draft's token for each token that both have.
        counts: How many tokens are `shared`, and how many `target` and `draft` have.
    """

    to_draft: dict[int, int]
    counts: dict[str, int]


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
