"""What the other strategies would have accepted of a run's draft tokens, step by step: its events as markup, in a dialog.

The counts with the run's own draws are the decoder's. What is expected over all draws follows from the p and q of the draft
tokens, which every trace with probabilities has.
"""

import html
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import gradio as gr

from naive_speculate.events import Event, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.verify import VerifyStrategy
from naive_speculate.theory import expected_accepted
from ui.assets import component
from ui.labels import count, label, number
from ui.run.controls import STRATEGIES
from ui.run.runs import Runs

TITLE = "The same draft tokens under other strategies"
MOST_ROUNDS = 300
NAMES = {name: words.partition(" (")[0] for words, name in STRATEGIES}
NOT_RECORDED = "Not recorded: this run was saved by an earlier version, or without all details. Press Run for one that has it."
NO_DRAFTS = "Nothing was drafted in this run, so there is nothing to verify."
GREEDY = (
    "This run compares draft tokens with the target's most probable token: it makes no draws and uses no temperature, and at "
    "temperature 0 all strategies do just that. Run with a temperature and speculative sampling to see them differ."
)
NO_DRAWS = "Typical acceptance makes no draws, so for the strategies that need draws only the expected number is known here."
SAME_TEXT = "The draws are those of the run, and every step begins with the text that the run had by then."
EXPECTED = (
    "Expected: the exact mean over all draws, for these draft tokens. Under block verification it is also the mean over the "
    "draft tokens that could have followed, since they decide whether a position stands. It is never below that of speculative "
    "sampling; the number from one set of draws can be."
)
ABOUT = {
    "greedy_match": "the text of temperature 0",
    "speculative_sampling": "the target's distribution exactly",
    "block_verification": "the target's distribution exactly",
    "typical_acceptance": "another distribution",
}
"""What comes out under each."""
HEADS = ("Strategy", "Accepted with this run's draws", "Accepted, expected", "Output")
DRAWING = (VerifyStrategy.SPECULATIVE_SAMPLING, VerifyStrategy.BLOCK_VERIFICATION)
"""Under the others the draft tokens alone decide, so that what is expected is what they accept."""
MARKS = {True: ("accepted", "✓"), False: ("rejected", "✗"), None: ("discarded", "–")}


@dataclass(slots=True)
class Round:
    """A step with draft tokens.

    Attributes:
        number: Of the step, from 0.
        drafts: The draft tokens' texts.
        kept: How many of them each strategy accepts with the run's draws, by its name.
        expected: How many each accepts on average, by its name.
        distances: At each position of the window, how far typical acceptance is from the target.
    """

    number: int
    drafts: list[str]
    kept: dict[str, int]
    expected: dict[str, float]
    distances: list[float] = field(default_factory=list)

    @property
    def parts(self) -> bool:
        """Whether they do not all accept as many."""
        return len(set(self.kept.values())) > 1


def build_others(runs: Runs) -> gr.HTML:
    """The component: a dialog that `assets/js/others.js` opens for the run on the stage."""

    def others(run_id: object) -> str:
        """The view of a run, as HTML; empty for an unknown run."""
        run = runs.get(run_id)
        return markup(run.trace) if run else ""

    dialog = (
        '<dialog class="ns-glossary ns-others" aria-labelledby="others-title"><header>'
        f'<h2 id="others-title" tabindex="-1" autofocus>{TITLE}</h2><button type="button" data-close>Close</button></header>'
        '<p class="ns-others-said" role="status"></p><div class="ns-others-body"></div></dialog>'
    )
    return component("others", value=dialog, events=["lost"], server_functions=[others], label=TITLE)


def rounds_of(trace: Trace) -> list[Round]:
    """The steps with draft tokens for which the run's events have what the other strategies accept."""
    own = str(trace.settings.get("verify_strategy", ""))
    drafts: dict[int, list[Event]] = defaultdict(list)
    rounds = []
    for event in trace:
        if event.kind == EventKind.PROPOSED:
            drafts[event.step or 0].append(event)
        elif event.kind == EventKind.STEP and event.others is not None and own in NAMES:
            window = drafts.pop(event.step or 0, [])
            told = {own: event.num_accepted or 0} | event.others
            kept = {name: min(told[name], len(window)) for name in NAMES if name in told}
            texts, distances = [draft.text or draft.token or "" for draft in window], list(event.typical_distances or [])
            rounds.append(Round(event.step or 0, texts, kept, _expected(window, kept), distances[: len(window)]))
    return rounds


def _expected(window: Sequence[Event], kept: Mapping[str, int]) -> dict[str, float]:
    expected = {name: float(count) for name, count in kept.items() if name not in DRAWING}
    probs = [(draft.target_prob, draft.draft_prob) for draft in window]
    ratios = [p / q for p, q in probs if p is not None and q is not None and p >= 0 and q > 0]
    if len(ratios) == len(window):
        expected |= {name: expected_accepted(ratios, block=name == VerifyStrategy.BLOCK_VERIFICATION) for name in DRAWING}
    return expected


