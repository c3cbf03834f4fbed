"""The figures of a run after each of its steps, for the browser, which adds up nothing.

They are the metrics of naive_speculate/events/metrics.py, with what the charts need of each step.
An opened trace may claim anything, so numbers are bounded.
"""

import threading
from collections.abc import Sequence
from typing import Any

from naive_speculate.events import OUTPUT_KINDS, TOKEN_KINDS, Event, EventKind
from naive_speculate.events.steps import Step
from naive_speculate.tools.show.expected import Expectation, two
from ui.run.engines import EngineRules

MOST_DRAFTS = 64
MOST_SECONDS = 1e6  # no real step takes longer


class Figures:
    """The figures of a growing run, by step. Each event is counted once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted = 0  # events so far
        self._own: list[Event] = []  # of the unfinished step's tokens
        self._settings: dict[str, Any] = {}
        self._sums: dict[str, float] = {}
        self._tokens = 0
        self._expectation, self._engines = Expectation(), EngineRules()
        self._of: dict[int, dict[str, Any]] = {}  # by the number of a step's event

    def of(self, events: Sequence[Event], number: int) -> dict[str, Any] | None:
        """The figures of the step that event `number` ends: `round` has those of the step,
        `sums` those of all steps so far, `luck` the exact α, if it is known, and `engines` what
        the rules of other engines would accept. None for an event of another kind."""
        with self._lock:
            while self._counted <= number:
                self._add(self._counted, events[self._counted])
                self._counted += 1
            return self._of.get(number)

    def _add(self, number: int, event: Event) -> None:
        if event.kind in TOKEN_KINDS:
            self._own.append(event)
        self._tokens += event.kind in OUTPUT_KINDS
        self._expectation.add(event)
        if event.kind == EventKind.STARTED:
            self._settings = event.settings or {}
        if event.kind != EventKind.STEP:
            return
        own, self._own = Step(event.step or 0, self._own), []
        step = _of_step(event, own)
        for name, value in step.items():
            self._sums[name] = self._sums.get(name, 0) + value
        if len(tree := event.tree or ()) > step["drafted"]:  # the window is one path through it
            more = min(MOST_DRAFTS, len(tree)) - step["drafted"]
            rejected = sum(node.kind == "rejected" for node in tree)
            rejected -= step["accepted"] < step["drafted"]
            self._sums["drafted"] += more
            self._sums["siblings"] += rejected
            self._sums["discarded"] += more - rejected
        drafts = own.drafts[:MOST_DRAFTS]
        judged = drafts[: int(step["judged"])]
        argmax = self._settings.get("draft_sampling") == "argmax"
        self._engines.add(drafts, len(judged), drawn=not argmax)
        # The acceptance probabilities, and those if the draft tokens had been chosen otherwise.
        alphas = _probs(judged, "expected_accept")
        others = _probs(judged, "sampled_accept" if argmax else "argmax_accept")
        self._of[number] = {
            "round": step | {"alphas": alphas, "others": others},
            "sums": self._sums | {"time": event.time or 0.0, "tokens": self._tokens},
            "luck": self._luck(),
            "engines": self._engines.figures(self._settings),
        }

    def _luck(self) -> dict[str, Any] | None:
        """The exact α and the observed one in words: each judged position is accepted with
        probability Σ min(p, q). None if nothing was judged, or the events lack the numbers."""
        expected = self._expectation.figures
        if expected is None:
            return None
        if not expected.one_by_one:
            note = f"Judged one by one it would be {two(expected.alpha)}."
        else:
            note = f"Expected for this draft: {expected.spread}." if expected.variance > 0 else ""
        luck = {"alpha": expected.alpha, "sentence": str(expected), "note": note}
        return luck if expected.one_by_one else luck | {"whole": True}


def _of_step(step: Event, own: Step) -> dict[str, float]:
    drafted = _bounded(step.num_draft, MOST_DRAFTS)
    accepted = _bounded(step.num_accepted, drafted)
    draft, verify = (_bounded(s, MOST_SECONDS) for s in (step.draft_seconds, step.verify_seconds))
    # A step that did not accept every draft token rejected exactly one; later ones were not
    # judged.
    judged = accepted + (accepted < drafted)
    return {
        "drafted": drafted,
        "accepted": accepted,
        "judged": judged,
        "draft": draft,
        "verify": verify,
        "seconds": max(draft + verify, _bounded(step.total_seconds, MOST_SECONDS)),
        "kept": own.num_accepted,
        # tokens after the end of the text, among others
        "discarded": sum(event.kind == EventKind.DISCARDED for event in own.events),
        "forced": sum(event.kind in OUTPUT_KINDS and bool(event.forced) for event in own.events),
        "siblings": 0,
    }


def _probs(events: Sequence[Event], name: str) -> list[float]:
    values = (getattr(event, name) for event in events)
    return [_bounded(value, 1.0) for value in values if value is not None]


def _bounded(value: float | None, most: float) -> float:
    return min(most, max(0, value or 0))
