"""What the other strategies would have accepted of a run's draft tokens, step by step, as HTML
for a dialog.

The counts with the run's own draws come from its events. The expected counts follow from p and q
of the draft tokens, which every trace with probabilities has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import gradio as gr
from markupsafe import Markup

from naive_speculate.events import Event, EventKind
from naive_speculate.events.steps import steps
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.theory import expected_accepted
from naive_speculate.speculate.verify import VerifyStrategy
from ui.assets import component, render
from ui.labels import number
from ui.run.controls import STRATEGIES
from ui.run.runs import Runs

TITLE = "The same draft tokens under other strategies"
MOST_STEPS = 300
NAMES = {name: words.partition(" (")[0] for words, name in STRATEGIES}
NOT_RECORDED = (
    "Not recorded: this run was saved by an earlier version, or without all details. Press Run for"
    " one that has it."
)
NO_DRAFTS = "Nothing was drafted in this run, so there is nothing to verify."
GREEDY = (
    "This run compares each draft token with the target's most probable token: no draws, no"
    " temperature. At temperature 0 all strategies do the same. Run with a temperature and"
    " speculative sampling to see them differ."
)
OF_TREE = (
    "This run drafted token trees: several candidates per position, which the other strategies"
    " cannot judge. Run without a tree to compare them."
)
ABOUT = {
    "greedy_match": "the text of temperature 0",
    "speculative_sampling": "the target's distribution exactly",
    "block_verification": "the target's distribution exactly",
    "sample_match": "the target's distribution exactly",
    "typical_acceptance": "another distribution",
}
"""The output of each strategy."""
DRAWING = (
    VerifyStrategy.SPECULATIVE_SAMPLING,
    VerifyStrategy.BLOCK_VERIFICATION,
    VerifyStrategy.SAMPLE_MATCH,
)
"""Strategies with draws. For the others the expected number is what they accept."""


@dataclass(slots=True)
class ComparedStep:
    """A step with draft tokens: its number from 0, and their texts; how many of them each
    strategy accepts with the run's draws and on average, by name; and at each position of the
    window, the distance of typical acceptance from the target."""

    number: int
    drafts: list[str]
    accepted: dict[str, int]
    expected: dict[str, float]
    distances: list[float] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Whether the strategies accept different numbers of draft tokens."""
        return len(set(self.accepted.values())) > 1


def build_strategies(runs: Runs) -> gr.HTML:
    """The component: a dialog that `assets/js/strategies.js` opens for the run on the stage."""

    def compare(run_id: object) -> str:
        """The comparison for a run, as HTML; empty for an unknown run."""
        run = runs.get(run_id)
        return markup(run.trace) if run else ""

    dialog = render("strategies_dialog", title=TITLE)
    return component(
        "strategies", value=dialog, events=["lost"], server_functions=[compare], label=TITLE
    )


def compared_steps(trace: Trace) -> list[ComparedStep]:
    """The steps with draft tokens whose events record what the other strategies accept."""
    own = str(trace.settings.get("verify_strategy", ""))
    compared = []
    for step in steps(trace):
        end, window = step.end, step.drafts
        if end is not None and end.others is not None and own in NAMES:
            recorded = {own: end.num_accepted or 0} | end.others
            accepted = {
                name: min(recorded[name], len(window)) for name in NAMES if name in recorded
            }
            texts = [draft.text or draft.token or "" for draft in window]
            distances = (end.typical_distances or [])[: len(window)]
            expected = _expected(window, accepted)
            compared.append(ComparedStep(step.number, texts, accepted, expected, distances))
    return compared


def _expected(window: Sequence[Event], accepted: Mapping[str, int]) -> dict[str, float]:
    expected: dict[str, float] = {
        name: count for name, count in accepted.items() if name not in DRAWING
    }
    matching = [p for draft in window if (p := draft.target_prob) is not None and p >= 0]
    if len(matching) == len(window):  # a draft is accepted with the target's probability of it
        expected[VerifyStrategy.SAMPLE_MATCH] = expected_accepted(matching)
    probs = [(draft.target_prob, draft.draft_prob) for draft in window]
    ratios = [p / q for p, q in probs if p is not None and q is not None and p >= 0 and q > 0]
    if len(ratios) == len(window):
        expected |= {
            name: expected_accepted(ratios, block=name == VerifyStrategy.BLOCK_VERIFICATION)
            for name in DRAWING
            if name != VerifyStrategy.SAMPLE_MATCH
        }
    return expected


def markup(trace: Trace) -> str:
    compared = compared_steps(trace)
    if not compared:
        return Markup("<p>{}</p>").format(_why_none(trace))
    plain = sum(event.kind == EventKind.STEP and not event.num_draft for event in trace)
    rows = []  # per strategy
    for name in NAMES:
        drawn = _cell(
            [(step.accepted[name], len(step.drafts)) for step in compared if name in step.accepted],
            plain,
        )
        expected = _cell(
            [(step.expected[name], len(step.drafts)) for step in compared if name in step.expected],
            plain,
        )
        if drawn or expected:
            figures = {"name": name, "drawn": drawn, "expected": expected}
            rows.append(figures | {"output": _output(name, compared)})
    known = {
        "names": NAMES,
        "own": trace.settings["verify_strategy"],
        "steps": compared,
        "summary": rows,
        "differing": sum(step.differs for step in compared),
        "shown": compared[:MOST_STEPS],
        "left": max(0, len(compared) - MOST_STEPS),
    }
    return render("strategies", **known)


def _why_none(trace: Trace) -> str:
    if not any(event.kind == EventKind.PROPOSED for event in trace):
        return NO_DRAFTS
    if (
        trace.settings.get("verify_strategy") == VerifyStrategy.GREEDY_MATCH
        or trace.settings.get("temperature") == 0
    ):
        return GREEDY
    return OF_TREE if trace.settings.get("tree") else NOT_RECORDED


def _cell(steps: Sequence[tuple[float, int]], plain: int) -> dict[str, float]:
    """Accepted and drafted tokens of these steps, and tokens per target pass as in the page's
    tile; empty without steps. The `plain` steps had no draft tokens and give one token under
    each strategy."""
    if not steps:
        return {}
    accepted, drafted = (sum(amounts) for amounts in zip(*steps, strict=True))
    tokens_per_pass = 1 + accepted / (len(steps) + plain)
    return {
        "accepted": accepted,
        "drafted": drafted,
        "share": min(1.0, accepted / max(1, drafted)),
        "pace": tokens_per_pass,
    }


def _output(name: str, steps: Sequence[ComparedStep]) -> str:
    judged = [
        distance for step in steps for distance in step.distances[: step.accepted.get(name, 0) + 1]
    ]
    if name != VerifyStrategy.TYPICAL_ACCEPTANCE or not judged:
        return ABOUT[name]
    mean = sum(judged) / len(judged)
    return (
        f"{ABOUT[name]}: {number(mean, 2)} from the target per position, at most"
        f" {number(max(judged), 2)} (total variation)"
    )
