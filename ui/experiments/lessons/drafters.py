"""Lesson 10: which drafter suits which text: each drafter of the pair, on a new and on a
repetitive text."""

import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from naive_speculate.speculate.draft import DRAFTERS
from ui.assets import ROOT, render
from ui.charts.figures import (
    ACCEPTED,
    MUTED,
    above,
    axis,
    bars,
    category_axis,
    figure,
    hatched,
    nice_ceiling,
    plain_line,
)
from ui.experiments.lessons.lesson import (
    DIM,
    Data,
    Lesson,
    Progress,
    Trial,
    View,
    asking,
    parts,
    run_all,
    speedup,
)

NAMES = {name: (drafter.title or name).lower() for name, drafter in DRAFTERS.items()}
_CRY = (
    '"Run, run, as fast as you can! You cannot catch me, I am the gingerbread man!" said the'
    " gingerbread man to the "
)
REPEATING = f'{_CRY}old woman. {_CRY}cow. "Run, run, as fast'
TEXTS = {"new": "a new text", "repeating": "a text that repeats itself"}
K = 4
TOKENS = 48
DRAW = 0.03
ENGINES = {
    "vLLM": "https://docs.vllm.ai/en/latest/features/speculative_decoding/",
    "SGLang": "https://docs.sglang.io/docs/advanced_features/speculative_decoding",
    "TensorRT-LLM": "https://nvidia.github.io/TensorRT-LLM/features/speculative-decoding.html",
    "llama.cpp": "https://github.com/ggml-org/llama.cpp/blob/master/docs/speculative.md",
    "transformers": "https://huggingface.co/docs/transformers/main/en/generation_strategies",
}
"""Engines with their documentation."""
COPYING = ("suffix", "prompt_lookup")  # the drafters without a model; every pair has them


def _name(drafter: str, text: str) -> str:
    return f"{drafter}@{text}"


def measure(trial: Trial) -> Iterator[Progress]:
    prompts = {"new": trial.settings.prompt, "repeating": REPEATING}
    offered = trial.catalog.of(trial.settings.pair).drafters
    cases: dict[str, dict[str, Any]] = {}
    for text, prompt in prompts.items():
        cases[_name("plain", text)] = {"prompt": prompt, "num_draft_tokens": 0}
        for drafter in (name for name in NAMES if name in offered):
            cases[_name(drafter, text)] = {
                "prompt": prompt,
                "num_draft_tokens": K,
                "drafter": drafter,
            }
    yield from run_all(
        trial, cases, _status, temperature=0.0, ignore_eos=True, chat=False, max_tokens=TOKENS
    )


def _status(case: str) -> str:
    drafter, _, text = case.partition("@")
    return f"Running {NAMES.get(drafter, drafter)} on {TEXTS[text]} …"


def measured(data: Data) -> list[str]:
    """The drafters that were measured, in the order of the steps."""
    return [name for name in NAMES if _name(name, "new") in data["known"]]


def _gain(data: Data, drafter: str, text: str) -> float:
    return speedup(data, _name(drafter, text), _name("plain", text)).mean


def pace(data: Data, drafter: str, text: str) -> float:
    """Tokens per target pass."""
    return float(data["known"][_name(drafter, text)]["tokens_a_pass"])


def _paces(data: Data, drafter: str) -> str:
    new, repeating = (f"{pace(data, drafter, text):.1f}" for text in TEXTS)
    return f"{new} tokens per target pass on {TEXTS['new']}, {repeating} on the other"


def _winner(data: Data, text: str, names: Iterable[str]) -> str:
    """The fastest of these drafters on a text with its speedup; plain decoding if it is, or if
    it is a draw with it."""
    gains = {DRAFTERS[name].phrase: _gain(data, name, text) for name in names}
    most = max(gains.values())
    if most < 1 - DRAW:
        return "plain decoding"
    if most <= 1 + DRAW:
        return f"nothing beat plain decoding clearly ({max(most, 1.0):.2f}×)"
    fastest = (
        name
        for name in sorted(gains, key=lambda name: -gains[name])
        if gains[name] > most / (1 + DRAW)
    )
    return f"{' or '.join(fastest)}, {most:.2f}×"


def _head(data: Data) -> str:
    """When to use a head, with its speed next to the draft model's on a new text."""
    advice = "if one exists for your model, or if you can train one."
    speeds = [
        f"{_gain(data, name, 'new'):.2f}" for name in ("head", "model") if name in measured(data)
    ]
    if "head" not in measured(data):
        return advice
    own, *of_model = speeds
    if of_model:
        here = (
            f"Here it was {own} times as fast as plain decoding on a new text, the draft model"
            f" {of_model[0]} times."
        )
    else:
        here = (
            f"Here, with {K} draft tokens per step, it was {own} times as fast as plain decoding on"
            " a new text; "
        )
        here += "lesson 6 finds the best number."
    return f"{advice} {here}"


