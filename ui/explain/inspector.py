"""The inspector: why a token was accepted or rejected, in words, numbers and distributions.

Everything is plain text, whatever a model or a trace file contains: `assets/js/inspector.js`, which fills the panel during
playback, never makes markup of it.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import gradio as gr

from naive_speculate.events import TOKEN_KINDS, Event, EventKind, TokenProb
from naive_speculate.events.trace import Trace
from naive_speculate.palette import STYLES
from naive_speculate.speculate.verify import VerifyStrategy
from ui import labels
from ui.assets import component, render
from ui.explain.case import Case, case_of
from ui.explain.glossary import linked
from ui.explain.redraw import redraw_data
from ui.explain.why import why
from ui.labels import visible

SHOWN_TOKENS = 6
LEAST_SHOWN = 0.0001
LABEL_LENGTH, NAME_LENGTH = 14, 60  # most characters of a token: in the table, and in its tooltip
NO_DISTRIBUTIONS = "This run recorded no distributions, only the tokens' own probabilities."


def build_panel(run: str, trace: Trace) -> gr.HTML:
    """The component. Its value already explains the token that the first run shows, which saves a request."""
    return component("inspector", panel(), labels.to_json(_first_shown(run, trace)), elem_id="why", label="Why")


def panel() -> str:
    """The panel's markup."""
    return render("inspector", marks={kind: style.mark for kind, style in STYLES.items()})


def _first_shown(run: str, trace: Trace) -> dict[str, Any]:
    """The explanation that `assets/js/stage.js` requests first for a finished run: its closest rejection."""
    tokens = [number for number, event in enumerate(trace) if event.kind in TOKEN_KINDS]
    rejected = [number for number in tokens if trace[number].kind == EventKind.REJECTED]
    number = min(rejected, key=lambda number: abs((trace[number].accept_prob or 0.0) - 0.5), default=tokens[-1])
    end = next(n for n, event in enumerate(trace) if n > number and event.kind == EventKind.STEP) + 1
    if trace[end].kind == EventKind.FINISHED:  # it belongs to the last step
        end += 1
    return {"run": run, "number": number, "upto": end, **json.loads(to_json(Trace(trace.events[:end]), number))}


def to_json(trace: Trace, number: int) -> str:
    """Words, distributions and the data to redraw the position. The trace ends where playback is; see `case_of`."""
    answer = {"words": words(trace, number), "distributions": distributions(trace, number)}
    return labels.to_json(answer | {"redraw": redraw_data(trace, number)})


def words(trace: Trace, number: int) -> dict[str, Any]:
    """The reasons in sentences, most important first, and named numbers, in pieces with glossary terms; see `case_of`."""
    case = case_of(trace, number)
    return {
        "sentences": [linked(sentence) for sentence in why(case)],
        "details": [(linked(name), value) for name, value in _details(case)],
    }


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


def distributions(trace: Trace, number: int) -> dict[str, Any]:
    """The most probable tokens of draft, target and residual, for the table of `assets/js/inspector.js`; see `case_of`.

    `series` names the known distributions. Each of the `tokens` has a short `text`, a longer `name`, whether it is `chosen`,
    and its `probs` per distribution, None if not recorded (not zero). `rest` is what they leave of 1, empty if nothing.
    """
    case = case_of(trace, number)
    event = case.event
    # A resampled token was drawn at the rejected token's position.
    drafted = (case.first(EventKind.REJECTED) or event) if event.kind == EventKind.RESAMPLED else event
    series = [("draft", drafted.draft_top, event.draft_prob)]
    if event.kind != EventKind.PROPOSED:
        series += [("target", event.target_top, event.target_prob), ("residual", event.residual_top, None)]
    if not any(top for _, top, _ in series):
        return {"takeaway": NO_DISTRIBUTIONS, "series": [], "tokens": [], "rest": []}
    known: dict[str, dict[int, float]] = {}
    for name, top, own in series:
        if top is None and own is None:
            continue
        known[name] = {entry.token_id: entry.prob for entry in top or []}
        if own is not None and event.token_id is not None:
            known[name][event.token_id] = own
    shown = _tokens_shown(event, [entry for _, top, _ in series for entry in top or []], known.get("target", {}))
    if event.kind != EventKind.PROPOSED:
        _add_crossed(known, drafted)
    tokens: list[dict[str, Any]] = [
        {
            "text": visible(token.text, LABEL_LENGTH),
            "name": visible(token.text, NAME_LENGTH),
            "chosen": token.token_id == event.token_id,
            "probs": [probs.get(token.token_id) for probs in known.values()],
        }
        for token in shown
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


def _tokens_shown(event: Event, entries: list[TokenProb], target: Mapping[int, float]) -> list[TokenProb]:
    """The chosen token and the most probable others of all lists' entries, sorted by target probability. Except for the first,
    tokens with invisible bars are left out."""
    best: dict[int, TokenProb] = {}
    for entry in entries:
        if entry.token_id not in best or entry.prob > best[entry.token_id].prob:
            best[entry.token_id] = entry
    by_prob = sorted(best.values(), key=lambda entry: (-entry.prob, -target.get(entry.token_id, 0.0)))
    first, *others = by_prob[:SHOWN_TOKENS]
    chosen = [first, *(entry for entry in others if entry.prob >= LEAST_SHOWN)]
    if event.token_id is not None and all(entry.token_id != event.token_id for entry in chosen):
        own = TokenProb(event.token_id, event.text or event.token or "", event.target_prob or 0.0)
        chosen = [*chosen[: SHOWN_TOKENS - 1], own]
    return sorted(chosen, key=lambda entry: (-target.get(entry.token_id, 0.0), -entry.prob))
