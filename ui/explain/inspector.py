"""The inspector: why a token was accepted or rejected, in words, numbers and distributions.

Everything is plain text, whatever a model or a trace file contains: `assets/js/inspector.js`
fills the panel with texts, and with the table of likely tokens, in which they are escaped.

The data to redraw a position in the browser are p and q of each token there: the draft token and
both models' most probable ones. All others form one bin, "other". Its part of Σ min(p, q) is the
rest of the event's `expected_accept`, so that its acceptance rate is known too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gradio as gr

from naive_speculate.events import Event, EventKind, TokenProb
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.verify import VerifyStrategy
from naive_speculate.tools.show.palette import STYLES
from ui import labels
from ui.assets import component, render
from ui.explain.glossary import linked
from ui.explain.why import Case, case_of, why
from ui.labels import visible

SHOWN_TOKENS = 6
LEAST_SHOWN = 0.0001
LABEL_LENGTH, NAME_LENGTH = 14, 60  # most characters of a token: in the table, and in its tooltip
NO_DISTRIBUTIONS = "This run recorded no distributions, only the tokens' own probabilities."
# most tokens with a bin of their own, and the least probability, under either model, for one
SHOWN, LEAST = 9, 0.001
ROUNDING = 1e-3
OBSTACLES = {
    VerifyStrategy.BLOCK_VERIFICATION: (
        "Block verification judges the window as a whole, so one position cannot be redrawn."
    ),
    VerifyStrategy.GREEDY_MATCH: (
        "Nothing is drawn here, so nothing can be repeated. Run speculative sampling at temperature"
        " 0.7: there p/q decides."
    ),
    VerifyStrategy.SAMPLE_MATCH: (
        "There is no draw to repeat: a draft token is accepted if it is the target's own draw."
    ),
    VerifyStrategy.TYPICAL_ACCEPTANCE: (
        "There is no draw to repeat: a draft token is accepted if its target probability "
        "exceeds the threshold."
    ),
}
OF_TREE = (
    "Several candidates were judged one after the other, so one draw cannot be repeated alone."
)
UNRECORDED = "This trace lacks the other tokens' probabilities here. A new run records them."


class Bin(NamedTuple):
    """A token, made visible, or all others together, without text, at the position of a draft
    token: p under the target, q under the draft, and min(p, q) summed over the tokens of the
    bin."""

    text: str
    p: float
    q: float
    shared: float


def build_panel() -> gr.HTML:
    return component("inspector", panel(), elem_id="why", label="Why")


def panel() -> str:
    return render("inspector", marks={kind: style.mark for kind, style in STYLES.items()})


def to_json(trace: Trace, number: int) -> str:
    """Words, distributions and the data to redraw the position. The trace ends where playback
    is; see `case_of`."""
    odds = render("odds", **distributions(trace, number))
    answer = {"words": words(trace, number), "odds": odds}
    return labels.to_json(answer | {"redraw": redraw_data(trace, number)})


def words(trace: Trace, number: int) -> dict[str, Any]:
    """The reasons in sentences, most important first, and named numbers, in pieces with glossary
    terms; see `case_of`."""
    case = case_of(trace, number)
    return {
        "sentences": [linked(sentence) for sentence in why(case)],
        "details": [(linked(name), value) for name, value in _details(case)],
    }


def _details(case: Case) -> list[tuple[str, str]]:
    event = case.event
    block = case.rule == VerifyStrategy.BLOCK_VERIFICATION
    # the event contains p already; playback has not shown it
    judged = event.kind != EventKind.PROPOSED
    numbers = [
        ("target probability p", event.target_prob if judged else None),
        ("draft probability q", event.draft_prob),
        ("block acceptance h" if block else "acceptance probability", event.accept_prob),
        ("draw u", event.uniform),
        ("exact α", event.expected_accept if judged else None),
        ("threshold", event.threshold),
        ("target entropy, nats", event.target_entropy if judged else None),
        ("draft entropy, nats", event.draft_entropy),
    ]
    details = [(name, f"{value:.6g}") for name, value in numbers if value is not None]
    counts = [
        ("step", event.step),
        ("position in the window", event.index),
        ("position in the output", event.position),
    ]
    details += [(name, str(value + 1)) for name, value in counts if value is not None]
    details.append(
        ("token", f"{event.token_id}" + (f" {visible(event.token)}" if event.token else ""))
    )
    return details


def distributions(trace: Trace, number: int) -> dict[str, Any]:
    """The most probable tokens of draft, target and residual, for their table;
    see `case_of`.

    `series` names the known distributions. Each of the `tokens` has a short `text`, a longer
    `name`, whether it is `chosen`, and its `probs` per distribution, None if not recorded (not
    zero). `rest` is what they leave of 1, empty if nothing.
    """
    case = case_of(trace, number)
    event = case.event
    # A resampled token was drawn at the rejected token's position.
    drafted = (case.step.rejected or event) if event.kind == EventKind.RESAMPLED else event
    series = [("draft", drafted.draft_top, event.draft_prob)]
    if event.kind != EventKind.PROPOSED:
        series += [
            ("target", event.target_top, event.target_prob),
            ("residual", event.residual_top, None),
        ]
    if not any(top for _, top, _ in series):
        return {"takeaway": NO_DISTRIBUTIONS, "series": [], "tokens": [], "rest": []}
    known: dict[str, dict[int, float]] = {}
    for name, top, own in series:
        if top is None and own is None:
            continue
        known[name] = {entry.token_id: entry.prob for entry in top or []}
        if own is not None and event.token_id is not None:
            known[name][event.token_id] = own
    instead = case.resampled if event.kind == EventKind.REJECTED else None
    marked = [event, *([instead] if instead else [])]
    shown = _tokens_shown(
        marked, [entry for _, top, _ in series for entry in top or []], known.get("target", {})
    )
    _add_crossed(known, case, drafted)
    tokens: list[dict[str, Any]] = [
        {
            "text": ("↻ " if instead and token.token_id == instead.token_id else "")
            + visible(token.text, LABEL_LENGTH),
            "name": visible(token.text, NAME_LENGTH),
            "chosen": token.token_id == event.token_id,
            "probs": [probs.get(token.token_id) for probs in known.values()],
        }
        for token in shown
    ]
    takeaway = f"▸ marks “{visible(event.text or event.token, 16)}”; ␣ is a space"
    if instead:
        takeaway += "; ↻ was drawn instead"
    columns = zip(*(token["probs"] for token in tokens), strict=True)
    rest = [max(0.0, 1 - math.fsum(prob or 0.0 for prob in column)) for column in columns]
    if max(rest, default=0.0) < LEAST_SHOWN:
        rest = []
    elif any(None in token["probs"] for token in tokens):
        takeaway += "; tokens marked – are part of “all others”"
    return {"takeaway": takeaway, "series": list(known), "tokens": tokens, "rest": rest}


def _add_crossed(known: dict[str, dict[int, float]], case: Case, drafted: Event) -> None:
    """Add to the known probabilities each model's of the other's tokens, if the verdict event has
    them, and the rejected token's in the residual."""
    if case.event.kind != EventKind.PROPOSED:
        target_crossed = zip(drafted.draft_top or (), drafted.draft_top_target or (), strict=False)
        draft_crossed = zip(drafted.target_top or (), drafted.target_top_draft or (), strict=False)
        for name, crossed in (("target", target_crossed), ("draft", draft_crossed)):
            for entry, prob in crossed:
                known.get(name, {}).setdefault(entry.token_id, prob)
    rejected = case.step.rejected
    # it was rejected because q exceeds p, so max(0, p − q) is 0
    if (
        "residual" in known
        and rejected is not None
        and rejected.token_id is not None
        and case.rule == VerifyStrategy.SPECULATIVE_SAMPLING
        and not case.settings.get("tree")
    ):
        known["residual"].setdefault(rejected.token_id, 0.0)


