"""Events: everything that a speculative run tells the world.

A run is a stream of `Event`. The command line, the page, the metrics and a saved trace are functions of it and of nothing
else. One flat record serves every kind; fields that do not apply are None and are left out of the JSON.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Annotated, Any, overload

from pydantic import ConfigDict, Field, with_config

SCHEMA_VERSION = 1


class EventKind(StrEnum):
    """What happened. Members compare equal to their strings."""

    __hash__ = str.__hash__  # an enum's own is a call of Python, and every event is looked up several times

    STARTED = "started"
    PROPOSED = "proposed"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DISCARDED = "discarded"
    RESAMPLED = "resampled"
    BONUS = "bonus"
    STEP = "step"
    FINISHED = "finished"


TOKEN_KINDS = frozenset(EventKind) - {EventKind.STARTED, EventKind.STEP, EventKind.FINISHED}
"""Kinds that speak of one token."""

OUTPUT_KINDS = frozenset({EventKind.ACCEPTED, EventKind.RESAMPLED, EventKind.BONUS})
"""Kinds whose joined `text` is the generated text, and whose `token_id` are the generated tokens."""


class FinishReason(StrEnum):
    """Why a run ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


_FINITE = with_config(ConfigDict(allow_inf_nan=False))
"""Where a trace is read: JSON knows no infinity, even between quotation marks."""


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
    """A token's log-probability under the raw distribution.

    Attributes:
        logprob: Natural logarithm of the probability.
        rank: 1 for the most probable token.
        token: The token's text.
    """

    logprob: float
    rank: int
    token: str


LOWEST_LOGPROB = -9999.0
"""What JSON is told of a probability of 0, as vLLM's server does."""


def plain_logprobs(entry: Mapping[int, Logprob]) -> dict[str, Any]:
    """Log-probabilities by token id as plain JSON values."""
    return {
        str(token): {"logprob": max(p.logprob, LOWEST_LOGPROB), "rank": p.rank, "token": p.token} for token, p in entry.items()
    }


