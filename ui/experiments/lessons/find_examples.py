"""Finds instructive examples in real runs, so that no lesson depends on one pair of models.

A rejection is instructive if it was close, a position to sample if about a third of the draws
are resampled, and a step if some draft tokens are accepted before one is rejected.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind, TokenProb
from naive_speculate.events.steps import Step, steps
from naive_speculate.events.trace import Trace

OPEN = (0.3, 0.7)  # range of p/q in which a verdict is close
SEEN = 0.03  # least probability whose bar is visible
SURE = 0.8  # above this probability there is one long bar, and p times q looks like p
THIRD = 1 / 3
ABOUT_A_THIRD = (0.2, 0.5)
KEPT = 2
CHOICES = 3  # least number of likely tokens for a picture of distributions


@dataclass(frozen=True, slots=True)
class SamplingPosition:
    """A position where the next token may be drawn again and again: all tokens before it, prompt
    included; the generated text before it; and how often a draw there is resampled, 1 − Σ min(p,
    q)."""

    token_ids: list[int]
    before: str
    share: float

    @property
    def teaches(self) -> bool:
        """Whether about a third of the draws are resampled."""
        return ABOUT_A_THIRD[0] <= self.share <= ABOUT_A_THIRD[1]


def close_rejection(trace: Trace, excluded: Collection[str] = ()) -> Step | None:
    """The step with the most visible close rejection: p/q between 0.3 and 0.7, both large enough
    to be visible but far from certain, and not among the `excluded` tokens."""

    def teaches(draft: Event) -> bool:
        p, q, keep = draft.target_prob or 0, draft.draft_prob or 0, draft.accept_prob or 0
        return (
            bool(draft.text)
            and draft.text not in excluded
            and OPEN[0] <= keep <= OPEN[1]
            and p >= SEEN
            and q <= SURE
        )

    rejections = [
        (step.rejected, step)
        for step in steps(trace)
        if step.rejected and step.added and step.added.text
    ]
    close = [(draft.draft_prob or 0, step) for draft, step in rejections if teaches(draft)]
    return max(close, key=lambda pair: pair[0], default=(0, None))[1]


def full_step(trace: Trace, followed_by: int) -> Step | None:
    """The most instructive step: at least two draft tokens accepted, one rejected and resampled,
    preferably one discarded, and so many steps after it."""
    every = list(steps(trace))
    candidates = every[: max(0, len(every) - followed_by)]
    whole = (
        step for step in candidates if step.rejected and step.num_accepted >= KEPT and step.added
    )
    return max(
        whole,
        key=lambda step: (len(step.verdicts) > step.num_accepted + 1, step.num_accepted),
        default=None,
    )


def sampling_position(trace: Trace) -> SamplingPosition | None:
    """The position of a run where the resampled share is closest to a third, and several tokens
    are likely. The run's top-k must not exceed the lists of likely tokens in its events."""
    forks = []
    for place, target, draft in judged_positions(trace):
        q = probs(draft)
        open_choice = (
            max(target[0].prob, draft[0].prob) <= SURE
            and sum(entry.prob >= SEEN for entry in target) >= CHOICES
        )
        # the draft overrates a token
        if open_choice and any(q.get(entry.token_id, 0.0) > entry.prob for entry in target):
            forks.append(place)
    return min(forks, key=lambda fork: abs(fork.share - THIRD), default=None)


def judged_positions(
    trace: Trace,
) -> Iterator[tuple[SamplingPosition, Sequence[TokenProb], Sequence[TokenProb]]]:
    """The position of every judged draft token, with the target's and the draft's most probable
    tokens there."""
    prompt = (trace.started and trace.started.prompt_token_ids) or []
    for step in steps(trace):
        for at, event in enumerate(step.verdicts, start=step.before):
            if event.kind != EventKind.DISCARDED and event.target_top and event.draft_top:
                share = distance(probs(event.target_top), probs(event.draft_top))
                before = SamplingPosition(
                    [*prompt, *trace.token_ids[:at]], _output(trace, at), share
                )
                yield before, event.target_top, event.draft_top


def probs(tokens: Iterable[TokenProb]) -> dict[int, float]:
    return {entry.token_id: entry.prob for entry in tokens}


def distance(p: Mapping[int, float], q: Mapping[int, float]) -> float:
    """Total variation distance, 1 − Σ min(p, q): of a target and a draft, how often a draft
    token is rejected and resampled."""
    return max(0.0, 1.0 - sum(min(prob, q.get(token, 0.0)) for token, prob in p.items()))


def text_before(trace: Trace, tokens: int) -> str:
    """The prompt and a run's first so many output tokens as text."""
    return joined((trace.started and trace.started.prompt) or "", _output(trace, tokens))


def _output(trace: Trace, tokens: int) -> str:
    return "".join([event.text or "" for event in trace if event.kind in OUTPUT_KINDS][:tokens])


def joined(prompt: str, output: str) -> str:
    """Prompt and output as one text; an answer to a question or an order begins after a space."""
    return (
        f"{prompt} {output}"
        if prompt[-1:] in tuple(".?!:") and not output[:1].isspace()
        else prompt + output
    )