def _tokens_shown(
    marked: list[Event], entries: list[TokenProb], target: Mapping[int, float]
) -> list[TokenProb]:
    """The marked tokens and the most probable others of all lists' entries, sorted by target
    probability. Others with invisible bars are left out."""
    best = {
        event.token_id: TokenProb(
            event.token_id, event.text or event.token or "", event.target_prob or 0.0
        )
        for event in marked
        if event.token_id is not None
    }
    own = set(best)
    best |= {entry.token_id: entry for entry in sorted(entries, key=lambda entry: entry.prob)}
    listed = [
        entry for entry in best.values() if entry.token_id in own or entry.prob >= LEAST_SHOWN
    ]
    ranked = sorted(
        listed,
        key=lambda entry: (
            entry.token_id not in own,
            -entry.prob,
            -target.get(entry.token_id, 0.0),
        ),
    )
    return sorted(
        ranked[:SHOWN_TOKENS], key=lambda entry: (-target.get(entry.token_id, 0.0), -entry.prob)
    )


def redraw_data(trace: Trace, number: int) -> dict[str, Any] | None:
    """The bins of a judged draft token as "bins", its own first and all others last, or as "why"
    the reason for none. None for any other token. See `case_of` for the arguments."""
    case = case_of(trace, number)
    if case.event.kind not in (EventKind.ACCEPTED, EventKind.REJECTED):
        return None
    if case.rule in OBSTACLES:
        return {"why": OBSTACLES[case.rule]}
    if case.settings.get("tree"):
        return {"why": OF_TREE}
    own = bins(case.event)
    return {"why": UNRECORDED} if own is None else {"bins": [list(each) for each in own]}


def bins(event: Event) -> list[Bin] | None:
    """The bins of a judged draft token; None if its event lacks the numbers or they are
    inconsistent."""
    p, q, expected = event.target_prob, event.draft_prob, event.expected_accept
    if p is None or q is None or expected is None or event.token_id is None:
        return None
    if (
        not event.draft_top
        or not event.target_top
        or event.draft_top_target is None
        or event.target_top_draft is None
    ):
        return None
    known = {event.token_id: Bin(visible(event.text or event.token, 16), p, q, min(p, q))}
    _add(
        known, event.target_top, [entry.prob for entry in event.target_top], event.target_top_draft
    )
    _add(known, event.draft_top, event.draft_top_target, [entry.prob for entry in event.draft_top])
    own, *others = known.values()
    likely = [each for each in others if max(each.p, each.q) >= LEAST]
    shown = [own, *sorted(likely, key=lambda each: -max(each.p, each.q))[: SHOWN - 1]]
    rest = [
        1 - sum(each.p for each in shown),
        1 - sum(each.q for each in shown),
        expected - sum(each.shared for each in shown),
    ]
    numbers = [number for each in shown for number in each[1:]]
    if not all(-ROUNDING <= number <= 1 + ROUNDING for number in [*numbers, *rest]):
        return None
    other_p, other_q, shared = (max(0.0, number) for number in rest)
    return [*shown, Bin("", other_p, other_q, min(shared, other_p, other_q))]


def _add(
    known: dict[int, Bin], top: Sequence[TokenProb], ps: Sequence[float], qs: Sequence[float]
) -> None:
    for entry, p, q in zip(top, ps, qs, strict=False):
        known.setdefault(entry.token_id, Bin(visible(entry.text, 16), p, q, min(p, q)))
