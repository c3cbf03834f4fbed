"""Events: the complete output of a speculative run.

A run is a stream of `Event`. Command line, page, metrics and saved traces are functions of it
alone. One flat record serves every kind; fields that do not apply are None and are left out of
the JSON.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainSerializer, TypeAdapter, with_config

SCHEMA_VERSION = 1


class EventKind(StrEnum):
    """What happened. Members compare equal to their strings."""

    STARTED = "started"
    PROPOSED = "proposed"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DISCARDED = "discarded"
    RESAMPLED = "resampled"
    BONUS = "bonus"
    STEP = "step"
    FINISHED = "finished"


# kinds that concern one token
TOKEN_KINDS = frozenset(EventKind) - {EventKind.STARTED, EventKind.STEP, EventKind.FINISHED}

OUTPUT_KINDS = frozenset({EventKind.ACCEPTED, EventKind.RESAMPLED, EventKind.BONUS})
"""Kinds whose joined `text` is the generated text, and whose `token_id` are the generated
tokens."""
VERDICT_KINDS = (EventKind.ACCEPTED, EventKind.REJECTED, EventKind.DISCARDED)
"""Kinds that say what became of a draft token."""
TARGET_KINDS = (EventKind.RESAMPLED, EventKind.BONUS)
"""Kinds of the target's own token, the last of a step."""


class FinishReason(StrEnum):
    """Why a run ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


_FINITE = with_config(ConfigDict(allow_inf_nan=False, ser_json_inf_nan="constants"))
"""For reading traces: JSON has no infinity, not even as a string."""
MAX_TREE = 64  # most nodes of a tree
LOWEST_LOGPROB = -9999.0  # the logarithm of probability 0 in JSON, as in vLLM's server


@_FINITE
@dataclass(slots=True)
class TokenProb:
    """One entry of a list of most probable tokens."""

    token_id: int
    text: str
    prob: float


@_FINITE
@dataclass(slots=True)
class Logprob:
    """A token's log-probability under the raw distribution."""

    # natural logarithm of the probability
    logprob: Annotated[
        float, PlainSerializer(lambda value: max(value, LOWEST_LOGPROB), when_used="json")
    ]
    rank: int  # 1 for the most probable token
    token: str  # the token's text


class TopTokens(list[TokenProb]):
    """The most probable tokens, in descending order."""


_Cost = Annotated[float, Field(ge=0, le=1e4)]
_Rate = Annotated[float, Field(ge=0, le=1e9)]
_Accepted = Annotated[int, Field(ge=0, le=1024)]
_Distance = Annotated[float, Field(ge=0, le=1)]


@_FINITE
@dataclass(slots=True)
class MeasuredSpeedup:
    """The speedup of drafting over plain decoding, measured by decoding a text both ways (see
    `speedup.py`).

    Costs are in target passes over one token.
    """

    # value, low, high: plain seconds per token ÷ seconds per token with drafts, and its 95%
    # interval (in older traces a 90% bootstrap interval)
    value: _Cost
    low: _Cost
    high: _Cost
    # plain_rate, rate: tokens per second of each, without the prompt
    plain_rate: _Rate
    rate: _Rate
    tokens_per_round: _Cost  # mean tokens of a step with drafts
    num_draft_tokens: _Cost  # mean draft tokens per step
    verify_cost: _Cost  # verifying a step's draft tokens
    draft_cost: _Cost | None  # drafting one token; None where nothing was drafted
    tokens: Annotated[int, Field(ge=0, le=10**9)]  # number of timed tokens with drafts
    machine: Annotated[str, Field(max_length=120)]  # the processor or GPU


@_FINITE
@dataclass(slots=True)
class TreeNode:
    """A node of a step's tree of draft tokens."""

    token_id: int
    text: str
    # its parent's index in the tree, lower than its own; -1 for the text
    parent: Annotated[int, Field(ge=-1)]
    kind: Literal["accepted", "rejected", "discarded"]  # discarded: not judged
    # draft_prob, target_prob, accept_prob, uniform: as of an event; `draft_prob` counts earlier
    # siblings in, `accept_prob` not
    draft_prob: float | None = None
    target_prob: float | None = None
    accept_prob: float | None = None
    uniform: float | None = None


