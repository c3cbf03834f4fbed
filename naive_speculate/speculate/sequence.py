"""One sequence's state: everything that a step reads and writes of it, and where it ends."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from naive_speculate.events.event import FinishReason, Logprob
from naive_speculate.events.record import Outcome, StepRecord
from naive_speculate.sampling.checked import Real, checked
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.sampling.random_source import RandomSource
from naive_speculate.speculate.rules import Verifier
from naive_speculate.speculate.window import Window
from naive_speculate.text import StopStrings, TextStream

Detail = Literal["full", "probs", "none"]
DraftSampling = Literal["sampled", "argmax"]
Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]  # text, token ids or messages


class CancelFlag(Protocol):
    """Ends a run early once it is set; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether the run is to end."""
        ...


_Most = Field(max_length=200, description="text or token ids, at most 200")


@checked("given_draft.")
class GivenDraft:
    """A user-supplied draft for the first step of a run; later steps are decoded plainly."""

    # the next word as text, with the space that belongs to it, or token ids; of a `SequenceState`,
    # token ids
    draft: Annotated[str, _Most] | Annotated[Sequence[int], _Most]
    # the probability with which its first token is drafted; otherwise the draft model draws that
    # token
    prob: Annotated[Real, Field(ge=0, le=1, description="from 0 to 1")]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the sequences of a request have in common."""

    verifier: Verifier  # judges their drafts
    drafter: str  # name of their drafter
    tree: tuple[int, ...] | None  # the children of a node by depth, where it drafts trees
    given_draft: GivenDraft | None  # a user-supplied draft for the first step, in token ids
    detail: Detail  # how much their events report
    draft_sampling: DraftSampling  # how a model drafts for them
    stop_token_ids: frozenset[int]  # tokens that end them
    end_token_ids: frozenset[int]  # those of them that are the model's own end
    max_length: int  # the most tokens that they may have, prompt included
    # whether the seed in their events repeats them; not where "auto" follows measured times
    repeats: bool


