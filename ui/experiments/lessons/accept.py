"""Lesson 3: one rejected draft token, and the token that was resampled instead."""

from collections.abc import Iterator

from naive_speculate.events.steps import Step
from naive_speculate.events.trace import Trace
from ui.assets import render
from ui.experiments.lessons.find_examples import OPEN, close_rejection, probs, text_before
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, parts, spoken
from ui.experiments.lessons.unchanged import OTHERS, rest_of
from ui.labels import end_of, number, percent

K = 4
TOKENS = 100
TRIES = 24
SHOWN = 5


def measure(trial: Trial) -> Iterator[Progress]:
    yield Progress("Decoding until a close rejection …")
    # With this top-k, every list in an event is the whole distribution.
    for trace in trial.sampled(TRIES, num_draft_tokens=K, top_k=8, max_tokens=TOKENS):
        example = close_rejection(trace, trial.earlier)
        if example is not None:
            yield Progress("Found one. Press again for another one.", _data(trace, example))
            return
    low, high = OPEN
    yield Progress(
        f"{TRIES} runs had no new rejection with p/q between {low} and {high}. Try another prompt."
    )


def _data(trace: Trace, example: Step) -> Data:
    guess, added = example.rejected, example.added
    assert guess is not None, "`close_rejection` ensures this"
    assert added is not None, "`close_rejection` ensures this"
    p, q = (probs(top or []) for top in (guess.target_top, guess.draft_top))
    texts = {
        entry.token_id: entry.text
        for entry in [*(guess.target_top or []), *(guess.draft_top or [])]
    }
    left = {token: max(0.0, p.get(token, 0.0) - q.get(token, 0.0)) for token in texts}
    rest = sum(left.values())
    rows: list[Data] = [
        {
            "id": token,
            "text": text,
            "p": p.get(token, 0.0),
            "q": q.get(token, 0.0),
            "left": left[token] / rest,
        }
        for token, text in texts.items()
    ]
    own = (guess.token_id, added.token_id)
    rows.sort(key=lambda row: (row["id"] not in own, -max(row["p"], row["q"])))
    return {
        "key": guess.text,
        "before": end_of(text_before(trace, example.before + example.num_accepted)),
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
        "p": number(data["p"]),  # three digits, so that p ÷ q is the ratio shown
        "q": number(data["q"]),
        "ratio": number(data["keep"], 2),
        "share": percent(data["keep"]),
        "u": number(data["u"], 2),
    }


VIEWS = [
    parts(),
    parts("q", lit=["q"]),
    parts("q", "p", lit=["p"]),
    parts("q", "p", "die", lit=["die"]),
    parts("q", "p", "die", "needle", lit=["die", "needle"]),
    parts("q", "p", "die", "needle", "rest", lit=["rest"]),
    parts("q", "p", "die", "needle", "rest", "added", lit=["added"]),
]


def markup(data: Data) -> str:
    columns = ([row[name] for row in data["tokens"]] for name in ("q", "p", "left"))
    others = [rest_of(column) for column in columns]
    return render("lesson_rejection", **data, others=others, others_name=OTHERS)


LESSON = Lesson(3, measure, words, lambda _: [0, 1, 0], lambda _: VIEWS, markup=markup)
