"""Lesson 3: one guess that the die refused, and what was drawn in its place."""

import html
from collections.abc import Iterator

from naive_speculate.events import EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.palette import STYLES
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, end_of, spoken
from ui.experiments.lessons.places import OPEN, Round, teaching_refusal, text_before
from ui.experiments.lossless import OTHERS, rest_of
from ui.labels import label, number, percent

K = 4
TOKENS = 100
TRIES = 24
SHOWN = 5


def measure(trial: Trial) -> Iterator[Progress]:
    """Decode, run after run, until the die refuses a guess that it might as well have kept."""
    yield Progress("Decoding until a guess is refused that might as well have been kept …")
    for seed in trial.seeds(TRIES):
        # Without its longer tail every list in an event is the whole distribution.
        trace = trial.sampled(seed, num_draft_tokens=K, top_k=8, max_tokens=TOKENS)
        if trial.cancel.is_set():
            return
        found = teaching_refusal(trace, trial.seen)
        if found is not None:
            yield Progress("Found one. Press again for another.", _data(trace, found))
            return
    low, high = OPEN
    yield Progress(f"{TRIES} runs, and no new guess refused with p/q between {low} and {high}. Try another prompt.")


def _data(trace: Trace, found: Round) -> Data:
    guess, added = found.refused, found.added
    assert guess is not None, "as `teaching_refusal` promises"
    assert added is not None, "the same"
    q = {entry.token_id: entry.prob for entry in guess.draft_top or []}
    tokens: dict[int, tuple[str, float]] = {entry.token_id: (entry.text, entry.prob) for entry in guess.target_top or []}
    tokens |= {entry.token_id: (entry.text, 0.0) for entry in guess.draft_top or [] if entry.token_id not in tokens}
    rest = sum(max(0.0, p - q.get(token, 0.0)) for token, (_, p) in tokens.items())
    rows: list[Data] = [
        {"id": token, "text": text, "p": p, "q": q.get(token, 0.0), "left": max(0.0, p - q.get(token, 0.0)) / rest}
        for token, (text, p) in tokens.items()
    ]
    own = (guess.token_id, added.token_id)
    rows.sort(key=lambda row: (row["id"] not in own, -max(row["p"], row["q"])))
    return {
        "key": guess.text,
        "before": end_of(text_before(trace, found.before + found.kept)),
        "guess": guess.text,
        "p": guess.target_prob,
        "q": guess.draft_prob,
        "keep": guess.accept_prob,
        "u": guess.uniform,
        "added": added.text,
        "tokens": sorted(rows[:SHOWN], key=lambda row: -row["p"]),
    }


def words(data: Data) -> dict[str, str]:
    return {
        "guess": spoken(data["guess"]),
        "added": spoken(data["added"]),
        "p": number(data["p"], 2),
        "q": number(data["q"], 2),
        "ratio": number(data["keep"], 2),
        "share": percent(data["keep"]),
        "u": number(data["u"], 2),
    }


def right(_data: Data) -> list[int]:
    return [2, 1]


def views(_data: Data) -> list[View]:
    return [
        {"shown": ["q", "p", "die", "needle", "rest", "added"], "lit": []},
        {"shown": ["q"], "lit": ["q"]},
        {"shown": ["q", "p"], "lit": ["p"]},
        {"shown": ["q", "p", "die"], "lit": ["die"]},
        {"shown": ["q", "p", "die", "needle"], "lit": ["die", "needle"]},
        {"shown": ["q", "p", "die", "needle", "rest"], "lit": ["rest"]},
        {"shown": ["q", "p", "die", "needle", "rest", "added"], "lit": ["added"]},
    ]


def markup(data: Data) -> str:
    added = f'{label(data["added"])}<span class="ns-said"> {STYLES[EventKind.RESAMPLED].label}</span>'
    guess = f'<del class="ns-token" data-kind="rejected">{label(data["guess"])}</del>'
    return (
        f'<p class="ns-lp-text">{html.escape(data["before"])}{guess}</p>'
        f'<dl class="ns-lp-pq"><div data-part="q">{_bar("the draft gave it", "q", data["q"], "proposed")}</div>'
        f'<div data-part="p">{_bar("the target gives it", "p", data["p"], "bonus")}</div></dl>'
        f"{_die(data['keep'], data['u'])}{_left_over(data)}"
        '<p data-part="added" class="ns-chips">Drawn in its place: '
        f'<span class="ns-token ns-chip" data-kind="resampled">{added}</span></p>'
    )


def _die(keep: float, u: float) -> str:
    """The bar that the inspector has too: green as far as the guess is kept, the draw as a needle."""
    bar, fell = number(keep, 2), number(u, 2)
    side = " ns-die-right" if u > 0.5 else ""
    side += " ns-die-early" if u < (keep if u < keep else 1 + keep) / 2 else ""
    said = f"Kept with probability {bar}, refused otherwise. The die fell at {fell}."
    return (
        f'<div class="ns-die{side}" style="--keep:{keep:.4f};--die:{u:.4f}" data-part="die">'
        f'<div class="ns-die-top" aria-hidden="true" data-part="needle"><span class="ns-die-u">u = {fell}</span></div>'
        f'<div class="ns-die-bar" role="img" aria-label="{said}"><i class="ns-die-keep">✓ keep</i>'
        '<i class="ns-die-refuse">✗ refuse</i><b class="ns-die-needle" data-part="needle"></b></div>'
        '<div class="ns-die-bottom" aria-hidden="true"><span>0</span>'
        f'<span class="ns-die-edge">p/q = {bar}</span><span>1</span></div></div>'
    )


def _left_over(data: Data) -> str:
    rows = "".join(
        f'<tr{" class=ns-lp-own" if row["text"] == data["guess"] else ""}><th scope="row">{label(row["text"], 14)}</th>'
        f"{_cell(row['q'], 'proposed')}{_cell(row['p'], 'bonus')}{_cell(row['left'], 'resampled')}</tr>"
        for row in data["tokens"]
    )
    q, p, left = (rest_of(row[name] for row in data["tokens"]) for name in ("q", "p", "left"))
    if q or p or left:
        rows += (
            f'<tr><th scope="row"><em>{OTHERS}</em></th>'
            f"{_cell(q, 'proposed')}{_cell(p, 'bonus')}{_cell(left, 'resampled')}</tr>"
        )
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("token", "q", "p", "left over"))
    return (
        '<div data-part="rest"><table class="ns-lp-rest">'
        "<caption>What is left over: p − q where p is larger, scaled to sum to 1</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _bar(said: str, name: str, value: float, kind: str) -> str:
    return (
        f'<dt>{said}: <b>{name} = {number(value, 2)}</b></dt><dd class="ns-lp-bar" data-kind="{kind}" '
        f'style="--share:{value:.4f}"></dd>'
    )


def _cell(value: float, kind: str) -> str:
    return f'<td data-kind="{kind}" style="--share:{value:.4f}">{percent(value)}</td>'


NOTE = "Decodes the prompt of the Run tab until the die refuses a guess that might as well have been kept."
LESSON = Lesson(3, "Find another", NOTE, measure, words, right, views, markup=markup)
