"""Figures of a run, from its events alone, so that a replayed trace gives the same ones as the
live run.

Names follow vLLM's per-request speculative-decoding metrics; `alpha` is the acceptance rate of
Leviathan et al. 2023 (arXiv 2211.17192, definition 3.1 and section 3.5).
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any

from naive_speculate.events.event import OUTPUT_KINDS, Event, EventKind

_JUDGED = (EventKind.ACCEPTED, EventKind.REJECTED)


@dataclass(slots=True)
class Metrics:
    """Figures of one sequence's run."""

    num_generated_tokens: int = 0  # tokens of the output
    num_spec_steps: int = 0  # steps (target forwards after the prefill), plain ones included
    num_draft_tokens: int = 0  # of a tree all nodes
    num_accepted_draft_tokens: int = 0
    # rejected draft tokens; those after them are discarded unjudged
    num_rejected_draft_tokens: int = 0
    draft_acceptance_rate: float | None = None  # accepted ÷ drafted; None where nothing was drafted
    mean_acceptance_length: float | None = None  # mean tokens per step, the last token included
    # number of steps with 0, 1, 2 … accepted draft tokens
    acceptance_histogram: list[int] = field(default_factory=list)
    alpha: float | None = (
        # accepted ÷ (accepted + rejected), an estimate of the paper's α; None where nothing was
        # judged
        None
    )
    # the conditional rate per index: of the windows that accepted all earlier draft tokens, the
    # share that accepted this one too; None for an index that no window reached
    acceptance_rate_per_position: list[float | None] = field(default_factory=list)
    # of all windows with draft tokens, the share that accepted the one at this index; vLLM's
    # per-position acceptance rate. It never rises with the index
    unconditional_acceptance_rate_per_position: list[float] = field(default_factory=list)
    # sampled_acceptance_per_position, argmax_acceptance_per_position: the exact acceptance rates by
    # index, over the draft tokens that were judged: if a token is drawn from the draft model's
    # distribution, and if it is the most probable. Empty where they are unknown, as for copies
    sampled_acceptance_per_position: list[float] = field(default_factory=list)
    argmax_acceptance_per_position: list[float] = field(default_factory=list)
    # output tokens ÷ seconds from the run's start to its last step
    tokens_per_second: float | None = None
    # draft_seconds, verify_seconds, total_seconds: sums over the steps
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    total_seconds: float = 0.0
    # seconds from the run's start to the end of the step that gave the first token
    time_to_first_token: float | None = None

    @property
    def num_judged(self) -> int:
        """Draft tokens that were accepted or rejected."""
        return self.num_accepted_draft_tokens + self.num_rejected_draft_tokens

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain JSON values."""
        return asdict(self)


class Summary:
    """The figures of a run so far: takes its events in order, each in constant time."""

    def __init__(self) -> None:
        self._counts = Metrics()
        self._last_time = 0.0
        self._accepted_whole: list[int] = []  # by length, the fully accepted windows
        # by index: sums of both acceptance rates, and their number
        self._rates: dict[int, tuple[float, float, int]] = {}

    def add(self, event: Event) -> None:
        """Add the run's next event."""
        self.add_all((event,))

    def add_all(self, events: Iterable[Event]) -> None:
        """Add the run's next events."""
        m = self._counts
        for event in events:
            kind = event.kind
            if event.sampled_accept is not None and kind in _JUDGED:
                sums = self._rates.get(event.index or 0, (0.0, 0.0, 0))
                both = (sums[0] + event.sampled_accept, sums[1] + (event.argmax_accept or 0.0))
                self._rates[event.index or 0] = (*both, sums[2] + 1)
            if kind in OUTPUT_KINDS:
                m.num_generated_tokens += 1
            elif kind == EventKind.REJECTED:
                m.num_rejected_draft_tokens += 1
            elif kind == EventKind.STEP:
                drafted, accepted = event.num_draft or 0, event.num_accepted or 0
                longer = drafted + 1 - len(m.acceptance_histogram)
                m.acceptance_histogram += [0] * longer
                self._accepted_whole += [0] * longer
                m.acceptance_histogram[accepted] += 1
                self._accepted_whole[drafted] += accepted == drafted
                m.num_spec_steps += 1
                m.num_draft_tokens += len(event.tree or ()) or drafted
                m.num_accepted_draft_tokens += accepted
                m.draft_seconds += event.draft_seconds or 0.0
                m.verify_seconds += event.verify_seconds or 0.0
                m.total_seconds += event.total_seconds or 0.0
                self._last_time = event.time
                if m.time_to_first_token is None:
                    m.time_to_first_token = event.time

    @property
    def metrics(self) -> Metrics:
        """The figures so far; takes time proportional to the longest window, not to the number
        of events."""
        m = replace(self._counts, acceptance_histogram=list(self._counts.acceptance_histogram))
        if m.num_draft_tokens:
            m.draft_acceptance_rate = m.num_accepted_draft_tokens / m.num_draft_tokens
        if m.num_judged:
            m.alpha = m.num_accepted_draft_tokens / m.num_judged
        if m.num_spec_steps:
            m.mean_acceptance_length = (
                m.num_accepted_draft_tokens + m.num_spec_steps
            ) / m.num_spec_steps
            accepted = list(accumulate(m.acceptance_histogram[:0:-1]))[::-1]  # windows, by index
            drafted = m.num_spec_steps - self._accepted_whole[0]  # empty windows do not count
            m.unconditional_acceptance_rate_per_position = [here / drafted for here in accepted]
            # Windows that ended before an index, by a rejection or their length, do not reach it.
            before = zip([m.num_spec_steps, *accepted], self._accepted_whole, strict=True)
            reached = [left - ended_whole for left, ended_whole in before]
            pairs = zip(accepted, reached, strict=False)
            m.acceptance_rate_per_position = [here / all_ if all_ else None for here, all_ in pairs]
        rates = [self._rates[index] for index in sorted(self._rates)]
        m.sampled_acceptance_per_position = [sampled / count for sampled, _, count in rates]
        m.argmax_acceptance_per_position = [argmax / count for _, argmax, count in rates]
        if self._last_time > 0:
            m.tokens_per_second = m.num_generated_tokens / self._last_time
        return m


def summarize(events: Iterable[Event]) -> Metrics:
    """The figures of a run so far; for those of one row, see `Trace.row`."""
    summary = Summary()
    summary.add_all(events)
    return summary.metrics
