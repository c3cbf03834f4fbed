"""What the browser needs to roll a draft's dice again (`assets/js/roll.js`): what both models give each token at its place.

The tokens are those of both models' lists of most probable ones and the draft itself. All others are one bin, "other", whose
part of Σ min(p, q) is what is left of the event's `expected_accept`: so that also there it is known how often a guess is kept.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from naive_speculate.events import Event, EventKind, TokenProb
from naive_speculate.events.trace import Trace
from ui.explain.verdict import Rule, case_of
from ui.labels import visible

SHOWN, LEAST = 9, 0.001
"""So many tokens stand by themselves, and none that is rarer than this to both models; they are part of "other"."""
ROUNDING = 1e-3
OBSTACLES = {
    Rule.BLOCK: "Block verification judges the window as a whole: one place's die alone decides nothing here.",
    Rule.GREEDY: "There is no die to roll again: a guess is kept if it is the target's likeliest token.",
    Rule.TYPICAL: "There is no die to roll again: a guess is kept if the target gives it more than the threshold.",
}
UNRECORDED = "This trace does not tell what both models gave the other tokens here; a new run does."


class Bin(NamedTuple):
    """A token, or all others, at the place of a draft.

    Attributes:
        text: The token's, made visible; empty for all others.
        p, q: What target and draft give it.
        shared: min(p, q), over all others summed.
    """

    text: str
    p: float
    q: float
    shared: float


def roll(trace: Trace, number: int) -> dict[str, Any] | None:
    """Bins of a judged draft, under "bins", the draft's own first and all others last; or under "why", why there are none.
    None for tokens that are no judged drafts. See `case_of`."""
    case = case_of(trace, number)
    if case.event.kind not in (EventKind.ACCEPTED, EventKind.REJECTED):
        return None
    if case.rule in OBSTACLES:
        return {"why": OBSTACLES[case.rule]}
    found = bins(case.event)
    return {"why": UNRECORDED} if found is None else {"bins": [list(each) for each in found]}


def bins(event: Event) -> list[Bin] | None:
    """The bins of a judged draft; None where its event does not tell them, or tells what cannot be."""
    p, q, expected = event.target_prob, event.draft_prob, event.expected_accept
    if p is None or q is None or expected is None or event.token_id is None:
        return None
    if not event.draft_top or not event.target_top or event.draft_top_target is None or event.target_top_draft is None:
        return None
    known = {event.token_id: Bin(visible(event.text or event.token, 16), p, q, min(p, q))}
    _add(known, event.target_top, [entry.prob for entry in event.target_top], event.target_top_draft)
    _add(known, event.draft_top, event.draft_top_target, [entry.prob for entry in event.draft_top])
    own, *others = known.values()
    likely = [each for each in others if max(each.p, each.q) >= LEAST]
    shown = [own, *sorted(likely, key=lambda each: -max(each.p, each.q))[: SHOWN - 1]]
    rest = [1 - sum(each.p for each in shown), 1 - sum(each.q for each in shown), expected - sum(each.shared for each in shown)]
    numbers = [number for each in shown for number in each[1:]]
    if not all(-ROUNDING <= number <= 1 + ROUNDING for number in [*numbers, *rest]):
        return None
    other_p, other_q, shared = (max(0.0, number) for number in rest)
    return [*shown, Bin("", other_p, other_q, min(shared, other_p, other_q))]


def _add(known: dict[int, Bin], top: Sequence[TokenProb], ps: Sequence[float], qs: Sequence[float]) -> None:
    for entry, p, q in zip(top, ps, qs, strict=False):
        known.setdefault(entry.token_id, Bin(visible(entry.text, 16), p, q, min(p, q)))
