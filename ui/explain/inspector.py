"""The inspector: why a token was accepted or rejected, in words, numbers and distributions.

Everything is plain text, whatever a model or a trace file contains: `assets/js/inspector.js`
fills the panel with texts, and with the table of likely tokens, in which they are escaped.
"""

import math
from collections.abc import Mapping
from typing import Any

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


def build_panel() -> gr.HTML:
    return component("inspector", panel(), elem_id="why", label="Why")


def panel() -> str:
    return render("inspector", marks={kind: style.mark for kind, style in STYLES.items()})


def to_json(trace: Trace, number: int) -> str:
    """Words and distributions. The trace ends where playback is; see `case_of`."""
    odds = render("odds", **distributions(trace, number))
    return labels.to_json({"words": words(trace, number), "odds": odds})


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
