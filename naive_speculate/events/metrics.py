"""Numbers of a run, from its events alone, so that a replayed trace gives the same ones as the live run.

Names follow vLLM's per-request speculative-decoding metrics; `alpha` is the acceptance rate of Leviathan et al. 2023
(arXiv 2211.17192, definition 3.1 and section 3.5).
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any

from naive_speculate.events.event import OUTPUT_KINDS, Event, EventKind


@dataclass(slots=True)
class Metrics:
    """Figures of one sequence's run.

    Attributes:
        num_generated_tokens: Tokens of the output.
        num_spec_steps: Steps (target forwards after the prefill), plain ones included.
        num_draft_tokens: Drafted tokens.
        num_accepted_draft_tokens: Drafted tokens that the verifier kept.
        num_rejected_draft_tokens: Drafted tokens that the verifier refused; those after them were never judged.
        draft_acceptance_rate: Accepted ÷ drafted; None where nothing was drafted.
        mean_acceptance_length: Tokens a step gave on average, the next token included.
        acceptance_histogram: Number of steps with 0, 1, 2 … accepted drafts.
        alpha: Accepted ÷ (accepted + rejected), an estimate of the paper's α; None where nothing was judged.
        acceptance_rate_per_position: Of the windows whose drafts before this place were all kept, the share that kept this
            one too; None for a place that was never reached. This is the conditional rate.
        unconditional_acceptance_rate_per_position: Of all windows with drafts, the share whose draft at this place was kept:
            what vLLM calls per-position acceptance rate. It falls from place to place, for a draft counts only behind kept
            ones.
        tokens_per_second: Output tokens ÷ seconds from the run's start to its last step.
        draft_seconds, verify_seconds, total_seconds: Sums over the steps.
        time_to_first_token: Seconds from the run's start to the end of the step that gave the first token.
    """

    num_generated_tokens: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    num_rejected_draft_tokens: int = 0
    draft_acceptance_rate: float | None = None
    mean_acceptance_length: float | None = None
    acceptance_histogram: list[int] = field(default_factory=list)
    alpha: float | None = None
    acceptance_rate_per_position: list[float | None] = field(default_factory=list)
    unconditional_acceptance_rate_per_position: list[float] = field(default_factory=list)
    tokens_per_second: float | None = None
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    total_seconds: float = 0.0
    time_to_first_token: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain JSON values."""
        return asdict(self)


class Summary:
    """The figures of a run that goes on, or of one row of it: takes its events one by one, each in constant time."""

    def __init__(self, row: int | None = None) -> None:
        self._row = row
        self._counts = Metrics()
        self._last_time = 0.0
        self._kept_whole: list[int] = []  # by length, the windows whose drafts were all accepted

    def add(self, event: Event) -> None:
        """Take in the run's next event."""
        if self._row is not None and event.row != self._row:
            return
        m = self._counts
        if event.kind in OUTPUT_KINDS:
            m.num_generated_tokens += 1
        elif event.kind == EventKind.REJECTED:
            m.num_rejected_draft_tokens += 1
        elif event.kind == EventKind.STEP:
            drafted, accepted = event.num_draft or 0, event.num_accepted or 0
            longer = drafted + 1 - len(m.acceptance_histogram)
            m.acceptance_histogram += [0] * longer
            self._kept_whole += [0] * longer
            m.acceptance_histogram[accepted] += 1
            self._kept_whole[drafted] += accepted == drafted
            m.num_spec_steps += 1
            m.num_draft_tokens += drafted
            m.num_accepted_draft_tokens += accepted
            m.draft_seconds += event.draft_seconds or 0.0
            m.verify_seconds += event.verify_seconds or 0.0
            m.total_seconds += event.total_seconds or 0.0
            self._last_time = event.time
            if m.time_to_first_token is None:
                m.time_to_first_token = event.time

    @property
    def metrics(self) -> Metrics:
        """The figures so far. To ask takes time of the longest window, however many events there were."""
        m = replace(self._counts, acceptance_histogram=list(self._counts.acceptance_histogram))
        judged = m.num_accepted_draft_tokens + m.num_rejected_draft_tokens
        if m.num_draft_tokens:
            m.draft_acceptance_rate = m.num_accepted_draft_tokens / m.num_draft_tokens
        if judged:
            m.alpha = m.num_accepted_draft_tokens / judged
        if m.num_spec_steps:
            m.mean_acceptance_length = (m.num_accepted_draft_tokens + m.num_spec_steps) / m.num_spec_steps
            kept = list(accumulate(m.acceptance_histogram[:0:-1]))[::-1]  # by place, the windows that kept the draft there
            drafted = m.num_spec_steps - self._kept_whole[0]  # a window of no drafts is kept whole, and is none
            m.unconditional_acceptance_rate_per_position = [here / drafted for here in kept]
            # Windows that a rejection or their own length ended before a place do not reach it.
            before = zip([m.num_spec_steps, *kept], self._kept_whole, strict=True)
            reached = [left - ended_whole for left, ended_whole in before]
            m.acceptance_rate_per_position = [here / all_ if all_ else None for here, all_ in zip(kept, reached, strict=False)]
        if self._last_time > 0:
            m.tokens_per_second = m.num_generated_tokens / self._last_time
        return m


def summarize(events: Iterable[Event], row: int | None = None) -> Metrics:
    """The figures of a run, whole or so far: of one sequence, or counting every event without a row."""
    summary = Summary(row)
    for event in events:
        summary.add(event)
    return summary.metrics