@_FINITE
@dataclass(slots=True)
class Event:
    """One thing that happened in a run.

    Attributes:
        kind: What happened.
        row: The sequence of a batch.
        time: Seconds since the run began, monotonic.
        step: Number of the speculative step, from 0.
        index: Index in the window, from 0; a step's last token follows the draft tokens.
        position: Position in the generated text, from 0.
        token_id, token, text: The token, its piece in the vocabulary, and the text that it adds
            to the output.
        draft_prob, target_prob: Probability under draft and target, after temperature, top-p and
            the rest; under greedy decoding, where temperature is ignored, at temperature 1.
        accept_prob: Probability with which the verifier accepts the token.
        expected_accept: The exact α at a draft token's index: the probability, before the token
            was drawn, that the verifier accepts it. It is Σ min(p, q) over the vocabulary, or
            p(token) where the drafter is certain; 1 or 0 under greedy decoding; under typical
            acceptance the draft's mass on tokens above the threshold. Block verification does
            not judge
            tokens one by one: there it is the value of judging this token alone.
        sampled_accept, argmax_accept: Both exact acceptance rates at a draft token's index under
            speculative sampling: Σ min(p, q) if the token is drawn from the draft model's
            distribution q, and p(argmax q) if it is the most probable one. Of draft tokens of a
            model only.
        matched_accept: Σ p·q there: the acceptance rate of a token drawn from q if it must equal
            the target's own draw.
        uniform: The uniform draw r in [0, 1). The token is accepted if r < `accept_prob`. A
            discarded token has its draw too: draws are made for the whole window.
        threshold: Typical acceptance's threshold on `target_prob`.
        draft_top, target_top, residual_top: The most probable tokens of the three distributions.
            A `step` event has the `target_top` after the whole window, if the step has no bonus.
        draft_top_target, target_top_draft: Of a draft token: the target's probability of each
            token of `draft_top`, and the draft's of each token of `target_top`.
        draft_entropy, target_entropy: Entropies of the distributions, in nats.
        logprobs: Of a generated token, if requested: log-probabilities by token id, its own first.
        unknown_to_draft: True if the draft has another tokenizer that lacks the token.
        prompt_logprobs: Of the `finished` event: log-probabilities for each prompt token; None
            for the first.
        copied_from: Of a copied draft token: the position of its source, counted from the
            prompt's first token.
        forced: Under a grammar: "token" if it allows no other token here; "text" for a draft
            token of text that must follow, but that other tokens can spell too.
        reason: Why a token was discarded: "rejected" (an earlier draft token was), "stop" or
            "length".
        num_draft, num_accepted, draft_seconds, verify_seconds, total_seconds: A step's figures.
        `num_accepted` counts the
            draft tokens that the verifier accepted, before any cut by a stop or the length limit.
        others: Of a sampled step in full detail: how many draft tokens each other strategy would
            have accepted with the same draws. Strategies that need draws are missing if the
            run's own makes none.
        typical_distances: Of the same steps, per index: total variation between the target's
            distribution and the output of typical acceptance, given that earlier draft tokens
            were accepted.
        tree: Of a step with a tree of draft tokens: all its nodes. The step's draft tokens are
            then the accepted path and the first children below it.
        schema_version, prompt, prompt_token_ids, prompt_texts, settings, seed, models, device,
        cost_table: The inputs of a run.
        prompt_words: Which tokens of `prompt_token_ids` have the words of the prompt, or of its
            messages, as the index of the first one and the index after the last one; the others
            are the chat template's or the tokenizer's. None if all have.
        weights: A description of the target's weights, where its name is not enough: "Q4_1
            weights, dequantised".
        vocabularies: If the draft has another tokenizer: the numbers of tokens that both have
            ("shared"), of the target and of the draft.
        head_layers, target_layers: If the drafter reads hidden states of the target: the number
            of target layers before each, and the target's depth, if known.
        finish_reason, metrics, message: How the run ended; `message` describes an error.
        speedup: Of a `finished` event, if measured afterwards: the speedup of drafting.
        stop_reason: As in vLLM: the stop string or the id of the stop token; None for the
            model's own end token.
    """

    kind: EventKind
    row: int = 0
    time: float = 0.0
    step: int | None = None
    index: int | None = None
    position: int | None = None
    token_id: int | None = None
    token: str | None = None
    text: str | None = None
    draft_prob: float | None = None
    target_prob: float | None = None
    accept_prob: float | None = None
    uniform: float | None = None
    threshold: float | None = None
    draft_top: Sequence[TokenProb] | None = None
    target_top: Sequence[TokenProb] | None = None
    residual_top: Sequence[TokenProb] | None = None
    draft_entropy: float | None = None
    target_entropy: float | None = None
    reason: str | None = None
    num_draft: int | None = None
    num_accepted: int | None = None
    draft_seconds: float | None = None
    verify_seconds: float | None = None
    total_seconds: float | None = None
    schema_version: int | None = None
    prompt: str | None = None
    prompt_token_ids: list[int] | None = None
    prompt_texts: list[str] | None = None
    prompt_words: list[tuple[int, int]] | None = None
    settings: dict[str, Any] | None = None
    seed: int | None = None
    models: dict[str, str] | None = None
    weights: str | None = None
    device: str | None = None
    cost_table: dict[str, Any] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    metrics: dict[str, Any] | None = None
    message: str | None = None
    logprobs: dict[int, Logprob] | None = None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    copied_from: int | None = None
    vocabularies: dict[str, int] | None = None
    unknown_to_draft: bool | None = None
    speedup: MeasuredSpeedup | None = None
    head_layers: list[int] | None = None
    target_layers: int | None = None
    others: dict[str, _Accepted] | None = None
    typical_distances: list[_Distance] | None = None
    expected_accept: float | None = None
    draft_top_target: list[float] | None = None
    target_top_draft: list[float] | None = None
    sampled_accept: float | None = None
    argmax_accept: float | None = None
    matched_accept: float | None = None
    forced: Literal["token", "text"] | None = None
    tree: Annotated[list[TreeNode], Field(max_length=MAX_TREE)] | None = None

    def to_dict(self, without: Collection[str] = ()) -> dict[str, Any]:
        """The event as plain JSON values, without fields that are None and without those named."""
        values = _EVENT.dump_python(self, mode="json", exclude=set(without), warnings=False)
        return {name: value for name, value in values.items() if value is not None}


_EVENT, _LOGPROBS = TypeAdapter(Event), TypeAdapter(list[dict[int, Logprob] | None])


def parse(data: dict[str, Any]) -> Event:
    """An event from plain JSON values. Raises pydantic's `ValidationError`."""
    return _EVENT.validate_python(data)


def plain_logprobs(entries: Sequence[Mapping[int, Logprob] | None]) -> list[Any]:
    """Log-probabilities by token id as plain JSON values, one entry per token."""
    return _LOGPROBS.dump_python(
        [None if entry is None else dict(entry) for entry in entries], mode="json"
    )
