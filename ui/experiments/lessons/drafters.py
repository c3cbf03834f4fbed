"""Lesson 7: which drafter suits which text: each that the pair has, on a new text and on one that repeats itself."""

from collections.abc import Iterator
from typing import Any

from ui.charts.figures import ACCEPTED, MUTED, bars, figure, hatched, named_places, nice_ceiling, plain_line
from ui.experiments.lessons.lesson import DIM, Data, Lesson, Progress, Trial, View
from ui.experiments.lessons.tally import gain, tally_up, told
from ui.experiments.verdict import DRAFTER_WORDS

NAMES = {name: title.lower() for name, (title, _) in DRAFTER_WORDS.items()}
"""The drafters by their names in the library, in the order of the steps."""
_CRY = '"Run, run, as fast as you can! You cannot catch me, I am the gingerbread man!" said the gingerbread man to the '
REPEATING = f'{_CRY}old woman. {_CRY}cow. "Run, run, as fast'
TEXTS = {"new": "a new text", "repeating": "a text that repeats itself"}
K = 4
TOKENS = 48
DRAW = 0.03


def drafters(trial: Trial) -> list[str]:
    """Those that the pair has: what copies needs no model."""
    return [name for name in NAMES if name in trial.catalog.of(trial.settings.pair).drafters]


def _name(drafter: str, text: str) -> str:
    return f"{drafter}@{text}"


def measure(trial: Trial) -> Iterator[Progress]:
    """Run every drafter on both texts, and plainly to compare."""
    prompts = {"new": trial.settings.prompt, "repeating": REPEATING}
    cases: dict[str, dict[str, Any]] = {}
    for text, prompt in prompts.items():
        cases[_name("plain", text)] = {"prompt": prompt, "num_draft_tokens": 0}
        for drafter in drafters(trial):
            cases[_name(drafter, text)] = {"prompt": prompt, "num_draft_tokens": K, "drafter": drafter}
    common = {"auto": False, "verify_strategy": "speculative_sampling", "temperature": 0.0, "ignore_eos": True, "chat": False}
    for name, known in tally_up(trial, cases, **common, max_tokens=TOKENS):
        drafter, _, text = name.partition("@")
        yield told(name, known, cases, f"Running {NAMES.get(drafter, drafter)} on {TEXTS.get(text)} …")


def measured(data: Data) -> list[str]:
    """The drafters that were measured, in the order of the steps."""
    return [name for name in NAMES if _name(name, "new") in data["known"]]


def _gain(data: Data, drafter: str, text: str) -> float:
    return gain(data, _name(drafter, text), _name("plain", text))


def pace(data: Data, drafter: str, text: str) -> float:
    """Tokens a pass of the target."""
    return float(data["known"][_name(drafter, text)]["tokens_a_pass"])


def _paces(data: Data, drafter: str) -> str:
    return (
        f"{pace(data, drafter, 'new'):.1f} tokens a pass on {TEXTS['new']}, {pace(data, drafter, 'repeating'):.1f} on the other"
    )


def words(data: Data) -> dict[str, str]:
    here = measured(data)
    model = f"Here it gave {_paces(data, 'model')}." if "model" in here else "This pair has none."
    head = (
        f"This pair has one: {_paces(data, 'head')}."
        if "head" in here
        else "This pair has none, so the chart has no bar for it."
    )
    found = {"model_here": model, "head_here": head}
    for text in TEXTS:
        gains = {"plain decoding": 1.0} | {DRAFTER_WORDS[name][1]: _gain(data, name, text) for name in here}
        fastest = max(gains, key=lambda name: gains[name])
        found |= {f"best_{text}": fastest, f"gain_{text}": f"{gains[fastest]:.2f}"}
    new, repeating = found["best_new"], found["best_repeating"]
    found["fastest"] = (
        f"Here {new} was the fastest on the new text ({found['gain_new']} times the speed of plain decoding), "
        + (
            f"and on the other, too ({found['gain_repeating']} times)."
            if new == repeating
            else f"and {repeating} on the other ({found['gain_repeating']} times)."
        )
    )
    for name in ("suffix", "prompt_lookup"):
        found[f"{name}_new"] = f"{pace(data, name, 'new'):.1f}"
        found[f"{name}_repeating"] = f"{pace(data, name, 'repeating'):.1f}"
    return found


def right(data: Data) -> list[int]:
    new, repeating = pace(data, "suffix", "new"), pace(data, "suffix", "repeating")
    return [1 if repeating > new * (1 + DRAW) else 0 if repeating < new * (1 - DRAW) else 2]


def views(data: Data) -> list[View]:
    return [
        _chart(data, measured(data)),
        _chart(data, ["model"]),
        _chart(data, ["model", "head"], lit=["head"] if "head" in measured(data) else ()),
        _chart(data, measured(data), lit=["suffix", "prompt_lookup"]),
        _chart(data, ["model", "head"], lit=["model"]),
        _chart(data, measured(data)),
    ]


def _chart(data: Data, shown: list[str], lit: Any = ()) -> View:
    here = measured(data)
    opacity = [DIM if lit and name not in lit else 1 for name in here]
    measured_bars = [
        bars(
            TEXTS[text],
            list(range(len(here))),
            [pace(data, name, text) if name in shown else None for name in here],
            color,
            f"{TEXTS[text]}: %{{y:.2f}} tokens a pass, %{{customdata:.2f}} times as fast as plain",
            text=[f"{pace(data, name, text):.1f}" if name in shown else "" for name in here],
            textposition="outside",
            cliponaxis=False,
            textangle=0,
            marker=hatched(shape) | {"opacity": opacity},
            customdata=[_gain(data, name, text) for name in here],
        )
        for text, color, shape in (("new", ACCEPTED, ""), ("repeating", MUTED, "/"))
    ]
    top = nice_ceiling(1.12 * max(pace(data, name, text) for name in here for text in TEXTS))
    x = named_places([NAMES[name].replace(" ", "<br>") for name in here])
    said = f"Tokens a pass of the target, at most {K} guesses a round"
    y = {"range": [0, top], "title": {"text": "tokens a pass"}}
    return {"figure": figure([*measured_bars, plain_line(len(here))], takeaway=said, x=x, y=y, height=340, bargroupgap=0.08)}


NOTE = "Runs every drafter of the pair after the prompt of the Run tab, and on a text that repeats itself."
LESSON = Lesson(
    7, "Measure them on this machine", NOTE, measure, words, right, views, chart="Drafters on two texts", timed=True
)
