"""The data to redraw a position in the browser (`assets/js/redraw.js`): p and q of each token there.

The tokens are the draft token and both models' most probable ones. All others form one bin, "other". Its part of Σ min(p,
q) is the rest of the event's `expected_accept`, so that its acceptance rate is known too.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from naive_speculate.events import Event, EventKind, TokenProb
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.verify import VerifyStrategy
from ui.explain.case import case_of, setting
from ui.labels import visible

SHOWN, LEAST = 9, 0.001  # most tokens with a bin of their own, and the least probability, under either model, for one
ROUNDING = 1e-3
MOST_PROBABLE = (
    "Nothing is drawn here, so nothing can be repeated. Run speculative sampling at temperature 0.7: there p/q decides."
)
THRESHOLD = "There is no draw to repeat: a draft token is accepted if its target probability exceeds the threshold."
OBSTACLES = {
    VerifyStrategy.BLOCK_VERIFICATION: "Block verification judges the window as a whole, so one position cannot be redrawn.",
    VerifyStrategy.GREEDY_MATCH: MOST_PROBABLE,
    VerifyStrategy.TYPICAL_ACCEPTANCE: THRESHOLD,
}
OF_TREE = "Several candidates were judged one after the other, so one draw cannot be repeated alone."
UNRECORDED = "This trace lacks the other tokens' probabilities here. A new run records them."


class Bin(NamedTuple):
    """A token, made visible, or all others together, without text, at the position of a draft token: p under the target, q
    under the draft, and min(p, q) summed over the tokens of the bin."""

    text: str
    p: float
    q: float
    shared: float


def redraw_data(trace: Trace, number: int) -> dict[str, Any] | None:
    """The bins of a judged draft token as "bins", its own first and all others last, or as "why" the reason for none. None
    for any other token. See `case_of` for the arguments."""
    case = case_of(trace, number)
    if case.event.kind not in (EventKind.ACCEPTED, EventKind.REJECTED):
        return None
    if case.rule in OBSTACLES:
        return {"why": OBSTACLES[case.rule]}
    if setting(case.settings, "tree"):
        return {"why": OF_TREE}
    found = bins(case.event)
    return {"why": UNRECORDED} if found is None else {"bins": [list(each) for each in found]}


def bins(event: Event) -> list[Bin] | None:
    """The bins of a judged draft token; None if its event lacks the numbers or they are inconsistent."""
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