class TopTokens(Sequence[TokenProb]):
    """Most probable tokens, in that order; entries are made when somebody looks at them, which for most lists nobody does."""

    __slots__ = ("_probs", "_text_of", "_token_ids")

    def __init__(self, token_ids: list[int], probs: list[float], text_of: Callable[[int], str]) -> None:
        self._token_ids, self._probs, self._text_of = token_ids, probs, text_of

    @overload
    def __getitem__(self, index: int) -> TokenProb: ...

    @overload
    def __getitem__(self, index: slice) -> list[TokenProb]: ...

    def __getitem__(self, index: int | slice) -> TokenProb | list[TokenProb]:
        if isinstance(index, slice):
            return list(self)[index]
        token = self._token_ids[index]
        return TokenProb(token, self._text_of(token), self._probs[index])

    def __iter__(self) -> Iterator[TokenProb]:
        return map(TokenProb, self._token_ids, map(self._text_of, self._token_ids), self._probs)

    def __len__(self) -> int:
        return len(self._token_ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored_top, (self._token_ids, self._probs, [self._text_of(token) for token in self._token_ids])


def _restored_top(token_ids: list[int], probs: list[float], texts: list[str]) -> TopTokens:
    return TopTokens(token_ids, probs, dict(zip(token_ids, texts, strict=True)).__getitem__)


_Cost = Annotated[float, Field(ge=0, le=1e4)]
_Rate = Annotated[float, Field(ge=0, le=1e9)]
_Kept = Annotated[int, Field(ge=0, le=1024)]
_Distance = Annotated[float, Field(ge=0, le=1)]


@_FINITE
@dataclass(slots=True)
class MeasuredSpeedup:
    """How much sooner the same text came with drafts than without, measured by decoding it both ways (see `speedup.py`).

    Costs are in passes of the target over one token.

    Attributes:
        value, low, high: Plain seconds a token ÷ seconds a token with drafts, and the range in which it lies for 9 of 10
            draws among the rounds that were timed.
        plain_rate, rate: Tokens a second of either, the prompt apart.
        tokens_per_round: Tokens that a round with drafts gave on average.
        num_draft_tokens: Drafts a round, on average.
        verify_cost: Checking a round's drafts.
        draft_cost: Drafting one token; None where nothing was drafted.
        tokens: How many tokens with drafts were timed.
        machine: What computed.
    """

    value: _Cost
    low: _Cost
    high: _Cost
    plain_rate: _Rate
    rate: _Rate
    tokens_per_round: _Cost
    num_draft_tokens: _Cost
    verify_cost: _Cost
    draft_cost: _Cost | None
    tokens: Annotated[int, Field(ge=0, le=10**9)]
    machine: Annotated[str, Field(max_length=120)]


@_FINITE
@dataclass(slots=True)
class Event:
    """One thing that happened in a run.

    Attributes:
        kind: What happened.
        row: Which sequence of a batch it happened to.
        time: Seconds since the run began, monotonic.
        step: Number of the speculative step, from 0.
        index: Place in the draft window, from 0; a step's next token comes after the drafts.
        position: Place in the generated sequence, from 0.
        token_id, token, text: The token, the vocabulary's piece, and the text that it adds to the output.
        draft_prob, target_prob: Probability under draft and target, after temperature, top-p and the rest; under greedy
            decoding, where temperature is ignored, at temperature 1.
        accept_prob: Probability with which the verifier keeps the token.
        expected_accept: Of a draft, its place's exact α: how probable it was, before a token was drawn there, that the verifier
            would keep the one drawn. Σ min(p, q) over the whole vocabulary, which is p(token) where the drafter is certain; 1
            or 0 under greedy decoding; under typical acceptance what the draft gives all tokens above the threshold. Block
            verification does not judge places one by one: there it is what judging this one by itself would give.
        uniform: The draw in [0, 1) that was compared with `accept_prob`; kept if smaller.
        threshold: Typical acceptance's threshold on `target_prob`.
        draft_top, target_top, residual_top: The most probable tokens of the three distributions.
        draft_top_target, target_top_draft: Of a judged draft: what the target gives each token of `draft_top`, and the draft
            each of `target_top`.
        draft_entropy, target_entropy: Entropies of the distributions, in nats.
        logprobs: Of a generated token, where the parameters ask for them: log-probabilities by token id, its own first.
        unknown_to_draft: True where the draft has another tokenizer and does not know the token.
        prompt_logprobs: The same for each token of the prompt, told at the end; None for the first, which nothing predicts.
        copied_from: Of a proposed token that was copied: the position of the one copied, counted from the prompt's first.
        reason: Why a token was discarded: "rejected" (an earlier draft was), "stop" or "length".
        num_draft, num_accepted, draft_seconds, verify_seconds, total_seconds: A step's figures. `num_accepted` counts the
            drafts that the verifier kept, before any cut by a stop or the length limit.
        others: Of a step with drafts that were sampled, in full detail: how many of them each other strategy would have kept
            with the same draws, by its name; those that need draws are missing where the run's own strategy makes none.
        typical_distances: Of the same steps, at each draft's place: total variation between the target's distribution and what
            typical acceptance puts out there, given that the drafts before it were kept.
        schema_version, prompt, prompt_token_ids, prompt_texts, settings, seed, models, device, cost_table: What a run
            started with.
        weights: Which weights the target has, for people, where its name does not tell: "Q4_1 weights, dequantised".
        vocabularies: Of a run whose draft has another tokenizer: tokens both know ("shared"), the target and the draft.
        head_layers, target_layers: Of a run whose drafter reads hidden states of the target: after how many of its layers each
            was taken, and how many layers it has, where it tells.
        finish_reason, metrics, message: How it ended; `message` says what went wrong when it ended in an error.
        speedup: Of a run's end, where it was measured afterwards: what drafting gained.
        stop_reason: vLLM's: the stop string or the id of the stop token that ended it; None for the model's own end token.
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
    others: dict[str, _Kept] | None = None
    typical_distances: list[_Distance] | None = None
    expected_accept: float | None = None
    draft_top_target: list[float] | None = None
    target_top_draft: list[float] | None = None

    def to_dict(self, without: Collection[str] = ()) -> dict[str, Any]:
        """The event as plain JSON values, without the fields that do not apply, nor those named."""
        out: dict[str, Any] = {}
        for name, value in zip(_FIELD_NAMES, _values(self), strict=True):
            if value is None or name in without:
                continue
            if name in _PLAIN:
                value = _PLAIN[name](value)
            elif isinstance(value, StrEnum):
                value = value.value
            out[name] = value
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        """Only what it carries, for events travel between processes in great numbers."""
        carried, values = 0, []
        for place, value in enumerate(_values(self)):
            if value is not None:
                carried |= 1 << place
                values.append(value)
        return _restored_event, (carried, values)


def _restored_event(carried: int, values: list[Any]) -> Event:
    names = (name for place, name in enumerate(_FIELD_NAMES) if carried >> place & 1)
    return Event(**dict(zip(names, values, strict=True)))


_FIELD_NAMES = tuple(f.name for f in fields(Event))
_values = attrgetter(*_FIELD_NAMES)


def _plain_top(top: Sequence[TokenProb]) -> list[dict[str, Any]]:
    return [{"token_id": t.token_id, "text": t.text, "prob": t.prob} for t in top]


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "draft_top": _plain_top,
    "target_top": _plain_top,
    "residual_top": _plain_top,
    "logprobs": plain_logprobs,
    "speedup": asdict,
    "prompt_logprobs": lambda entries: [None if entry is None else plain_logprobs(entry) for entry in entries],
}
"""How fields that hold more than plain JSON values become them."""
