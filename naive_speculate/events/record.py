"""What one speculative step did to one sequence, as plain numbers and texts: all that its events are made from."""

from dataclasses import dataclass
from typing import Any

from naive_speculate.events.event import FinishReason, Logprob, TopTokens


@dataclass(slots=True, frozen=True, eq=False)
class RunInfo:
    """What a sequence's `started` event tells: the fields of `Event` that only this kind has.

    Attributes:
        row: The sequence's number in its run.
        prompt, prompt_token_ids, prompt_texts, settings, seed, models, device, cost_table, vocabularies, head_layers,
            target_layers, weights: As in `Event`.
    """

    row: int
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_texts: list[str]
    settings: dict[str, Any]
    seed: int
    models: dict[str, str]
    device: str
    cost_table: dict[str, Any] | None
    vocabularies: dict[str, int] | None = None
    head_layers: list[int] | None = None
    target_layers: int | None = None
    weights: str | None = None


@dataclass(slots=True, eq=False)
class Outcome:
    """What the models and the dice said. Numbers that nobody asked for are None.

    Attributes:
        draft_token_ids: The drafted tokens.
        num_accepted: How many of them the verifier kept, from the first on.
        next_token_id: The token after them: resampled where a draft was refused, else the bonus token.
        obstacle: Why no token can come after them, since that place has no distribution; then `next_token_id` means nothing.
        judges_all: Whether drafts after a refused one were judged too.
        draft_seconds, verify_seconds, total_seconds: The step's times, which a batch shares.
        accept_probs, uniforms, thresholds, draft_probs: One number a draft, where they apply.
        target_probs: One number a draft, and the next token's.
        expected_accepts: How probable keeping each draft was before it was drawn; one a draft.
        draft_entropies, target_entropies: In nats; one a draft, for the target one more.
        draft_tops, target_tops: The most probable tokens; one list a draft, for the target one more.
        target_tops_draft, draft_tops_target: What the other model gives the tokens of these lists; one list a draft.
        residual_top: The most probable tokens of what the next token was drawn from after a rejection.
        logprobs: Raw log-probabilities at each kept draft and the next token.
        copied_from: Where in prompt and output the first draft was copied from.
        others: How many drafts each other strategy would have kept, by its name.
        typical_distances: At each draft's place, how far typical acceptance's output is from the target.
    """

    draft_token_ids: list[int]
    num_accepted: int
    next_token_id: int
    obstacle: str | None
    judges_all: bool
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    total_seconds: float = 0.0
    accept_probs: list[float] | None = None
    uniforms: list[float] | None = None
    thresholds: list[float] | None = None
    draft_probs: list[float] | None = None
    target_probs: list[float] | None = None
    expected_accepts: list[float] | None = None
    draft_entropies: list[float] | None = None
    target_entropies: list[float] | None = None
    draft_tops: list[TopTokens] | None = None
    target_tops: list[TopTokens] | None = None
    target_tops_draft: list[list[float]] | None = None
    draft_tops_target: list[list[float]] | None = None
    residual_top: TopTokens | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    copied_from: int | None = None
    others: dict[str, int] | None = None
    typical_distances: list[float] | None = None

    @property
    def token_ids(self) -> list[int]:
        """The tokens that the step gives: the kept drafts and the next token, where there is one."""
        kept = self.draft_token_ids[: self.num_accepted]
        return kept if self.obstacle is not None else [*kept, self.next_token_id]


@dataclass(slots=True, frozen=True, eq=False)
class StepRecord:
    """A step as its sequence has taken it in.

    Attributes:
        number: The step's number, from 0.
        ended_at: When it was over, in seconds of `time.perf_counter`.
        outcome: What the models and the dice said.
        texts: What each token adds to the text, up to the sequence's end: as many as the sequence took in.
        draft_texts: What each draft would add, accepted or not.
        finish_reason: Why the sequence ends with this step; None if it goes on.
        text_end: Where a stop string ends the whole text; None where none does.
        settled: How much of the text no stop string can still take back; None where there are no stop strings.
    """

    number: int
    ended_at: float
    outcome: Outcome
    texts: list[str]
    draft_texts: list[str]
    finish_reason: FinishReason | None
    text_end: int | None
    settled: int | None