@dataclass(slots=True, eq=False)
class SequenceState:
    """One sequence that is being decoded."""

    row: int  # its number in its run, which its events carry
    prompt_token_ids: list[int]
    params: SamplingParams  # the request's parameters
    plan: Plan  # what it shares with its siblings; the fields of the plan's names are its
    window: Window  # how many tokens to draft
    random: RandomSource  # the source of all its draws, except of drafts
    # the source of its drafts' draws; another one where seeded texts are those of plain decoding
    draft_random: RandomSource
    pipeline: LogitsPipeline  # turns logits into its probabilities
    text: TextStream | None  # turns its tokens into text; None where there is no text
    stops: StopStrings | None  # looks for stop strings; None where there are none
    cancel: CancelFlag | None = None  # ends it early once it is set
    # finish_reason, message: why it ended, and what went wrong where it ended in an error; None
    # while it goes on
    finish_reason: FinishReason | None = None
    message: str | None = None
    num_steps: int = 0  # steps made
    # logprobs, prompt_logprobs: as in the parameters
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    # by generated token, where there are stop strings
    _text_ends: list[int] = field(default_factory=list)
    _num_settled: int = 0
    token_ids: list[int] = field(init=False)  # prompt and all generated tokens
    verifier: Verifier = field(init=False)
    drafter: str = field(init=False)
    tree: tuple[int, ...] | None = field(init=False)
    given_draft: GivenDraft | None = field(init=False)
    detail: Detail = field(init=False)
    draft_sampling: DraftSampling = field(init=False)
    stop_token_ids: frozenset[int] = field(init=False)
    end_token_ids: frozenset[int] = field(init=False)
    max_length: int = field(init=False)
    repeats: bool = field(init=False)
    # whether tokens are the most probable ones rather than drawn; whether draft tokens are drawn
    # from the draft model's distribution, rather than its most probable ones; whether a step must
    # compute probabilities, else the order of scores is enough; whether raw log-probabilities of
    # its tokens are collected
    greedy: bool = field(init=False)
    draws_drafts: bool = field(init=False)
    needs_probs: bool = field(init=False)
    wants_logprobs: bool = field(init=False)
    # tokens that end it and add no text: none if the parameters include them (vLLM,
    # `v1/engine/detokenizer.py`, `update`)
    silent_token_ids: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        plan, self.token_ids = self.plan, list(self.prompt_token_ids)
        self.verifier, self.drafter, self.detail = plan.verifier, plan.drafter, plan.detail
        self.tree, self.given_draft = plan.tree, plan.given_draft
        self.draft_sampling, self.repeats = plan.draft_sampling, plan.repeats
        self.stop_token_ids, self.end_token_ids = plan.stop_token_ids, plan.end_token_ids
        self.max_length = plan.max_length
        self.greedy = self.verifier.greedy
        self.draws_drafts = not self.greedy and self.draft_sampling == "sampled"
        self.needs_probs = not self.greedy or self.detail != "none"
        self.wants_logprobs = self.params.logprobs is not None or self.params.num_sequences > 1
        included = self.params.include_stop_str_in_output
        self.silent_token_ids = frozenset() if included else self.stop_token_ids

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether log-probabilities of its prompt are still to be collected."""
        if self.params.prompt_logprobs is None:
            return False
        return len(self.prompt_logprobs or ()) < len(self.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        """The generated tokens."""
        return self.token_ids[len(self.prompt_token_ids) :]

    @property
    def num_remaining(self) -> int:
        """How many tokens may still be generated."""
        return self.max_length - len(self.token_ids)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.finish_reason is not None

    @property
    def stop_reason(self) -> int | str | None:
        """The stop string, or the stop token of its parameters, that ended it; None for the
        model's own end and any other."""
        if self.finish_reason != FinishReason.STOP:
            return None
        if self.stops is not None and self.stops.found is not None:
            return self.stops.found
        last = self.token_ids[-1]
        return (
            last
            if last in (self.params.stop_token_ids or ()) and last not in self.end_token_ids
            else None
        )

    def end(self, reason: FinishReason, message: str | None = None) -> None:
        """End it between two steps."""
        self.finish_reason, self.message = reason, message

    def commit(self, outcome: Outcome) -> StepRecord:
        """Append a step's tokens, up to where the sequence ends."""
        accepted, drafts, number = outcome.num_accepted, outcome.draft_token_ids, self.num_steps
        tokens = drafts[:accepted] + ([outcome.next_token_id] if outcome.obstacle is None else [])
        texts, draft_texts, finish, text_end = self._read(tokens, drafts)
        kept = len(texts)
        self.token_ids += tokens[:kept]
        if outcome.logprobs is not None:
            self.logprobs += outcome.logprobs[:kept]
        if not self.window.fixed:
            self.window.learn(accepted, min(accepted + 1, len(drafts)))
        self.num_steps += 1
        self.finish_reason = finish
        settled = None if self.stops is None else self._settle(texts, self.stops, text_end)
        if outcome.obstacle is not None and finish is None:
            self.end(FinishReason.ERROR, outcome.obstacle)
        return StepRecord(
            number, time.perf_counter(), outcome, texts, draft_texts, finish, text_end, settled
        )

    def _settle(self, texts: list[str], stops: StopStrings, text_end: int | None) -> int:
        """Drop the tokens that a stop string removes; returns the length of the text that none
        can still remove."""
        for text in texts:
            self._text_ends.append(len(text) + (self._text_ends[-1] if self._text_ends else 0))
        if text_end is not None:
            # Tokens before `_num_settled` were emitted; of the others, one that begins where the
            # text ends is not in it.
            kept = self._num_settled
            while (
                kept < len(self._text_ends)
                and (self._text_ends[kept - 1] if kept else 0) < text_end
            ):
                kept += 1
            del self.token_ids[len(self.prompt_token_ids) + kept :]
            del self.logprobs[kept:]
        settled = stops.safe_length
        while (
            self._num_settled < len(self._text_ends)
            and self._text_ends[self._num_settled] <= settled
        ):
            self._num_settled += 1
        return settled

    def _read(
        self, tokens: list[int], drafts: list[int]
    ) -> tuple[list[str], list[str], FinishReason | None, int | None]:
        """Texts of the step's tokens up to the sequence's end, and of all drafts; why it ends;
        where a stop string ends the text."""
        texts: list[str] = []
        rejected: list[str] = []
        generated, most = len(self.token_ids) - len(self.prompt_token_ids), self.num_remaining
        for index, token in enumerate(tokens):
            if (
                index == len(tokens) - 1
            ):  # the next token; another may have been drafted at its position
                rejected = self._texts_ahead(drafts[index:])
            silent = self.text is None or token in self.silent_token_ids
            texts.append("" if silent else self.text.append(token))  # type: ignore[union-attr]
            text_end = None
            if self.stops is not None:
                text_end = self.stops.append(
                    texts[-1], search=generated + len(texts) > self.params.min_tokens
                )
            stopped = text_end is not None or token in self.stop_token_ids
            if stopped or len(texts) == most:
                draft_texts = texts[: len(drafts) - len(rejected)] + rejected
                if index < len(tokens) - 1:
                    draft_texts = texts + self._texts_ahead(drafts[index + 1 :])
                if self.text is not None and text_end is None:
                    texts[-1] += self.text.flush()
                return (
                    texts,
                    draft_texts,
                    FinishReason.STOP if stopped else FinishReason.LENGTH,
                    text_end,
                )
        return texts, texts[: len(drafts) - len(rejected)] + rejected, None, None

    def _texts_ahead(self, tokens: list[int]) -> list[str]:
        if self.text is None or not tokens:
            return [""] * len(tokens)
        stream, texts = self.text.fork(), list[str]()
        for token in tokens:
            texts.append("" if token in self.silent_token_ids else stream.append(token))
        return texts

    def save(self) -> tuple[Any, ...]:
        """State that a step may change before it is committed, for `restore`."""
        sources: Any = self.random, self.draft_random
        draws = [each.state() for each in sources]
        return self.num_steps, draws, self.window.saved()

    def restore(self, saved: tuple[Any, ...]) -> bool:
        """Undo a step that was not committed; returns whether anything was undone."""
        num_steps, draws, window = saved
        if self.num_steps != num_steps or self.ended:
            return False
        for source, state in zip((self.random, self.draft_random), draws, strict=True):
            source.restore(state)  # type: ignore[attr-defined]
        self.window = window
        return True