def markup(trace: Trace) -> str:
    """The whole view, as HTML."""
    rounds = rounds_of(trace)
    if not rounds:
        return f"<p>{html.escape(_why_none(trace))}</p>"
    own = trace.settings["verify_strategy"]
    parting = sum(one.parts for one in rounds)
    said = (
        f"The same draft tokens, verified by each strategy. This run used {NAMES[own].lower()}. {SAME_TEXT} "
        f"They differ in {parting} of {count(len(rounds), 'step')}."
    )
    missing = f"<p>{NO_DRAWS}</p>" if own == VerifyStrategy.TYPICAL_ACCEPTANCE else ""
    shown = rounds[:MOST_ROUNDS]
    left = len(rounds) - len(shown)
    more = f"<p>{count(left, 'later step')} {'is' if left == 1 else 'are'} not shown.</p>" if left else ""
    plain = sum(event.kind == EventKind.STEP and not event.num_draft for event in trace)
    return (
        f"<p>{html.escape(said)}</p>{missing}{_summary(rounds, own, plain)}<p>{EXPECTED}</p>"
        '<label class="ns-others-only"><input type="checkbox" /> Only steps where they differ</label>'
        f'<div class="ns-others-rounds">{"".join(_round(one, own) for one in shown)}</div>{more}'
    )


def _why_none(trace: Trace) -> str:
    if not any(event.kind == EventKind.PROPOSED for event in trace):
        return NO_DRAFTS
    if trace.settings.get("verify_strategy") == VerifyStrategy.GREEDY_MATCH or trace.settings.get("temperature") == 0:
        return GREEDY
    return NOT_RECORDED


def _summary(rounds: Sequence[Round], own: str, plain: int) -> str:
    """A row for each strategy; `plain` steps had no draft tokens, and give one token under each."""
    rows = []
    for name, title in NAMES.items():
        drawn, known = [one for one in rounds if name in one.kept], [one for one in rounds if name in one.expected]
        if not drawn and not known:
            continue
        counted = _cell(drawn, sum(one.kept.get(name, 0) for one in drawn), plain, 0)
        expected = _cell(known, sum(one.expected.get(name, 0.0) for one in known), plain, 0 if name not in DRAWING else 1)
        whose = " <small>this run</small>" if name == own else ""
        rows.append(
            f'<tr data-strategy="{name}"><th scope="row">{title}{whose}</th>'
            f'<td data-head="{HEADS[1]}" {counted}</td><td data-head="{HEADS[2]}" {expected}</td>'
            f"<td>{_output(name, rounds)}</td></tr>"
        )
    heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
    return f'<table class="ns-others-sums"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _cell(rounds: Sequence[Round], accepted: float, plain: int, digits: int) -> str:
    """The rest of a cell: accepted draft tokens of these steps, and tokens per target pass, the figure of the page's tile."""
    if not rounds:
        return ">–"
    drafted = sum(len(one.drafts) for one in rounds)
    share, passes = accepted / max(1, drafted), len(rounds) + plain
    return (
        f'class="ns-others-bar" style="--share:{min(1.0, share):.4f}">{accepted:.{digits}f} of {drafted} '
        f"<small>{1 + accepted / passes:.2f} tokens per target pass</small>"
    )


def _output(name: str, rounds: Sequence[Round]) -> str:
    if name != VerifyStrategy.TYPICAL_ACCEPTANCE:
        return ABOUT[name]
    reached = [distance for one in rounds for distance in one.distances[: one.kept.get(name, 0) + 1]]
    if not reached:
        return ABOUT[name]
    mean = sum(reached) / len(reached)
    return f"{ABOUT[name]}: {number(mean, 2)} from the target per position, at most {number(max(reached), 2)} (total variation)"


def _round(one: Round, own: str) -> str:
    drafts = "".join(f'<th scope="col"><span>{label(text, 16)}</span></th>' for text in one.drafts)
    rows = "".join(_verdicts(name, kept, len(one.drafts), name == own) for name, kept in one.kept.items())
    far = ""
    if one.distances:
        cells = "".join(f'<td style="--share:{distance:.4f}">{distance:.2f}</td>' for distance in one.distances)
        far = f'<tr class="ns-others-far"><th scope="row">Typical’s distance</th>{cells}</tr>'
    return (
        f'<table class="ns-others-round"{"" if one.parts else " data-same"} data-round="{one.number}"><thead><tr>'
        f'<th scope="row">Step {one.number + 1}</th>{drafts}</tr></thead><tbody>{rows}{far}</tbody></table>'
    )


def _verdicts(name: str, kept: int, drafted: int, own: bool) -> str:
    cells = []
    for place in range(drafted):
        word, mark = MARKS[True if place < kept else False if place == kept else None]
        cells.append(f'<td data-verdict="{word}"><span aria-hidden="true">{mark}</span><i>{word}</i></td>')
    mine = ' class="ns-others-own"' if own else ""
    return f'<tr data-strategy="{name}" data-kept="{kept}"{mine}><th scope="row">{NAMES[name]}</th>{"".join(cells)}</tr>'
