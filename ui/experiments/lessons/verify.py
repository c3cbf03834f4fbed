"""Lesson 2: one round, drawn token by token: drafted, judged in a single pass, and what the target adds."""

import html
from collections.abc import Iterator

from naive_speculate.events import EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.palette import STYLES
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, end_of, spoken
from ui.experiments.lessons.places import Round, rounds, teaching_round, text_before
from ui.labels import count, label

K = 4
TOKENS = 80
TRIES = 12
FOLLOWING = 3


def measure(trial: Trial) -> Iterator[Progress]:
    """Decode until a round comes that shows all there is to see."""
    yield Progress("Decoding …")
    for seed in trial.seeds(TRIES):
        trace = trial.run(
            "full", num_draft_tokens=K, auto=False, drafter="model", temperature=0.7, max_tokens=TOKENS, seed=seed
        )
        if trial.cancel.is_set():
            return
        found = teaching_round(trace, FOLLOWING)
        if found is not None:
            m = trace.metrics
            said = f"{count(m.num_generated_tokens, 'token')} in {count(m.num_spec_steps, 'round')}."
            yield Progress(said, _data(trace, found))
            return
    yield Progress("No round kept some guesses and refused another. Try another prompt.")


def _data(trace: Trace, found: Round) -> Data:
    return {
        "before": end_of(text_before(trace, found.before)),
        "rounds": [_round(each) for each in rounds(trace) if 0 <= each.number - found.number <= FOLLOWING],
        "tokens": trace.metrics.num_generated_tokens,
        "passes": trace.metrics.num_spec_steps,
    }


def _round(found: Round) -> Data:
    added = found.added
    return {
        "drafts": [{"kind": event.kind.value, "text": event.text or event.token or ""} for event in found.drafts],
        "added": None if added is None else {"kind": added.kind.value, "text": added.text or added.token or ""},
    }


def words(data: Data) -> dict[str, str]:
    drafts, added = data["rounds"][0]["drafts"], data["rounds"][0]["added"]
    kept = sum(draft["kind"] == "accepted" for draft in drafts)
    refused = next(draft["text"] for draft in drafts if draft["kind"] == "rejected")
    thrown = len(drafts) - kept - 1
    return {
        "k": str(len(drafts)),
        "kept": str(kept),
        "guess": spoken(refused),
        "added": spoken(added["text"]),
        "gained": str(kept + 1),
        "thrown": "The one after it is" if thrown == 1 else f"The {thrown} after it are" if thrown else "Any after it would be",
        "tokens": str(data["tokens"]),
        "passes": str(data["passes"]),
        "pace": f"{data['tokens'] / data['passes']:.1f}",
    }


def right(_data: Data) -> list[int]:
    return [1]


def views(_data: Data) -> list[View]:
    return [
        {"shown": ["drafts", "target", "verdicts", "added", "after"], "lit": []},
        {"shown": [], "lit": ["before"]},
        {"shown": ["drafts"], "lit": ["drafts"]},
        {"shown": ["drafts", "target", "verdicts"], "lit": ["target"]},
        {"shown": ["drafts", "target", "verdicts", "added"], "lit": ["added"]},
        {"shown": ["drafts", "target", "verdicts", "added", "after"], "lit": ["after"]},
    ]


def markup(data: Data) -> str:
    first, *after = data["rounds"]
    guesses = "".join(_chip("proposed", draft["text"]) for draft in first["drafts"])
    verdicts = "".join(_chip(draft["kind"], draft["text"]) for draft in first["drafts"])
    rows = "".join(
        f"<li>{''.join(_chip(draft['kind'], draft['text']) for draft in each['drafts'])}{_added(each['added'])}</li>"
        for each in after
    )
    return (
        f'<div data-part="before"><h3>The text so far</h3><p class="ns-lp-text">{html.escape(data["before"])}</p></div>'
        f'<div data-part="drafts"><h3>The draft guesses</h3><p class="ns-chips">{guesses}</p></div>'
        f'<div data-part="target"><h3>One pass of the target judges them</h3><p class="ns-chips">'
        f'<span data-part="verdicts">{verdicts}</span><span data-part="added">{_added(first["added"])}</span></p></div>'
        f'<div data-part="after"><h3>The next rounds</h3><ol class="ns-lp-rounds">{rows}</ol></div>'
    )


def _added(token: Data | None) -> str:
    return "" if token is None else _chip(token["kind"], token["text"])


def _chip(kind: str, text: str) -> str:
    """A token with its verdict; the mark is drawn by the style sheet, and the word is for those who do not see it."""
    said = html.escape(STYLES[EventKind(kind)].label)
    tag = "del" if kind in ("rejected", "discarded") else "span"
    return f'<{tag} class="ns-token ns-chip" data-kind="{kind}">{label(text)}<span class="ns-said"> {said}</span></{tag}> '


NOTE = "Decodes the prompt of the Run tab, four guesses a round at temperature 0.7, and shows one round of it."
LESSON = Lesson(2, "Decode your prompt", NOTE, measure, words, right, views, markup=markup)
