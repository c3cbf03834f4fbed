"""A trace file may claim anything that the schema lets through; the inspector still explains and draws it."""

import random

import pytest

from naive_speculate.events import TOKEN_KINDS, Event, EventKind, TokenProb
from naive_speculate.events.trace import Trace
from tests.ui.handmade import run
from ui.explain.inspector import to_json

NUMBERS = [0, 1, -1, -0.5, 0.5, 1e-300, 1e300, -1e300, 10**9, -(10**9), 0.9999999, None]
TEXTS = ["", None, "<img src=x onerror=alert(1)>", "\u202e\x00", " ", "%{x}", "𝕏" * 5000, "</b><b>"]
WHOLE = ("num_draft", "num_accepted", "step", "index", "position", "token_id")
REAL = ("draft_prob", "target_prob", "accept_prob", "uniform", "threshold", "draft_entropy", "target_entropy")
REAL += ("draft_seconds", "verify_seconds", "total_seconds", "time")


def mangled(seed: int) -> Trace:
    """A run with nonsense in about every third field of its events."""
    chance = random.Random(seed)
    trace = run([(5, chance.randint(0, 5)) for _ in range(8)])
    for event in trace.events[1:]:
        _mangle(event, chance)
    return trace


def _mangle(event: Event, chance: random.Random) -> None:
    for name in REAL:
        if chance.random() < 0.3:
            value = chance.choice(NUMBERS)
            setattr(event, name, 0.0 if value is None and name == "time" else value)
    for name in WHOLE:
        if chance.random() < 0.3:
            value = chance.choice(NUMBERS)
            setattr(event, name, None if value is None else int(max(-(10**12), min(10**12, value))))
    if chance.random() < 0.3:
        event.text, event.token = chance.choice(TEXTS), chance.choice(TEXTS)
    for name in ("draft_top", "target_top", "residual_top"):
        if event.kind in TOKEN_KINDS and chance.random() < 0.4:
            tokens = [TokenProb(n, chance.choice(TEXTS) or "", float(chance.choice(NUMBERS) or 0)) for n in range(3)]
            setattr(event, name, tokens)


def test_nonsense_is_drawn_and_explained_without_an_error():
    for trace in map(mangled, range(20)):
        for number, event in enumerate(trace):
            if event.kind in TOKEN_KINDS:
                assert "<" not in to_json(trace, number)  # which stands in the page's source, and whose words become text


@pytest.mark.parametrize(("drafted", "accepted"), [(4, 9), (4, -1), (-2, 0), (10**9, 10**9)])
def test_a_file_with_impossible_steps_is_refused(drafted, accepted):
    trace = run([(4, 2)])
    step = next(event for event in trace if event.kind == EventKind.STEP)
    step.num_draft, step.num_accepted = drafted, accepted
    with pytest.raises(ValueError, match=r"trace line \d+: num_accepted=.* is impossible"):
        Trace.from_jsonl(trace.to_jsonl())
