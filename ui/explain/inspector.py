"""The inspector: why a token was accepted or rejected, in words, numbers and distributions.

Everything is plain text, whatever a model or a trace file contains: `assets/js/inspector.js` never makes markup of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from naive_speculate.events import Event, EventKind, TokenProb
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.verify import VerifyStrategy
from ui import labels
from ui.explain.case import Case, case_of
from ui.explain.glossary import linked
from ui.explain.redraw import redraw_data
from ui.explain.why import why
from ui.labels import visible

SHOWN_TOKENS = 6
LEAST_SHOWN = 0.0001
LABEL_LENGTH, NAME_LENGTH = 14, 60  # most characters of a token: in the table, and in its tooltip
NO_DISTRIBUTIONS = "This run recorded no distributions, only the tokens' own probabilities."


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one token: reasons, most important first, and named numbers."""

    sentences: list[str]
    details: list[tuple[str, str]]


def explain(trace: Trace, number: int) -> Explanation:
    """Explain a token event; see `case_of`."""
    case = case_of(trace, number)
    return Explanation(why(case), _details(case))


def _details(case: Case) -> list[tuple[str, str]]:
    event = case.event
    block = case.rule == VerifyStrategy.BLOCK_VERIFICATION
    judged = event.kind != EventKind.PROPOSED  # the event contains p already; playback has not shown it
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
    counts = [("step", event.step), ("position in the window", event.index), ("position in the output", event.position)]
    details += [(name, str(value + 1)) for name, value in counts if value is not None]
    details.append(("token", f"{event.token_id}" + (f" {visible(event.token)}" if event.token else "")))
    return details


def to_json(trace: Trace, number: int) -> str:
    """Words, distributions and the data to redraw the position. The trace ends where playback is; see `case_of`."""
    answer = {"words": words(trace, number), "distributions": distributions(trace, number)}
    return labels.to_json(answer | {"redraw": redraw_data(trace, number)})


def words(trace: Trace, number: int) -> dict[str, Any]:
    """The explanation's sentences and details, in pieces with glossary terms."""
    explanation = explain(trace, number)
    return {
        "sentences": [linked(sentence) for sentence in explanation.sentences],
        "details": [(linked(name), value) for name, value in explanation.details],
    }


def distributions(trace: Trace, number: int) -> dict[str, Any]:
    """The most probable tokens of draft, target and residual, for the table that `assets/js/distributions.js` draws. See
    `case_of` for the arguments.

    Returns:
        dict: `takeaway`, one line; `series`, the names of the known distributions; `tokens`, each with a short `text`, a longer
        `name`, whether it is `chosen`, and its `probs` per distribution, None if not recorded (not zero); `rest`, what
        they leave of 1 in each distribution, empty if nothing.
    """
    case = case_of(trace, number)
    event, drafted = case.event, case.event
    judged = event.kind != EventKind.PROPOSED
    if event.kind == EventKind.RESAMPLED:  # it was drawn at the rejected token's position
        drafted = case.first(EventKind.REJECTED) or event
    series = [
        ("draft", drafted.draft_top, event.draft_prob),
        ("target", event.target_top if judged else None, event.target_prob if judged else None),
        ("residual", event.residual_top if judged else None, None),
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
    if judged:
        _add_crossed(known, drafted)
    tokens: list[dict[str, Any]] = [
        {
            "text": visible(token.text, LABEL_LENGTH),
            "name": visible(token.text, NAME_LENGTH),
            "chosen": token.token_id == event.token_id,
            "probs": [probs.get(token.token_id) for probs in known.values()],
        }
        for token in _tokens_shown(event, drafted.draft_top, judged)
    ]
    takeaway = f"▸ marks “{visible(event.text or event.token, 16)}”; ␣ is a space"
    columns = zip(*(token["probs"] for token in tokens), strict=True)
    rest = [max(0.0, 1 - math.fsum(prob or 0.0 for prob in column)) for column in columns]
    if max(rest) < LEAST_SHOWN:
        rest = []
    elif any(None in token["probs"] for token in tokens):
        takeaway += "; tokens marked – are part of “all others”"
    return {"takeaway": takeaway, "series": list(known), "tokens": tokens, "rest": rest}


def _add_crossed(known: dict[str, dict[int, float]], drafted: Event) -> None:
    """Add each model's probabilities of the other's tokens, if the verdict event has them."""
    for name, top, probs in (
        ("target", drafted.draft_top, drafted.draft_top_target),
        ("draft", drafted.target_top, drafted.target_top_draft),
    ):
        for entry, prob in zip(top or (), probs or (), strict=False):
            known.get(name, {}).setdefault(entry.token_id, prob)


def _tokens_shown(event: Event, draft_top: Sequence[TokenProb] | None, judged: bool) -> list[TokenProb]:
    """The chosen token and the most probable others of the three lists, sorted by target probability.

    Except for the first, tokens with invisible bars are left out.
    """
    best: dict[int, TokenProb] = {}
    for top in (event.target_top, draft_top, event.residual_top) if judged else (draft_top,):
        for entry in top or []:
            if entry.token_id not in best or entry.prob > best[entry.token_id].prob:
                best[entry.token_id] = entry
    first, *others = sorted(best.values(), key=lambda entry: -entry.prob)[:SHOWN_TOKENS]
    chosen = [first, *(entry for entry in others if entry.prob >= LEAST_SHOWN)]
    if event.token_id is not None and all(entry.token_id != event.token_id for entry in chosen):
        own = TokenProb(event.token_id, event.text or event.token or "", event.target_prob or 0.0)
        chosen = [*chosen[: SHOWN_TOKENS - 1], own]
    if not judged:
        return sorted(chosen, key=lambda entry: -entry.prob)
    target = {entry.token_id: entry.prob for entry in event.target_top or []}
    if event.token_id is not None and event.target_prob is not None:
        target[event.token_id] = event.target_prob
    return sorted(chosen, key=lambda entry: (-target.get(entry.token_id, 0.0), -entry.prob))
