"""One request's state: everything that a step reads and writes about it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from naive_speculate.events import FinishReason
from naive_speculate.infer.slots import Slot
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.sampling.random_source import RandomSource
from naive_speculate.speculate.verifiers import VerifyStrategy
from naive_speculate.speculate.window import Window

if TYPE_CHECKING:
    from naive_speculate.speculate.emitter import Emitter
    from naive_speculate.speculate.workspace import Workspace

Detail = Literal["full", "probs", "none"]


class CancelFlag(Protocol):
    """Tells whether somebody wants a run to end early; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether it is to end."""
        ...


@dataclass(slots=True, eq=False)
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


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence that is being decoded.

    Attributes:
        row: Its number in the batch, which its events carry.
        prompt_token_ids: The prompt.
        token_ids: Prompt and all generated tokens.
        params: The request's parameters.
        strategy: How its drafts are judged.
        drafter: Name of its drafter.
        window: How many tokens to draft.
        detail: How much its events tell.
        random: Where all of its draws come from.
        pipeline: Its way from logits to probabilities.
        stop_token_ids: Tokens that end it.
        max_length: Most tokens that it may have, prompt included.
        emitter: Makes its events.
        facts: What its `started` event tells.
        workspace: Whose caches it lives in, once it has a place; sequences of one workspace can be stepped together.
        target_slot, draft_slot: Its places in the caches.
        leader: Another sequence of the same prompt, which takes it in for both.
        cancel: Set by whoever wants it to end early.
        finish_reason: Why it ended; None while it goes on.
        logprobs, prompt_logprobs: As asked for by the parameters.
        cumulative_logprob: Sum of the generated tokens' log-probabilities; kept when several sequences compete.
        trusted: Whether a proposal for it was checked, where its drafter is not one of ours.
    """

    row: int
    prompt_token_ids: list[int]
    token_ids: list[int]
    params: SamplingParams
    strategy: VerifyStrategy
    drafter: str
    window: Window
    detail: Detail
    random: RandomSource
    pipeline: LogitsPipeline
    stop_token_ids: frozenset[int]
    max_length: int
    emitter: "Emitter"
    facts: dict[str, Any]
    workspace: "Workspace" = field(init=False)
    target_slot: Slot = field(init=False)
    draft_slot: Slot | None = field(init=False)
    leader: "Sequence | None" = None
    cancel: CancelFlag | None = None
    finish_reason: FinishReason | None = None
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    cumulative_logprob: float = 0.0
    step: int = 0
    trusted: bool = False

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants it to end early."""
        return self.cancel is not None and self.cancel.is_set()

    @property
    def greedy(self) -> bool:
        """Whether tokens are the most probable ones rather than drawn."""
        return self.params.greedy or self.strategy == VerifyStrategy.GREEDY_MATCH

    @property
    def needs_probs(self) -> bool:
        """Whether a step must compute its probabilities, or the order of scores is enough."""
        return not self.greedy or self.detail != "none" or self.window.adaptive

    @property
    def wants_logprobs(self) -> bool:
        """Whether raw log-probabilities of its tokens are collected."""
        return self.params.logprobs is not None or self.params.num_sequences > 1

    @property
    def output_token_ids(self) -> list[int]:
        """The generated tokens."""
        return self.token_ids[len(self.prompt_token_ids) :]

    def drop_behind(self, count: int) -> None:
        """Keep only the first generated tokens, and what was collected about them: a stop string took the others with it."""
        if count == len(self.output_token_ids):
            return
        del self.token_ids[len(self.prompt_token_ids) + count :]
        del self.logprobs[count:]
        chosen = zip(self.logprobs, self.output_token_ids, strict=False)
        self.cumulative_logprob = sum(entry[token].logprob for entry, token in chosen)

    @property
    def room(self) -> int:
        """How many tokens may still be generated."""
        return self.max_length - len(self.token_ids)