def words(data: Data) -> dict[str, str]:
    here = measured(data)
    model, head = "This pair has none.", "This pair has none, so the chart has no bar for it."
    if "model" in here:
        model = f"Here it gave {_paces(data, 'model')}."
    if "head" in here:
        head = f"This pair has one: {_paces(data, 'head')}."
    free, best = ([_winner(data, text, names) for text in TEXTS] for names in (COPYING, here))
    without = f"Without any model: {free[0]} on {TEXTS['new']}, {free[1]} on the other. "
    suffix, lookup = (f"{_gain(data, name, 'repeating'):.2f}" for name in COPYING)
    texts = {
        "model_here": model,
        "head_here": head,
        "take_head": _head(data),
        "take_copying": (
            "for text that repeats itself (code, lists, quotations), above all if you have no"
            f" draft model. Here it was {suffix} times as fast as plain decoding on such text, and"
            f" prompt lookup {lookup} times."
        ),
        "without": "" if free == best else without,
    }
    for text, winner in zip(TEXTS, best, strict=True):
        texts[f"best_{text}"] = winner
        texts |= {f"{name}_{text}": f"{pace(data, name, text):.1f}" for name in COPYING}
    return texts


def right(data: Data) -> list[int]:
    new, repeating = pace(data, "suffix", "new"), pace(data, "suffix", "repeating")
    return [2, 1 if repeating > new * (1 + DRAW) else 0 if repeating < new * (1 - DRAW) else 2]


def views(data: Data) -> list[View]:
    here = measured(data)
    question = "Tokens per target pass: which drafter gives most, on which text?"
    return [
        {"figure": asking(_chart(data, [])["figure"], range(len(here)), question)},
        _chart(data, ["model"]),
        _chart(data, ["model", "head"], lit=["head"] if "head" in here else ()),
        _chart(data, here, lit=COPYING),
        _chart(data, here),
        parts("table"),
        _chart(data, here),
    ]


def markup(data: Data) -> str:
    """The table of all kinds, with this page's figures where the pair has such a drafter."""
    kinds = tomllib.loads((ROOT / "lessons" / "drafters.toml").read_text(encoding="utf-8"))["kind"]
    here = {}
    for name in measured(data):
        tokens = pace(data, name, "new")
        here[name] = f"{tokens:.1f} tokens, {tokens / _gain(data, name, 'new'):.1f} passes"
    rows = [
        kind
        | {
            "engines": {name: ENGINES[name] for name in kind["engines"]},
            "here": here.get(kind["own"], ""),
        }
        for kind in kinds
    ]
    return render("lesson_drafters", rows=rows)


def _chart(data: Data, shown: list[str], lit: Any = ()) -> View:
    here = measured(data)
    opacity = [DIM if lit and name not in lit else 1 for name in here]
    traces = []
    for text, color, shape in (("new", ACCEPTED, ""), ("repeating", MUTED, "/")):
        paces = [pace(data, name, text) if name in shown else None for name in here]
        marker = hatched(shape) | {"opacity": opacity}
        hover = (
            f"{TEXTS[text]}: %{{y:.2f}} tokens per target pass, %{{customdata:.2f}} times as fast"
            " as plain decoding"
        )
        look = above([f"{value:.1f}" if value else "" for value in paces]) | {
            "textangle": 0,
            "marker": marker,
        }
        gained = [_gain(data, name, text) for name in here]
        traces.append(
            bars(TEXTS[text], range(len(here)), paces, color, hover, **look, customdata=gained)
        )
    top = nice_ceiling(1.12 * max(pace(data, name, text) for name in here for text in TEXTS))
    x = category_axis([NAMES[name].replace(" ", "<br>") for name in here])
    takeaway = f"Tokens per target pass, with up to {K} draft tokens per step"
    y = axis("tokens per target pass", 0, top)
    return {
        "figure": figure(
            [*traces, plain_line(len(here))],
            takeaway=takeaway,
            x=x,
            y=y,
            height=340,
            bargroupgap=0.08,
        )
    }


NUMBERS = {"k": K, "tokens": TOKENS}
LESSON = Lesson(10, measure, words, right, views, markup=markup, timed=True, numbers=NUMBERS)
