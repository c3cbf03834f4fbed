"""What one speculative step did to one sequence, as plain numbers and texts: events are made
from nothing else."""

from dataclasses import dataclass, field
from typing import Any

from naive_speculate.events.event import FinishReason, Logprob, TopTokens, TreeNode


@dataclass(slots=True, eq=False)
class Outcome:
    """Raw outcome of one step. Numbers that were not requested are None."""

    draft_token_ids: list[int]
    num_accepted: int  # how many of them the verifier accepted
    next_token_id: int  # the next token: resampled after a rejection, else the bonus token
    # why there is no next token, since its position has no distribution; then `next_token_id` means
    # nothing
    obstacle: str | None
    judges_all: bool  # whether drafts after a rejected one were judged too
    # draft_seconds, verify_seconds, total_seconds: the step's times, which a batch shares
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    total_seconds: float = 0.0
    # fields of the token events, by name: a value per draft token, and of the target's fields one
    # more, for the next token
    values: dict[str, list[Any]] = field(default_factory=dict)
    # the most probable tokens of the residual distribution, after a rejection
    residual_top: TopTokens | None = None
    # the target's most probable tokens after the whole window, if it was not accepted whole
    unused_top: TopTokens | None = None
    # raw log-probabilities at each accepted draft and the next token
    logprobs: list[dict[int, Logprob]] | None = None
    # the position, in prompt and output, that the first draft was copied from
    copied_from: int | None = None
    # how many drafts each other strategy would have accepted, by its name
    others: dict[str, int] | None = None
    # for each draft, how far typical acceptance's output distribution is from the target's
    typical_distances: list[float] | None = None
    # all nodes of a draft tree; the draft tokens are then one path through it
    tree: list[TreeNode] | None = None

    @property
    def token_ids(self) -> list[int]:
        """The tokens of the step: the accepted drafts and the next token, where there is one."""
        kept = self.draft_token_ids[: self.num_accepted]
        return kept if self.obstacle is not None else [*kept, self.next_token_id]


@dataclass(slots=True, frozen=True, eq=False)
class StepRecord:
    """A step after its sequence committed it."""

    number: int  # the step's number, from 0
    ended_at: float  # when it was over, in seconds of `time.perf_counter`
    outcome: Outcome
    # what each token adds to the text, up to the sequence's end; one per committed token
    texts: list[str]
    draft_texts: list[str]  # what each draft would add, accepted or not
    finish_reason: FinishReason | None  # why the sequence ends with this step; None if it goes on
    text_end: int | None  # where a stop string ends the whole text; None where none does
    settled: (
        int | None
        # the length of the text that no stop string can still remove; None where there are no stop
        # strings
    )
