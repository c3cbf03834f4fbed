"""What one speculative step did to one sequence, as plain numbers and texts: events are made from nothing else."""

from dataclasses import dataclass

from naive_speculate.events.event import FinishReason, Logprob, TopTokens


@dataclass(slots=True, eq=False)
class Outcome:
    """Raw outcome of one step. Numbers that were not requested are None.

    Attributes:
        draft_token_ids: The draft tokens.
        num_accepted: How many of them the verifier accepted.
        next_token_id: The next token: resampled after a rejection, else the bonus token.
        obstacle: Why there is no next token, since its position has no distribution; then `next_token_id` means nothing.
        judges_all: Whether drafts after a rejected one were judged too.
        draft_seconds, verify_seconds, total_seconds: The step's times, which a batch shares.
        accept_probs, uniforms, thresholds, draft_probs: One number per draft, where they apply.
        target_probs: One number per draft, and the next token's.
        expected_accepts: The probability, before each draft was drawn, that it would be accepted; one per draft.
        sampled_accepts, argmax_accepts: Both exact acceptance rates at each draft's index: of a token drawn from the draft
            model's distribution, and of its most probable token.
        draft_entropies, target_entropies: In nats; one per draft, for the target one more.
        draft_tops, target_tops: The most probable tokens; one list per draft, for the target one more.
        target_tops_draft, draft_tops_target: The other model's probabilities of the tokens in these lists; one list per draft.
        residual_top: The most probable tokens of the residual distribution, after a rejection.
        logprobs: Raw log-probabilities at each accepted draft and the next token.
        copied_from: The position, in prompt and output, that the first draft was copied from.
        forced: Of a guided row: what its grammar forces, see `Event.forced`; one per draft, and the next token's.
        others: How many drafts each other strategy would have accepted, by its name.
        typical_distances: For each draft, how far typical acceptance's output distribution is from the target's.
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
    sampled_accepts: list[float] | None = None
    argmax_accepts: list[float] | None = None
    draft_entropies: list[float] | None = None
    target_entropies: list[float] | None = None
    draft_tops: list[TopTokens] | None = None
    target_tops: list[TopTokens] | None = None
    target_tops_draft: list[list[float]] | None = None
    draft_tops_target: list[list[float]] | None = None
    residual_top: TopTokens | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    copied_from: int | None = None
    forced: list[str | None] | None = None
    others: dict[str, int] | None = None
    typical_distances: list[float] | None = None

    @property
    def token_ids(self) -> list[int]:
        """The tokens of the step: the accepted drafts and the next token, where there is one."""
        kept = self.draft_token_ids[: self.num_accepted]
        return kept if self.obstacle is not None else [*kept, self.next_token_id]


@dataclass(slots=True, frozen=True, eq=False)
class StepRecord:
    """A step after its sequence committed it.

    Attributes:
        number: The step's number, from 0.
        ended_at: When it was over, in seconds of `time.perf_counter`.
        outcome: The raw outcome.
        texts: What each token adds to the text, up to the sequence's end; one per committed token.
        draft_texts: What each draft would add, accepted or not.
        finish_reason: Why the sequence ends with this step; None if it goes on.
        text_end: Where a stop string ends the whole text; None where none does.
        settled: The length of the text that no stop string can still remove; None where there are no stop strings.
    """

    number: int
    ended_at: float
    outcome: Outcome
    texts: list[str]
    draft_texts: list[str]
    finish_reason: FinishReason | None
    text_end: int | None
    settled: int | None
