"""What the other strategies would have made of a run's drafts, round by round: the steps' events as markup, in a dialog.

The verdicts are the decoder's own, told with the events; nothing is judged here.
"""

import html
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import gradio as gr

from naive_speculate.events import Event, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.verify import VerifyStrategy
from ui.assets import component
from ui.labels import count, label, number
from ui.run.controls import STRATEGIES
from ui.run.runs import Runs

TITLE = "What would the others have done?"
MOST_ROUNDS = 300
NAMES = {name: words.partition(" (")[0] for words, name in STRATEGIES}
NOT_RECORDED = "Not recorded: this run was kept by an earlier version, or without all details. Press Run for one that has it."
NO_DRAFTS = "Nothing was drafted in this run, so that there is nothing to judge."
GREEDY = (
    "This run compares drafts with the target's most probable token: it rolls no die and has no temperature, and at "
    "temperature 0 all strategies do just that. Run with a temperature and speculative sampling to see them differ."
)
NO_DRAWS = "Typical acceptance rolls no die, so that the strategies that need one cannot be compared on this run."
SAME_TEXT = "The draws are those of the run, and every round begins with the text that the run had by then."
ABOUT = {
    "greedy_match": "the text of temperature 0",
    "speculative_sampling": "the target's distribution exactly",
    "block_verification": "the target's distribution exactly",
    "typical_acceptance": "another distribution",
}
"""What comes out under each."""
MARKS = {True: ("kept", "✓"), False: ("refused", "✗"), None: ("discarded", "–")}


@dataclass(slots=True)
class Round:
    """A round with drafts.

    Attributes:
        number: Of the step, from 0.
        drafts: The drafts' texts.
        kept: How many of them each strategy keeps, by its name.
        distances: At each draft's place, how far typical acceptance is from the target.
    """

    number: int
    drafts: list[str]
    kept: dict[str, int]
    distances: list[float] = field(default_factory=list)

    @property
    def parts(self) -> bool:
        """Whether they do not all keep as many."""
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
    """The rounds of which the run's events tell it."""
    own = str(trace.settings.get("verify_strategy", ""))
    drafts: dict[int, list[Event]] = defaultdict(list)
    rounds = []
    for event in trace:
        if event.kind == EventKind.PROPOSED:
            drafts[event.step or 0].append(event)
        elif event.kind == EventKind.STEP and event.others is not None and own in NAMES:
            texts = [draft.text or draft.token or "" for draft in drafts.pop(event.step or 0, [])]
            told = {own: event.num_accepted or 0} | event.others
            kept = {name: min(told[name], len(texts)) for name in NAMES if name in told}
            rounds.append(Round(event.step or 0, texts, kept, list(event.typical_distances or [])[: len(texts)]))
    return rounds


def markup(trace: Trace) -> str:
    """The whole view, as HTML."""
    rounds = rounds_of(trace)
    if not rounds:
        return f"<p>{html.escape(_why_none(trace))}</p>"
    own = trace.settings["verify_strategy"]
    parting = sum(one.parts for one in rounds)
    said = (
        f"The same drafts, judged by each strategy. This run was judged by {NAMES[own].lower()}. {SAME_TEXT} "
        f"They differ in {parting} of {count(len(rounds), 'round')}."
    )
    missing = f"<p>{NO_DRAWS}</p>" if own == VerifyStrategy.TYPICAL_ACCEPTANCE else ""
    shown = rounds[:MOST_ROUNDS]
    left = len(rounds) - len(shown)
    more = f"<p>{count(left, 'later round')} {'is' if left == 1 else 'are'} not shown.</p>" if left else ""
    return (
        f"<p>{html.escape(said)}</p>{missing}{_summary(rounds, own)}"
        '<label class="ns-others-only"><input type="checkbox" /> Only rounds where they differ</label>'
        f'<div class="ns-others-rounds">{"".join(_round(one, own) for one in shown)}</div>{more}'
    )


def _why_none(trace: Trace) -> str:
    if not any(event.kind == EventKind.PROPOSED for event in trace):
        return NO_DRAFTS
    if trace.settings.get("verify_strategy") == VerifyStrategy.GREEDY_MATCH or trace.settings.get("temperature") == 0:
        return GREEDY
    return NOT_RECORDED


def _summary(rounds: Sequence[Round], own: str) -> str:
    rows = []
    for name, title in NAMES.items():
        judged = [one for one in rounds if name in one.kept]
        if not judged:
            continue
        drafted = sum(len(one.drafts) for one in judged)
        kept = sum(one.kept[name] for one in judged)
        whose = " <small>this run</small>" if name == own else ""
        rows.append(
            f'<tr data-strategy="{name}"><th scope="row">{title}{whose}</th>'
            f'<td class="ns-others-bar" style="--share:{kept / max(1, drafted):.4f}">{kept} of {drafted}</td>'
            f"<td>{1 + kept / len(judged):.2f}</td><td>{_output(name, rounds)}</td></tr>"
        )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("Strategy", "Drafts kept", "Tokens a round", "What comes out"))
    return f'<table class="ns-others-sums"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _output(name: str, rounds: Sequence[Round]) -> str:
    if name != VerifyStrategy.TYPICAL_ACCEPTANCE:
        return ABOUT[name]
    reached = [distance for one in rounds for distance in one.distances[: one.kept.get(name, 0) + 1]]
    if not reached:
        return ABOUT[name]
    mean = sum(reached) / len(reached)
    return f"{ABOUT[name]}: {number(mean, 2)} from the target at a place, {number(max(reached), 2)} at most (total variation)"


def _round(one: Round, own: str) -> str:
    drafts = "".join(f'<th scope="col"><span>{label(text, 16)}</span></th>' for text in one.drafts)
    rows = "".join(_verdicts(name, kept, len(one.drafts), name == own) for name, kept in one.kept.items())
    far = ""
    if one.distances:
        cells = "".join(f'<td style="--share:{distance:.4f}">{distance:.2f}</td>' for distance in one.distances)
        far = f'<tr class="ns-others-far"><th scope="row">Typical’s distance</th>{cells}</tr>'
    return (
        f'<table class="ns-others-round"{"" if one.parts else " data-same"} data-round="{one.number}"><thead><tr>'
        f'<th scope="row">Round {one.number + 1}</th>{drafts}</tr></thead><tbody>{rows}{far}</tbody></table>'
    )


def _verdicts(name: str, kept: int, drafted: int, own: bool) -> str:
    cells = []
    for place in range(drafted):
        word, mark = MARKS[True if place < kept else False if place == kept else None]
        cells.append(f'<td data-verdict="{word}"><span aria-hidden="true">{mark}</span><i>{word}</i></td>')
    mine = ' class="ns-others-own"' if own else ""
    return f'<tr data-strategy="{name}" data-kept="{kept}"{mine}><th scope="row">{NAMES[name]}</th>{"".join(cells)}</tr>'
