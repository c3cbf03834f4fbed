"""Places that teach: searched for in real runs, so that no lesson depends on what one pair of models happens to write.

A refusal teaches where it might as well have gone the other way. A place to draw from teaches where a good part of the draws,
but not most of them, are replacements. A round teaches where some guesses are kept before one is refused.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind, TokenProb
from naive_speculate.events.trace import Trace

OPEN = (0.3, 0.7)
"""Between these a guess is neither hopeless nor safe: p/q where both outcomes are seen."""
SEEN = 0.03
"""A probability below it is hardly seen in a bar."""
SURE = 0.8
"""Above it a model all but knows what comes: there is one long bar, and p times q looks like p."""
THIRD = 1 / 3
ABOUT_A_THIRD = (0.2, 0.5)
KEPT = 2
CHOICES = 3
"""Where fewer tokens are likely, a picture of distributions says little."""


@dataclass(frozen=True, slots=True)
class DraftedStep:
    """One step of a run.

    Attributes:
        number: Its step.
        drafts: The verdicts on its drafts, in order.
        added: The token that the target added; None where the text ended before.
        before: How many tokens had been generated when it began.
    """

    number: int
    drafts: list[Event]
    added: Event | None
    before: int

    @property
    def num_accepted(self) -> int:
        """How many drafts were kept."""
        return sum(event.kind == EventKind.ACCEPTED for event in self.drafts)

    @property
    def rejected(self) -> Event | None:
        """The draft that was refused."""
        return next((event for event in self.drafts if event.kind == EventKind.REJECTED), None)


@dataclass(frozen=True, slots=True)
class SamplingPosition:
    """A place where the next token may be drawn again and again.

    Attributes:
        token_ids: Everything that stands before it, the prompt included.
        before: The generated part of that, as text.
        share: How often a draw there is a replacement: one less the sum over all tokens of the smaller of p and q.
    """

    token_ids: list[int]
    before: str
    share: float

    @property
    def teaches(self) -> bool:
        """Whether about a third of the draws are replacements."""
        return ABOUT_A_THIRD[0] <= self.share <= ABOUT_A_THIRD[1]


def drafted_steps(trace: Trace) -> Iterator[DraftedStep]:
    """The rounds of a run that have ended."""
    drafts: list[Event] = []
    added: Event | None = None
    before = 0
    for event in trace:
        if event.kind in (EventKind.ACCEPTED, EventKind.REJECTED, EventKind.DISCARDED):
            drafts.append(event)
        elif event.kind in (EventKind.RESAMPLED, EventKind.BONUS):
            added = event
        elif event.kind == EventKind.STEP:
            done = DraftedStep(event.step or 0, drafts, added, before)
            yield done
            before += done.num_accepted + (added is not None)
            drafts, added = [], None


def close_rejection(trace: Trace, seen: Collection[str] = ()) -> DraftedStep | None:
    """The round with the most visible refusal: p/q between 0.3 and 0.7, and both large enough to be seen, but far from certain.
    Guesses that the reader has seen refused will not do."""

    def teaches(found: DraftedStep) -> bool:
        guess = found.rejected
        return (
            guess is not None
            and found.added is not None
            and bool(found.added.text)
            and bool(guess.text)
            and guess.text not in seen
            and OPEN[0] <= (guess.accept_prob or 0) <= OPEN[1]
            and (guess.target_prob or 0) >= SEEN
            and (guess.draft_prob or 0) <= SURE
        )

    def visible(found: DraftedStep) -> float:
        guess = found.rejected
        return (guess.draft_prob or 0) if guess else 0.0

    return max(filter(teaches, drafted_steps(trace)), key=visible, default=None)


def full_step(trace: Trace, followed_by: int = 2) -> DraftedStep | None:
    """The round that shows most: two guesses kept or more, one refused and replaced, and best of all another thrown away; so
    many others come after it."""
    every = list(drafted_steps(trace))

    def shows(found: DraftedStep) -> tuple[bool, int]:
        return len(found.drafts) > found.num_accepted + 1, found.num_accepted

    candidates = every[: max(0, len(every) - followed_by)]
    whole = (found for found in candidates if found.rejected and found.num_accepted >= KEPT and found.added)
    return max(whole, key=shows, default=None)


def sampling_position(trace: Trace) -> SamplingPosition | None:
    """The place of a run where the share of replacements is nearest to a third, and several tokens are likely. The run's top-k
    must be no larger than the lists of likely tokens in its events."""
    started = trace.started
    prompt = (started and started.prompt_token_ids) or []
    forks = [
        SamplingPosition(
            [*prompt, *trace.token_ids[:at]],
            text_before(trace, at, prompt=False),
            resampled_share(guess.target_top, guess.draft_top),
        )
        for at, guess in _judged(trace)
        if guess.target_top and guess.draft_top and _varied(guess.target_top) and guess.draft_top[0].prob <= SURE
        if _overrated(guess.target_top, guess.draft_top)
    ]
    return min(forks, key=lambda fork: abs(fork.share - THIRD), default=None)


def _varied(top: Sequence[TokenProb]) -> bool:
    return sum(entry.prob >= SEEN for entry in top) >= CHOICES and top[0].prob <= SURE


def _overrated(target: Sequence[TokenProb], draft: Sequence[TokenProb]) -> bool:
    """Whether the draft gives one of the target's tokens more than the target does."""
    q = {entry.token_id: entry.prob for entry in draft}
    return any(q.get(entry.token_id, 0.0) > entry.prob for entry in target)


def resampled_share(target: Sequence[TokenProb], draft: Sequence[TokenProb]) -> float:
    """How often a draft is refused and replaced: one less the sum of the smaller of p and q over all tokens."""
    q = {entry.token_id: entry.prob for entry in draft}
    return max(0.0, 1.0 - sum(min(entry.prob, q.get(entry.token_id, 0.0)) for entry in target))


def _judged(trace: Trace) -> Iterator[tuple[int, Event]]:
    """The drafts that stood where the output goes on, each with how many tokens came before it."""
    guesses: dict[int | None, Event] = {}
    at = 0
    for event in trace:
        if event.kind == EventKind.PROPOSED:
            guesses[event.index] = event
        elif event.kind in (EventKind.ACCEPTED, EventKind.REJECTED):
            yield at, guesses.get(event.index, event)
            at += event.kind == EventKind.ACCEPTED
        elif event.kind in (EventKind.RESAMPLED, EventKind.BONUS):
            at += 1
        elif event.kind == EventKind.STEP:
            guesses.clear()


def text_before(trace: Trace, tokens: int, *, prompt: bool = True) -> str:
    """A run's text up to so many of its tokens; with the prompt, or without."""
    begun = (trace.started and trace.started.prompt) or "" if prompt else ""
    output = [event.text or "" for event in trace if event.kind in OUTPUT_KINDS]
    return begun + "".join(output[:tokens])
