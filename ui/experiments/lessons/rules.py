"""Lesson 12: what each engine's acceptance rule would accept of the same draft distributions,
from the exact p and q of every position."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from naive_speculate.events.steps import Step, steps
from naive_speculate.speculate.theory import expected_accepted
from naive_speculate.speculate.verify.typical import TypicalAcceptanceSampler
from ui.charts.figures import ACCEPTED, DRAFT, MUTED, REJECTED, TARGET, Figure
from ui.experiments.lessons.find_examples import probs
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, bar_chart
from ui.labels import number, percent

K, TOP_K = 4, 8
TOKENS, TEXTS = 96, 4
DRAW = 0.01  # a smaller difference of two shares is none
RULES = {
    "ratio": "min(p, q)",
    "match": "p · q",
    "favourite": "p(argmax q)",
    "typical": "typical<br>(lossy)",
}
COLORS = {"ratio": ACCEPTED, "match": DRAFT, "favourite": TARGET, "typical": REJECTED}
OF_EVENTS = {"ratio": "sampled_accept", "match": "matched_accept", "favourite": "argmax_accept"}
"""The events' fields with what the lossless rules accept at a position."""
_TYPICAL = TypicalAcceptanceSampler()


def typical(p: Mapping[int, float], q: Mapping[int, float]) -> tuple[float, float]:
    """What typical acceptance accepts of a token drawn from q, and the total variation between p
    and the distribution of what it writes."""
    tokens = {**p, **q}
    target, draft = (torch.tensor([probs.get(token, 0.0) for token in tokens]) for probs in (p, q))
    least = _TYPICAL.thresholds(target)
    return float(draft[target > least].sum()), float(_TYPICAL.distance(target, draft, least))


def measure(trial: Trial) -> Iterator[Progress]:
    shares: dict[str, list[float]] = {name: [] for name in (*RULES, "shifted")}
    windows: list[tuple[float, float]] = []
    # With this top-k, every list in an event is the whole distribution; block verification judges
    # every token of a window, so that all have such lists.
    changes: dict[str, Any] = {"top_k": TOP_K, "verify_strategy": "block_verification"}
    runs = trial.sampled(TEXTS, num_draft_tokens=K, max_tokens=TOKENS, ignore_eos=True, **changes)
    for done in range(1, TEXTS + 1):
        yield Progress(f"Decoding text {done} of {TEXTS} …")
        for step in steps(next(runs)):
            _add(step, shares, windows)
    if not windows:
        yield Progress("Nothing was drafted. Try another prompt.")
        return
    data = {
        "rules": {name: sum(values) / len(values) for name, values in shares.items()},
        "positions": len(shares["ratio"]),
        "windows": len(windows),
        "one_by_one": sum(one for one, _ in windows) / len(windows),
        "block": sum(block for _, block in windows) / len(windows),
    }
    yield Progress("Done.", data)


def _add(step: Step, shares: dict[str, list[float]], windows: list[tuple[float, float]]) -> None:
    judged = [draft for draft in step.verdicts if draft.target_top and draft.draft_top]
    if len(judged) < K:  # a shorter window at the end of a text
        return
    ratios = [(draft.target_prob or 0.0) / (draft.draft_prob or 1.0) for draft in judged]
    windows.append((expected_accepted(ratios), expected_accepted(ratios, block=True)))
    for draft in judged[: step.num_accepted + 1]:  # after these the text is another
        for name, field in OF_EVENTS.items():
            shares[name].append(getattr(draft, field) or 0.0)
        accepted, shifted = typical(probs(draft.target_top or []), probs(draft.draft_top or []))
        shares["typical"].append(accepted)
        shares["shifted"].append(shifted)


def best(data: Data) -> int:
    """Of the three lossless rules, the one that accepts most: 0 match, 1 ratio, 2 favourite."""
    rules = data["rules"]
    return max(range(3), key=lambda at: rules[("match", "ratio", "favourite")[at]])


def typical_answer(data: Data) -> int:
    """Typical acceptance relative to min(p, q): 0 accepts less, 1 about as much, 2 more."""
    difference = data["rules"]["typical"] - data["rules"]["ratio"]
    return 2 if difference > DRAW else 0 if difference < -DRAW else 1


TYPICAL = (
    "It accepts even fewer draft tokens, and the text is another all the same.",
    "It accepts about as many, and the text is another all the same.",
    "It accepts more, and pays for it with the text.",
)


def words(data: Data) -> dict[str, str]:
    rules = data["rules"]
    texts = {name: percent(rules[name]) for name in RULES}
    order = sorted(("ratio", "match", "favourite"), key=lambda name: -rules[name])
    return texts | {
        "positions": str(data["positions"]),
        "windows": str(data["windows"]),
        "order": " > ".join(RULES[name] for name in order),
        "one_by_one": number(data["one_by_one"], 2),
        "block": number(data["block"], 2),
        "verdict": TYPICAL[typical_answer(data)],
        "shifted": number(rules["shifted"], 2),
    }


def right(data: Data) -> list[int]:
    return [best(data), 1, 0, typical_answer(data)]


def views(data: Data) -> list[View]:
    asked = "Accepted, mean over all positions. Which rule accepts most?"
    said = "Accepted draft tokens: the same p and q for every rule"
    shown = [(0, asked), (1, said), (2, said), (3, said)]
    bars = [{"figure": _chart(data, bars, words)} for bars, words in shown]
    last: View = {"figure": _chart(data, 4, said)}
    return [*bars, {"figure": _windows(data)}, last]


def _chart(data: Data, shown: int, said: str) -> Figure:
    values = [data["rules"][name] for name in RULES]
    y = {"range": [0, 1.1], "tickformat": ".0%"}
    colors = [COLORS[name] for name in RULES][:shown]
    texts = [percent(value) for value in values]
    return bar_chart(said, [*RULES.values()], values[:shown], texts, colors, y, width=0.6)


def _windows(data: Data) -> Figure:
    values = [data["one_by_one"], data["block"]]
    texts = [number(value, 2) for value in values]
    said = f"Accepted tokens per window of {K}, from the same p and q"
    names, y = ["one by one", "as a block"], {"range": [0, K]}
    return bar_chart(said, names, values, texts, [ACCEPTED, MUTED], y, width=0.5)


NUMBERS = {"texts": TEXTS, "tokens": TOKENS, "top_k": TOP_K, "k": K}
LESSON = Lesson(12, measure, words, right, views, numbers=NUMBERS)
