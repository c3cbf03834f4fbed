"""Lesson 7: temperature costs acceptance where the models' favourites agree, and brings it where
they differ."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from naive_speculate.events import EventKind
from naive_speculate.tools.show.expected import expected_acceptance
from ui.charts.figures import ACCEPTED, INK, REJECTED, Figure, axis, figure, line
from ui.experiments.lessons.find_examples import SURE, SamplingPosition, joined, judged_positions
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, asking, showing
from ui.labels import end_of, percent

TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
K, TOKENS, TRIES = 4, 96, 12
DRAW = 0.02  # a smaller change of the mean is none
BOTH = "mean over the text"


def measure(trial: Trial) -> Iterator[Progress]:
    yield Progress("Searching for two positions …")
    examples = _positions(trial)
    if examples is None:
        yield Progress("The two models agreed everywhere. Try another prompt.")
        return
    data: Data = {
        "before": {
            name: end_of(joined(trial.settings.prompt, place.before), 40)
            for name, place in examples.items()
        }
    }
    data["alpha"] = {
        name: [_alpha_at(trial, place, t) for t in TEMPERATURES] for name, place in examples.items()
    }
    data["mean"] = []
    for temperature in TEMPERATURES:
        yield Progress(f"Decoding at temperature {temperature:g} …")
        sampled = trial.sampled(temperature=temperature, num_draft_tokens=K, max_tokens=TOKENS)
        expected = expected_acceptance(next(sampled))
        if expected is None:
            return
        data["mean"].append(expected.alpha)
    yield Progress("Done.", data)


def _positions(trial: Trial) -> dict[str, SamplingPosition] | None:
    """A position where the favourites agree but neither model is sure, and one where they
    differ."""
    examples: dict[str, SamplingPosition] = {}
    for trace in trial.sampled(TRIES, num_draft_tokens=K, max_tokens=TOKENS):
        for place, target, draft in judged_positions(trace):
            if max(target[0].prob, draft[0].prob) <= SURE:
                examples.setdefault(
                    "agree" if target[0].token_id == draft[0].token_id else "differ", place
                )
        if len(examples) == 2:
            return examples
    return None


def _alpha_at(trial: Trial, place: SamplingPosition, temperature: float) -> float:
    """Σ min(p, q) at a position, over the whole vocabulary: of the first draft token there."""
    changes: dict[str, Any] = {
        "num_draft_tokens": 1,
        "drafter": trial.drafter,
        "max_tokens": 2,
        "ignore_eos": True,
    }
    settings = replace(trial.settings, temperature=temperature, **changes)
    events = list(
        trial.catalog.stream(
            settings.pair, replace(settings.request(), prompt=place.token_ids, chat=False)
        )
    )
    return next(
        (event.expected_accept or 0.0 for event in events if event.kind == EventKind.PROPOSED), 0.0
    )


def words(data: Data) -> dict[str, str]:
    low, one, high = (
        data["mean"][TEMPERATURES.index(temperature)] for temperature in (0.0, 1.0, 2.0)
    )
    before = {name: text.replace("\n", " ") for name, text in data["before"].items()}
    means = {"mean_low": percent(low), "mean_one": percent(one), "mean_high": percent(high)}
    return before | means | {"effect": _stronger(low, one, high)}


def _stronger(*means: float) -> str:
    """Which effect is stronger between the temperatures 0, 1 and 2, in a sentence."""
    effects = {
        -1: "the loss outweighs the gain",
        0: "the two effects cancel out",
        1: "the gain outweighs the loss",
    }
    changes = [after - before for before, after in pairwise(means)]
    first, second = (
        effects[0 if abs(change) < DRAW else 1 if change > 0 else -1] for change in changes
    )
    return (
        f"Here {first} from 0 to 2."
        if first == second
        else f"Here {first} from 0 to 1, and {second} from 1 to 2."
    )


def views(data: Data) -> list[View]:
    whole = _chart(data)
    names = [trace["name"] for trace in whole["data"]]
    first = {**whole["data"][2], "x": [0.0], "y": data["mean"][:1]}
    said = (
        f"At temperature 0, {percent(data['mean'][0])} of the draft tokens are accepted. And at 1?"
    )
    marked = asking({**whole, "data": [first]}, [1.0], said)
    return [
        {"figure": marked},
        showing(whole, names[0], takeaway="The favourites agree: α starts at 1 and falls"),
        showing(
            whole,
            *names[:2],
            lit=[names[1]],
            takeaway="The favourites differ: α starts at 0 and rises",
        ),
        showing(whole, lit=[BOTH]),
    ]


def _chart(data: Data) -> Figure:
    x, hover = list(TEMPERATURES), "temperature %{x:g}: %{y:.0%}"
    traces = [
        line("favourites agree", x, data["alpha"]["agree"], ACCEPTED, hover, mode="lines+markers"),
        line(
            "favourites differ",
            x,
            data["alpha"]["differ"],
            REJECTED,
            hover,
            dash="dash",
            mode="lines+markers",
        ),
        line(BOTH, x, data["mean"], INK, hover, mode="lines+markers"),
    ]
    traces[2]["line"] = {**traces[2]["line"], "width": 4}
    across = axis("temperature", -0.1, 2.1, dtick=0.5)
    y = axis("accepted, α", 0, 1.05, tickformat=".0%")
    return figure(
        traces,
        takeaway="Together: the mean over all positions of a text",
        x=across,
        y=y,
        height=320,
    )


NUMBERS = {"tokens": TOKENS, "k": K}
LESSON = Lesson(7, measure, words, lambda _: [0, 1], views, numbers=NUMBERS)
