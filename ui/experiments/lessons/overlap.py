"""Lesson 5: α is the area below both distributions, predicted before any draw and counted
afterwards."""

from collections.abc import Iterator

from naive_speculate.tools.show.expected import expected_acceptance
from ui.assets import render
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, parts
from ui.labels import count, percent

K = 4
TOKENS = 150


def measure(trial: Trial) -> Iterator[Progress]:
    yield Progress("Decoding …")
    expected = expected_acceptance(
        next(trial.sampled(num_draft_tokens=K, max_tokens=TOKENS, ignore_eos=True))
    )
    if expected is None:
        yield Progress("Nothing was drafted. Try another prompt.")
        return
    data = {
        "alpha": expected.alpha,
        "observed": expected.observed,
        "deviation": expected.deviation,
        "judged": expected.judged,
    }
    yield Progress(
        f"Predicted {percent(expected.alpha)}, counted {percent(expected.observed)}.", data
    )


def words(data: Data) -> dict[str, str]:
    return {
        "alpha": percent(data["alpha"]),
        "counted": percent(data["observed"]),
        "deviation": count(max(1, round(100 * data["deviation"])), "percentage point"),
        "judged": str(data["judged"]),
    }


VIEWS = [
    parts("q", "p"),
    parts("q", "p"),
    parts("q", "p", "token"),
    parts("q", "p", "overlap"),
    parts("q", "p", "overlap", "sliders", lit=["sliders"]),
    parts("q", "p", "overlap", "sliders", "measured", lit=["measured"]),
]


def markup(data: Data) -> str:
    return render("lesson_overlap", **data)


LESSON = Lesson(
    5,
    measure,
    words,
    lambda _: [2, 0, 1],
    lambda _: VIEWS,
    markup=markup,
    numbers={"tokens": TOKENS, "k": K},
)
